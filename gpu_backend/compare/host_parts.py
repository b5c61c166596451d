#!/usr/bin/env python3
"""How the host's time for a block parts into FSDP2's hooks, collectives and graphs: from a profiler's trace.

    host_parts.py --block-us 5056 --launches 829 run_12.trace.json.gz

The trace (CPU and GPU, engines.py --trace) is of a step of small blocks that the host bounds; --block-us is what a
block took without the profiler: the difference of runs of 16 and of 4, over twelve. The profiler adds to every event that it
writes; by how much follows from the block's time with and without it, and is taken off each part. --launches: that
mfsdp-sim counts for the block, by which a launch's time is known.
"""

import argparse
import bisect
import gzip
import json
import statistics

PARTS = ("FSDP::pre_forward (l", "FSDP::all_gather (l", "FSDP::all_gather_copy_out", "FSDP::post_forward (l",
         "FSDP::pre_backward", "RegisterPostBackwardFunctionBackward", "FSDP::post_backward_reshard",
         "FSDP::post_backward_reduce", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "fsdp::chunk_cat",
         "Torch-Compiled Region", "autograd::engine::evaluate_function: CompiledFunctionBackward", "FSDP::root_pre",
         "FSDP::root_post", "Optimizer.step")
HOST = ("user_annotation", "cpu_op", "cuda_runtime", "cuda_driver")


class Events:
    def __init__(self, path):
        with gzip.open(path) as file:
            trace = json.load(file)["traceEvents"]
        self.all = [one for one in trace if one.get("ph") == "X" and "dur" in one and one.get("cat") in HOST]
        self.begins = sorted(one["ts"] for one in self.all)

    def named(self, name):
        return sorted((one for one in self.all if one["name"].startswith(name)), key=lambda one: one["ts"])

    def between(self, begin, end):
        return bisect.bisect_left(self.begins, end) - bisect.bisect_left(self.begins, begin)

    def gaps(self, marks):
        """Median time and events from one of them to the next, without the first."""
        pairs = list(zip(marks[1:], marks[2:]))
        times = [later["ts"] - one["ts"] for one, later in pairs]
        counts = [self.between(one["ts"], later["ts"]) for one, later in pairs]
        return statistics.median(times), statistics.median(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block-us", type=float, required=True)
    parser.add_argument("--launches", type=float, required=True)
    parser.add_argument("trace")
    arguments = parser.parse_args()
    events = Events(arguments.trace)
    launch = arguments.block_us / arguments.launches
    forward, in_forward = events.gaps(events.named("FSDP::pre_forward (layers"))
    backward, in_backward = events.gaps(events.named("FSDP::pre_backward"))
    added = (forward + backward - arguments.block_us) / (in_forward + in_backward)
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


if __name__ == "__main__":
    main()
