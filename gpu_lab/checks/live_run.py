"""A running mfsdp-exec, observed from outside: its lines, its ranks and how they end. Needs /proc."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gpu_lab.launch import environment_of
from gpu_lab.results import Json, parse_line

START = 120.0  # seconds for a run to come to the moment that is waited for
Value = TypeVar("Value")


def status_of(process: int) -> tuple[str, int] | None:
    """The letter of a process's state ("Z": ended, "T": stopped) and its parent; None where there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return fields[0], int(fields[1])


def has_ended(process: int) -> bool:
    """Whether a process runs no more."""
    status = status_of(process)
    return status is None or status[0] in "ZX"


def _processes() -> list[int]:
    return [int(folder.name) for folder in pathlib.Path("/proc").glob("[0-9]*")]


def processes_of(program: str) -> list[int]:
    """Processes that were started as `program`."""
    found = []
    for process in _processes():
        try:
            command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if command == program and not has_ended(process):
            found.append(process)
    return found


def rank_of(process: int) -> int | None:
    """The rank in a process's environment."""
    try:
        text = pathlib.Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    found = re.search(r"(?:^|\0)MFSDP_RANK=(\d+)", text)
    return int(found.group(1)) if found else None


class LiveRun:
    """A run in progress: its lines with their times (seconds, monotonic), its processes by rank."""

    def __init__(self, command: Sequence[str], log: pathlib.Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = open(log, "w")
        self.lines: list[tuple[float, str]] = []
        self.known: dict[int, int] = {}
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace",
                                        env=environment_of(environment or {}))
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))
            self.log.write(line)

    def ranks(self) -> dict[int, int]:
        """The processes of ranks that have been seen so far."""
        for process in _processes():
            if process in self.known.values():
                continue
            status = status_of(process)
            if status and status[1] == self.process.pid and (rank := rank_of(process)) is not None:
                self.known[rank] = process
        return self.known

    def events(self, kind: str) -> list[tuple[float, Json]]:
        """Events of a kind (step, save), each with its time."""
        parsed = ((at, parse_line(line)) for at, line in list(self.lines))
        return [(at, event) for at, event in parsed if event is not None and event.get("event") == kind]

    def step_at(self, number: int) -> float | None:
        """When the line of this step or a later one came; None: it has not come yet."""
        return next((at for at, step in self.events("step") if step["step"] >= number), None)

    def await_moment(self, is_there: Callable[[], Value | None], what: str) -> Value:
        """Waits until the function returns something that is true, and returns it. Raises RuntimeError."""
        until = time.monotonic() + START
        while time.monotonic() < until:
            is_over = self.process.poll() is not None
            if value := is_there():
                return value
            if is_over:
                raise RuntimeError(f"ended before {what}: {self.last_line()}")
            time.sleep(0.002)
        raise RuntimeError(f"{what} did not come within {START:.0f} s")

    def last_line(self) -> str:
        """The last line that is not empty."""
        lines = (line[:110] for _, line in reversed(self.lines) if line.strip())
        return next(lines, "it printed nothing")

    def await_end(self, limit: float) -> tuple[int, float] | None:
        """The exit code and the time at which all its processes had ended; None: they have not within `limit` seconds."""
        until = time.monotonic() + limit
        everyone = [self.process.pid, *self.known.values()]
        while time.monotonic() < until:
            self.process.poll()
            if all(has_ended(process) for process in everyone):
                self.process.wait()
                return self.process.returncode, time.monotonic()
            time.sleep(0.01)
        return None

    def close(self) -> None:
        """Ends what is left of the run."""
        for process in [self.process.pid, *self.known.values()]:
            if not has_ended(process):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()
        self.reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
