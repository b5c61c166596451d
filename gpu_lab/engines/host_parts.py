"""How the host's time for a block divides into FSDP2's hooks, collectives and graphs, from a profiler's trace."""

import bisect
import gzip
import json
import statistics

from gpu_lab.results import Json

PARTS = ("FSDP::pre_forward (l", "FSDP::all_gather (l", "FSDP::all_gather_copy_out", "FSDP::post_forward (l",
         "FSDP::pre_backward", "RegisterPostBackwardFunctionBackward", "FSDP::post_backward_reshard",
         "FSDP::post_backward_reduce", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "fsdp::chunk_cat",
         "Torch-Compiled Region", "autograd::engine::evaluate_function: CompiledFunctionBackward", "FSDP::root_pre",
         "FSDP::root_post", "Optimizer.step")
HOST = ("user_annotation", "cpu_op", "cuda_runtime", "cuda_driver")


class Events:
    """Events of the host in a Kineto trace. Times in microseconds."""

    def __init__(self, path: str) -> None:
        with gzip.open(path) as file:
            trace = json.load(file)["traceEvents"]
        self.all = [one for one in trace if one.get("ph") == "X" and "dur" in one and one.get("cat") in HOST]
        self.begins = sorted(one["ts"] for one in self.all)

    def named(self, name: str) -> list[Json]:
        """Events whose name begins so, by time."""
        return sorted((one for one in self.all if one["name"].startswith(name)), key=lambda one: one["ts"])

    def between(self, begin: float, end: float) -> int:
        """How many events begin in this time."""
        return bisect.bisect_left(self.begins, end) - bisect.bisect_left(self.begins, begin)

    def gaps(self, marks: list[Json]) -> tuple[float, float]:
        """Median time and number of events from one mark to the next, the first left out."""
        pairs = list(zip(marks[1:], marks[2:]))
        times = [later["ts"] - one["ts"] for one, later in pairs]
        counts = [self.between(one["ts"], later["ts"]) for one, later in pairs]
        return statistics.median(times), statistics.median(counts)


def print_parts(path: str, block_us: float, launches: float) -> None:
    """Prints each part of a block's time without the profiler. `block_us`: a block's time without it.

    The profiler adds the same to every event that it writes; how much follows from the block's time with and without it.
    """
    events = Events(path)
    launch = block_us / launches
    forward, in_forward = events.gaps(events.named("FSDP::pre_forward (layers"))
    backward, in_backward = events.gaps(events.named("FSDP::pre_backward"))
    added = (forward + backward - block_us) / (in_forward + in_backward)
    print(f"a launch {launch:.2f} us; the profiler adds {added:.2f} us to each of {in_forward + in_backward:.0f} events of a block")
    print("part, microseconds without the profiler, launches")
    parts = [("forward", forward - added * in_forward), ("backward", backward - added * in_backward)]
    for name in PARTS:
        spans = events.named(name)
        if spans:
            net = [one["dur"] - added * events.between(one["ts"], one["ts"] + one["dur"]) for one in spans]
            parts.append((name, statistics.median(net)))
    for name, value in parts:
        print(f"{name:62} {value:7.0f} {value / launch:7.1f}")
