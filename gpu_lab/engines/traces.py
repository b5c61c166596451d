"""Communication and kernels of one step, from Kineto's trace of it."""

import pathlib
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from gpu_lab.results import Json, read_json

Span = tuple[float, float]  # begin and end, microseconds
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def union_of(spans: Iterable[Span]) -> list[Span]:
    """The same times as sorted spans that do not touch."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def length_of(union: Iterable[Span]) -> float:
    """Microseconds of all spans."""
    return sum(end - begin for begin, end in union)


def _on_device(trace: Json) -> list[Json]:
    return [event for event in trace["traceEvents"] if event.get("cat") in DEVICE and "dur" in event]


def _stream_of(event: Json) -> Any:
    return event["args"].get("stream", event["tid"])


def communication_of(trace: Json) -> dict[str, float]:
    """Milliseconds of a step's compute and collectives, and of collectives during which no kernel computes.

    The stream of compute is the one with the longest kernels that are no collectives.
    """
    events = _on_device(trace)
    collective = [event["name"].startswith("ncclDevKernel") for event in events]
    work: dict[Any, float] = {}
    for event, is_collective in zip(events, collective):
        work[_stream_of(event)] = work.get(_stream_of(event), 0) + (0 if is_collective else event["dur"])
    compute_stream = max(work, key=lambda stream: work[stream])
    span = lambda event: (event["ts"], event["ts"] + event["dur"])
    compute = union_of(span(event) for event, is_collective in zip(events, collective)
                       if not is_collective and _stream_of(event) == compute_stream)
    collectives = union_of(span(event) for event, is_collective in zip(events, collective) if is_collective)
    both = union_of([*compute, *collectives])
    return {"compute_ms": length_of(compute) / 1e3, "communication_ms": length_of(collectives) / 1e3,
            "exposed_ms": (length_of(both) - length_of(compute)) / 1e3, "traced_ms": (both[-1][1] - both[0][0]) / 1e3}


def kernels_of(trace: Json) -> dict[str, dict[str, float]]:
    """Stream and name of a step's kernels: how many, and their microseconds; the longest first."""
    times: dict[str, list[float]] = {}
    for event in _on_device(trace):
        times.setdefault(f"{_stream_of(event)} {event['name'][:160]}", []).append(round(event["dur"], 2))
    ordered = sorted(times.items(), key=lambda one: -sum(one[1]))
    return {name: {"count": len(all_of), "us": round(sum(all_of), 1)} for name, all_of in ordered}


def trace_step(step: Callable[[], None]) -> Json:
    """Kineto's trace of one step, GPU alone."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return read_json(path) or {}
