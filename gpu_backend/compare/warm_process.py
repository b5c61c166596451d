#!/usr/bin/env python3
"""What a run reserves in a process that has run before, which is not what it reserves in a new one.

    warm_process.py --sim mfsdp-sim --gpu h200 MEASURED.jsonl      # of engines_many.py: all runs but the first

cuBLAS's workspaces are there already, in segments of their own, where a new process makes them in its first forward
and backward, in holes between activations. mfsdp-sim predicts new processes; this takes its allocations (--memory-snapshot),
puts the workspaces before all others, and has the allocator replay them (--replay).
"""

import argparse
import json
import os
import pickle
import subprocess
import tempfile

import engines_check
import engines_score


def is_workspace(event):
    return event["action"] == "alloc" and any("cublas_workspace" in frame["name"] for frame in event.get("frames", []))


def reserved(sim, gpu, run):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        command = engines_check.command_of(sim, gpu, run, engines_score.model_with_layers(run, folder))
        subprocess.run([*command, "--memory-snapshot", path], check=True, capture_output=True)
        with open(path, "rb") as file:
            snapshot = pickle.load(file)
        events = snapshot["device_traces"][0]
        workspaces = [event for event in events if is_workspace(event)]
        snapshot["device_traces"][0] = workspaces + [event for event in events if not is_workspace(event)]
        with open(path, "wb") as file:
            pickle.dump(snapshot, file)
        replayed = subprocess.run([sim, "--replay", path, "--output", "json"], check=True, capture_output=True, text=True)
        return json.loads(replayed.stdout)["replays"][0]["peak_reserved_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sim", default="mfsdp-sim")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("measured")
    arguments = parser.parse_args()
    errors = []
    for row in engines_score.read_measured(arguments.measured):
        run, facts = row["run"], row["facts"]
        if run["number"] == 0 or run["model"] == engines_score.SMALL:
            continue
        made = reserved(arguments.sim, arguments.gpu, run)
        errors.append(made / facts["reserved"] - 1)
        print(f"{run['engine']} {run['model']} {run['sequence']} x {run['micro_batch']}: {facts['reserved']} bytes, "
              f"{made} predicted ({100 * errors[-1]:+.3f} %)", flush=True)
    sizes = [abs(error) for error in errors]
    print(f"{len(sizes)} runs, {100 * sum(sizes) / len(sizes):.3f} % on average, {100 * max(sizes):.3f} % at worst")


if __name__ == "__main__":
    main()
