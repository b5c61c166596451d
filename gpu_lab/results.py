"""Reads what runs leave: JSON lines, results of mfsdp-sim and mfsdp-exec, and the SQLite store."""

import collections
import contextlib
import json
import pathlib
import sqlite3
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_lab.machine import GIB

Json = dict[str, Any]


# ---- lines --------------------------------------------------------------------------------------


def parse_line(line: str) -> Json | None:
    """The object of a line; None where the line is none, or was cut off."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parse_lines(lines: Iterable[str]) -> list[Json]:
    """The objects among the lines."""
    return [value for line in lines if (value := parse_line(line)) is not None]


def read_lines(path: pathlib.Path) -> list[Json]:
    """The objects of a file; none where there is no file."""
    return parse_lines(path.read_text(errors="replace").splitlines()) if path.exists() else []


def read_stamped(path: pathlib.Path) -> list[tuple[float, Json]]:
    """The objects of a file, each with the second since 1970 at which it came (Launcher.run with `stamp`)."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        at, _, rest = line.partition(" ")
        if (value := parse_line(rest)) is not None:
            found.append((float(at), value))
    return found


def read_json(path: pathlib.Path) -> Json | None:
    """The object of a file; None where there is none, or the file was cut off."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def steps_of(lines: Iterable[Json]) -> list[Json]:
    """The lines of steps."""
    return [line for line in lines if line.get("event") == "step"]


def result_of(lines: Iterable[Json]) -> Json | None:
    """The result at the end of a run of mfsdp-exec."""
    results = [line for line in lines if str(line.get("schema", "")).startswith("mfsdp.result")]
    return results[-1] if results else None


Bits = tuple[tuple[float, ...], ...]  # of each step: loss and norm of the gradient


def bits_of(lines: Iterable[Json], norms_alone: bool = False) -> Bits:
    """The figures that two runs of the same arithmetic share, bit for bit."""
    return tuple((step["grad_norm"],) if norms_alone else (step["loss"], step["grad_norm"]) for step in steps_of(lines))


# ---- figures ------------------------------------------------------------------------------------


@dataclass
class Figures:
    """Figures of one step, predicted or measured. Times in ms, memory in GiB."""

    step: float
    tflops: float  # TFLOP/s and GPU
    compute: float | None = None
    exposed: float | None = None  # communication while no kernel computes
    idle: float | None = None
    pools: float | None = None
    runtime: float | None = None  # memory of CUDA and NCCL
    allocated: float | None = None  # by the caching allocator of another engine
    reserved: float | None = None
    late: float | None = None  # the GPU waited for the host to issue its next op
    window: tuple[float, float] | None = None  # timed steps, seconds since 1970


def figures_of(result: Json) -> Figures:
    """Figures of a result of mfsdp-sim or mfsdp-exec."""
    times, memory = result["time"], result["memory"]
    runtime = memory["categories"].get("runtime", 0)
    figures = Figures(
        step=times["median_step_ns"] / 1e6, compute=times["compute_ns"] / 1e6,
        exposed=times["exposed_communication_ns"] / 1e6, idle=times["idle_ns"] / 1e6,
        pools=(memory["allocated_bytes"] - runtime) / GIB, runtime=runtime / GIB, tflops=times["tflops_per_gpu"])
    if "reserved_bytes" in memory:
        figures.allocated, figures.reserved = memory["allocated_bytes"] / GIB, memory["reserved_bytes"] / GIB
    return figures


def measured_figures(lines: Sequence[Json], skip: int) -> Figures | None:
    """Figures of a run of mfsdp-exec, whose first `skip` steps do not count; None where it has no result."""
    result, steps = result_of(lines), steps_of(lines)
    if result is None or len(steps) <= skip:
        return None
    figures = figures_of(result)
    figures.step = statistics.median(step["step_ns"] for step in steps[skip:]) / 1e6
    if "tflops_per_gpu" in steps[-1]:
        figures.tflops = statistics.median(step["tflops_per_gpu"] for step in steps[skip:])
    return figures


# ---- the store ----------------------------------------------------------------------------------


def late_of(path: pathlib.Path) -> float | None:
    """ms of a step in which rank 0's compute stream was empty because the host had not issued its next op.

    None where the store has no launches. The table has the last steps of a run; the compute stream is the one with
    the most launches.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            rows = store.execute("select stream, step, issued_ns, begin_ns, end_ns from launches where rank = 0"
                                 " order by begin_ns").fetchall()
    except sqlite3.Error:
        return None
    if not rows:
        return None
    stream = collections.Counter(row[0] for row in rows).most_common(1)[0][0]
    late, ended = 0, rows[0][3]  # ended: when the stream has become empty
    for _, _, issued, begin, end in (row for row in rows if row[0] == stream):
        late += max(0, min(begin, issued) - ended)
        ended = max(ended, end)
    return late / 1e6 / len({row[1] for row in rows})
