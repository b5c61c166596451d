"""Runs named stages, each with a log, and prints a table of how they ended."""

import contextlib
import io
import pathlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from gpu_lab.machine import WrongFlag


class Skipped(Exception):
    """Nothing of a stage could run here; the message is the reason."""


class Failed(Exception):
    """A stage found a fault, which was printed or is the message."""


class NotDone(Exception):
    """The time of this call ended before the stage did; the next call goes on with it."""


class _Tee(io.StringIO):
    """Writes to several streams, and keeps nothing."""

    def __init__(self, *streams: TextIO) -> None:
        super().__init__()
        self.streams = streams

    def write(self, text: str) -> int:
        """Writes everywhere, at once."""
        for stream in self.streams:
            stream.write(text)
            stream.flush()
        return len(text)


def run_stage(run: Callable[[], None], log: pathlib.Path) -> tuple[str, bool]:
    """Runs one stage, whose lines also go to `log`. How it ended, for the table, and whether it passed or was skipped."""
    begin = time.monotonic()
    with open(log, "w") as file, contextlib.redirect_stdout(_Tee(sys.stdout, file)):
        try:
            run()
            return f"passed in {time.monotonic() - begin:.0f} s", True
        except Skipped as reason:
            print(reason)
            return f"skipped: {reason}", True
        except NotDone:
            return "NOT DONE: call again for the rest", False
        except (Failed, WrongFlag) as reason:
            if str(reason):
                print(f"WRONG: {reason}")
        except Exception:  # a fault of one stage does not hide the others
            traceback.print_exc(file=sys.stdout)
    return f"FAILED after {time.monotonic() - begin:.0f} s: {log}", False


def run_stages(stages: Mapping[str, Callable[[], None]], names: Sequence[str], out: pathlib.Path, *,
               keep_passed: bool = False, before_table: Callable[[], object] = lambda: None) -> int:
    """Runs stages in this order and prints a table. Exit code 0: all that could run passed; 1: not.

    `keep_passed`: what passed leaves NAME.passed in `out` and is not run again.
    """
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, str] = {}
    good = True
    for name in names:
        passed = out / f"{name}.passed"
        if keep_passed and passed.exists():
            results[name] = "passed before"
            continue
        print(f"== stage {name}", flush=True)
        results[name], right = run_stage(stages[name], out / f"{name}.log")
        good = good and right
        if keep_passed and results[name].startswith("passed"):
            passed.touch()
    print()
    before_table()
    for name in names:
        print(f"stage {name}  {results[name]}", flush=True)
    return 0 if good else 1
