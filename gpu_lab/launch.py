"""Starts processes: tools of mfsdp, and commands of this package, on one GPU or one process for each of several."""

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from gpu_lab.machine import ROOT, scenarios

TIMED_OUT = 124  # exit code of a process that was ended because it ran past its time
GRACE = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a process ended. `out` and `err` are empty where they went to files or to the terminal."""

    code: int
    out: str = ""
    err: str = ""

    def last_line(self) -> str:
        """The last line of its errors or else of its output that is not empty."""
        lines = [line for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def own_command(*words: object) -> list[str]:
    """A command of this package in a process of its own."""
    return [sys.executable, "-m", "gpu_lab", *map(str, words)]


def ranks_command(ranks: int, *words: object) -> list[str]:
    """A command of this package on `gpus` GPUs of this host, one process for each."""
    return own_command("ranks", "--gpus", ranks, "--", *own_command(*words))


def is_rank() -> bool:
    """Whether this process is one of several that `ranks` or torchrun started."""
    return "LOCAL_RANK" in os.environ


def describe(command: Sequence[object], environment: Mapping[str, str]) -> str:
    """The command as a shell takes it."""
    return shlex.join([*(f"{name}={value}" for name, value in environment.items()), *map(str, command)])


def _copy(stream: IO[str], take: Callable[[str], object]) -> threading.Thread:
    def copy() -> None:
        for line in stream:
            take(line)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _signal_group(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process and all that it started, which stay in its process group."""
    _signal_group(process, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    _signal_group(process, signal.SIGKILL)
    process.wait()


@dataclass
class Launcher:
    """Runs commands one at a time. `dry_run`: prints them instead. `ends`: seconds since this call of the
    package began after which nothing may run; None: no end."""

    dry_run: bool = False
    ends: float | None = None
    began: float = field(default_factory=time.monotonic)

    def spent(self) -> float:
        """Seconds since this call began."""
        return time.monotonic() - self.began

    def left(self) -> float | None:
        """Seconds until this call ends."""
        return None if self.ends is None else max(1.0, self.ends - self.spent())

    def run(self, command: Sequence[object], *, seconds: float | None = None, environment: Mapping[str, str] | None = None,
            folder: pathlib.Path | None = None, out: pathlib.Path | None = None, log: pathlib.Path | None = None,
            stamp: bool = False, show: bool = False, inherit: bool = False) -> Ended:
        """Runs a command to its end, or for `seconds` at most, and for no longer than this call may last.

        `out` and `log` are files for its output and its errors; the same file takes both. `stamp` writes before each
        line of `out` its time in seconds since 1970. `show` prints output and errors, `inherit` leaves both as this
        process has them. Output that goes to neither is returned.
        """
        added = dict(environment or {})
        if self.dry_run:
            print(describe(command, added), flush=True)
            return Ended(0)
        words = [str(word) for word in command]
        limits = [limit for limit in (seconds, self.left()) if limit is not None]
        kept: tuple[list[str], list[str]] = ([], [])
        with contextlib.ExitStack() as files:
            take_out: Callable[[str], object] = kept[0].append
            stdout: int | IO[str] | None = None if inherit else subprocess.PIPE
            stderr: int | IO[str] | None = None if inherit else subprocess.PIPE
            if show:
                take_out, stderr = _print_line, subprocess.STDOUT
            if out is not None:
                file = files.enter_context(open(out, "w"))
                if stamp:
                    take_out = _stamped(file)
                else:
                    stdout = file
            if log is not None:
                stderr = subprocess.STDOUT if log == out else files.enter_context(open(log, "w"))
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True,
                                       errors="replace", cwd=folder, env=environment_of(added), start_new_session=True)
            readers = [_copy(stream, take) for stream, take in ((process.stdout, take_out), (process.stderr, kept[1].append))
                       if stream is not None]
            try:
                code = process.wait(min(limits, default=None))
            except subprocess.TimeoutExpired:
                code = TIMED_OUT
            finally:
                _end_group(process)
            for reader in readers:
                reader.join(GRACE)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return Ended(code, "".join(kept[0]), "".join(kept[1]))


def _print_line(line: str) -> None:
    print(line, end="", flush=True)


def _stamped(file: IO[str]) -> Callable[[str], object]:
    return lambda line: file.write(f"{time.time():.6f} {line}")


def environment_of(added: Mapping[str, str]) -> dict[str, str]:
    """This process's environment and what is added to it. Python finds this package, and tools the same scenarios."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MFSDP_SCENARIOS": str(scenarios()), **added}


def run_threads(work: Iterable[Callable[[], None]]) -> None:
    """Does all of it at the same time and waits for the end."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
