#!/usr/bin/env python3
"""Many timed runs of other engines in few processes: what starts a run, not the run, is most of its time.

    torchrun --nproc-per-node 2 engines_many.py --out FOLDER --seconds 140 RUNS.csv

RUNS.csv as engines_check.py has it, with real = yes; `ranks` is the number of processes, or 1: then every process
is the only rank of a run of its own, at the same time. Rank 0 appends a line to FOLDER/measured.jsonl as a run ends.
Beside what engines.py says: the row of the run, when it began, the host's time of one operator.
Columns beside: layers (instead of the model's), steps, exposed (no: no step is traced for its collectives and kernels),
trace (yes: Kineto's trace of one more step, CPU and GPU, goes to FOLDER). --seconds: nothing is begun that late.
Runs in one process find cuBLAS's workspaces and the context there: reserved memory is not that of a first run.
"""

import argparse
import csv
import gc
import json
import os
import sys
import time

import engines_check
from record_engines import pack

BEGUN = time.time()
HERE = os.path.dirname(os.path.abspath(__file__))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--steps", default="9")
    parser.add_argument("--first", type=int, default=0, help="the number of the run to begin with")
    parser.add_argument("runs")
    return parser.parse_args()


def words_of(run, number, arguments):
    """The run as flags of engines.py."""
    words = ["--engine", run["engine"].split("-")[0], "--model", engines_check.model_of(run),
             "--sequence", run["sequence"], "--micro-batch", run["micro_batch"], "--microbatches", run["microbatches"],
             "--reduce", {"fp32": "float32", "bf16": "bfloat16"}[run["wire"]],
             "--strategy", run.get("strategy") or "optim_grads_params", "--steps", run.get("steps") or arguments.steps]
    words += ["--compile"] if run["engine"].endswith("-compile") else []
    words += ["--recompute"] if run["recompute"] == "yes" else []
    words += ["--layers", run["layers"]] if run.get("layers") else []
    words += ["--alone"] if run["ranks"] == "1" else []
    if run.get("exposed") != "no":
        words += ["--exposed", "--kernels", os.path.join(arguments.out, f"kernels_{number}.json")]
    if run.get("trace") == "yes":
        words += ["--trace", os.path.join(arguments.out, f"run_{number}.trace.json")]
    return words


def main():
    arguments = parse_arguments()
    with open(arguments.runs) as file:
        runs = list(csv.DictReader(file))
    sys.argv = ["engines.py", *words_of(runs[0], 0, arguments)]
    sys.path.insert(0, HERE)
    import engines
    import torch
    import torch.distributed as dist
    os.makedirs(arguments.out, exist_ok=True)
    device = engines.join()
    first = dist.get_rank() == 0
    for number, run in list(enumerate(runs))[arguments.first:]:
        spent = torch.tensor([time.time() - BEGUN], device=device)
        dist.broadcast(spent, 0)
        if spent.item() > arguments.seconds:
            break
        engines.ARGUMENTS = engines.parse_arguments(words_of(run, number, arguments))
        torch.cuda.reset_peak_memory_stats()
        begun = time.time() - BEGUN
        facts = engines.record_or_fail(device)
        if first:
            pack(os.path.join(arguments.out, f"run_{number}.trace.json"))
            row = {**run, "number": number, "begun_s": round(begun, 1), "took_s": round(time.time() - BEGUN - begun, 1)}
            with open(os.path.join(arguments.out, "measured.jsonl"), "a") as file:
                file.write(json.dumps({"run": row, "facts": facts}) + "\n")
            print(number, run["engine"], run["model"], run["sequence"], "x", run["micro_batch"], "on", run["ranks"], "ranks:",
                  facts.get("step_ms", facts.get("out_of_memory")), "ms, exposed", facts.get("exposed_ms"), "operator",
                  facts.get("operator_us"), f"us; {row['took_s']} s", flush=True)
        if "out_of_memory" in facts:
            break
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
