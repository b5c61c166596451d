#!/usr/bin/env python3
"""Runs of mfsdp-exec that nothing was tuned by, beside what was predicted of them before.

    own_runs.py predict --sim mfsdp-sim --gpu h200 RUNS.csv > PREDICTED.csv      # needs no GPU
    own_runs.py run --exec mfsdp-exec --gpu h200 --out FOLDER [--limit S] [--share K/N] RUNS.csv
    own_runs.py score --predicted PREDICTED.csv FOLDER
    own_runs.py kinds --sim mfsdp-sim --gpu h200 --out FOLDER RUNS.csv           # needs no GPU

RUNS.csv has columns model (a folder of scenarios/models), layers, sequence, micro_batch, microbatches, ranks and flags,
of mfsdp-sim and mfsdp-exec alike; own_runs.csv is such a file. `run` takes 16 steps of each run that FOLDER has not, the
first four of which do not count, and begins none after --limit (500) seconds: call it again for the rest, of which those
that failed come last; one that takes three minutes is ended and has code 124. Each leaves a trace of the step whose
times it records. --share 1/2: every second run, for one of two pairs of GPUs. `score` prints a table; times are ms,
pools GiB, and what is exposed is a share of the measured step. `kinds` compares the traced step of each run with the
predicted trace, kind of kernel by kind, and prints those that are off by one percent of the step or more.

Exit code 0: done; 1: runs are missing, or errors larger than asked (a step 2.5 % on average and 6 % at worst, exposed
1.5 % of the step, pools equal); 2: a wrong flag.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from engines_score import model_with_layers
from many_judge import figures_of

STEPS, SKIP = 16, 4
FIGURES = ("step", "compute", "exposed", "pools")


def read_runs(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def name_of(number, run):
    return f"{number:02}_{run['model']}_{run['sequence']}"


def flags_of(run, folder):
    """The same for both tools; the model with that many layers is a file of the folder."""
    batch = int(run["ranks"]) * int(run["micro_batch"]) * int(run["microbatches"])
    return ["--model", model_with_layers(run, folder), "--seq-len", run["sequence"], "--micro-batch", run["micro_batch"],
            "--global-batch", str(batch), "--output", "json", *run["flags"].split()]


def predict_one(sim, gpu, run, *flags):
    node = run["ranks"] if run["ranks"] != "1" else "8"  # one GPU sends nothing
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([sim, *flags_of(run, pathlib.Path(folder)), "--gpu", gpu, "--gpus", run["ranks"],
                               "--gpus-per-node", node, "--no-save", *flags], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"{run['model']}, {run['sequence']}: {made.stderr.strip()}")
    return figures_of(json.loads(made.stdout))


def predict(arguments):
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("run", *FIGURES))
    for number, run in enumerate(read_runs(arguments.runs)):
        figures = predict_one(arguments.sim, arguments.gpu, run)
        rows.writerow((name_of(number, run), *(f"{figures[one]:.4f}" for one in FIGURES)))


def run_one(arguments, run, folder):
    command = [arguments.exec, *flags_of(run, folder), "--backend", "cuda", "--gpu", arguments.gpu, "--nproc",
               run["ranks"], "--data", "synthetic", "--steps", str(STEPS), "--gemm-search", "on", "--gemm-cache",
               str(folder.parent / "gemm"), "--deadline", "60", "--no-save", "--trace", str(folder / "trace.json")]
    command[command.index("json")] = "jsonl"
    with open(folder / "lines", "w") as lines, open(folder / "log", "w") as log:
        try:
            code = subprocess.run(command, stdout=lines, stderr=log, timeout=180, check=False).returncode
        except subprocess.TimeoutExpired:
            return 124
    if code == 0:
        os.rename(folder / "lines", folder / "done")
    return code


def share(text):
    """K/N, the K-th of N parts."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"expected K/N, for example 1/2, got {text!r}")
    return int(part), int(parts)


def run(arguments):
    begin, wrong = time.monotonic(), 0
    runs = [(pathlib.Path(arguments.out) / name_of(number, one), one)
            for number, one in enumerate(read_runs(arguments.runs))]
    part, parts = arguments.share
    runs = runs[part - 1::parts]
    for folder, one in sorted(runs, key=lambda entry: (entry[0] / "log").exists()):
        if (folder / "done").exists():
            continue
        if time.monotonic() - begin > arguments.limit:
            sys.exit("not done: call again for the rest")
        folder.mkdir(parents=True, exist_ok=True)
        code = run_one(arguments, one, folder)
        wrong |= code != 0
        print(f"{folder.name}: {'done' if code == 0 else f'exit code {code}: {folder}/log'}", flush=True)
    sys.exit(wrong)


def measured(path):
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    figures = figures_of(next(line for line in lines if line.get("schema", "").startswith("mfsdp.result")))
    steps = [line["step_ns"] / 1e6 for line in lines if line.get("event") == "step"]
    return {**figures, "step": statistics.median(steps[SKIP:])}


def score(arguments):
    predicted = read_runs(arguments.predicted)
    found = [(row, pathlib.Path(arguments.out) / row["run"] / "done") for row in predicted]
    print("| run | step | predicted | | compute | predicted | exposed | predicted | | pools | predicted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    steps, exposed, pools = [], [], []
    for row, path in found:
        if not path.exists():
            print(f"| {row['run']} | not run |")
            continue
        got, said = measured(path), {one: float(row[one]) for one in FIGURES}
        steps.append(said["step"] / got["step"] - 1)
        exposed.append((said["exposed"] - got["exposed"]) / got["step"])
        pools.append(abs(said["pools"] - got["pools"]) < 1e-3)
        print(f"| {row['run']} | {got['step']:.1f} | {said['step']:.1f} | {steps[-1]:+.1%} | {got['compute']:.1f} "
              f"| {said['compute']:.1f} | {got['exposed']:.1f} | {said['exposed']:.1f} | {exposed[-1]:+.1%} "
              f"| {got['pools']:.2f} | {said['pools']:.2f} |")
    if not steps:
        sys.exit("no run is done")
    mean = lambda values: sum(map(abs, values)) / len(values)
    worst = lambda values: max(map(abs, values))
    print(f"\n{len(steps)} of {len(found)} runs: step {mean(steps):.2%} on average, {worst(steps):.2%} at worst; exposed "
          f"{mean(exposed):.2%} and {worst(exposed):.2%} of the step; pools equal in {sum(pools)}")
    right = mean(steps) <= 0.025 and worst(steps) <= 0.06 and worst(exposed) <= 0.015 and all(pools)
    sys.exit(0 if right and len(steps) == len(found) else 1)


def kinds_of(path):
    """ms of each kind of kernel on rank 0, per step of the trace; GEMMs by the name of their weight."""
    times, steps = {}, set()
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("ph") != "X" or event["pid"] != 1 or "kind" not in event.get("args", {}):
            continue
        kind = event["args"]["kind"]
        if kind.startswith("gemm"):
            kind = re.sub(r"\.(\d+|chunk\d+)\b", "", event["name"])
        times[kind] = times.get(kind, 0) + event["dur"] / 1000
        steps.add(event["args"].get("step"))
    return {kind: time / len(steps) for kind, time in times.items()}


def kinds(arguments):
    print("| run | kind | measured | predicted |")
    print("|---|---|---:|---:|")
    for number, run in enumerate(read_runs(arguments.runs)):
        trace = pathlib.Path(arguments.out) / name_of(number, run) / "trace.json"
        if not trace.exists():
            continue
        got = kinds_of(trace)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            step = predict_one(arguments.sim, arguments.gpu, run, "--trace", str(path))["step"]
            said = kinds_of(path)
        off = {kind: said.get(kind, 0) - got.get(kind, 0) for kind in {*got, *said}}
        for kind in sorted(off, key=lambda one: -abs(off[one])):
            if abs(off[kind]) >= step / 100:
                print(f"| {name_of(number, run)} | {kind} | {got.get(kind, 0):.1f} | {said.get(kind, 0):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, does, needed in (("predict", predict, ("--sim",)), ("run", run, ("--exec", "--out")),
                               ("kinds", kinds, ("--sim", "--out"))):
        command = commands.add_parser(name)
        command.set_defaults(does=does)
        for flag in (*needed, "--gpu"):
            command.add_argument(flag, required=True)
        command.add_argument("runs")
    commands.choices["run"].add_argument("--limit", type=float, default=500)
    commands.choices["run"].add_argument("--share", type=share, default=(1, 1))
    command = commands.add_parser("score")
    command.set_defaults(does=score)
    command.add_argument("--predicted", required=True)
    command.add_argument("out")
    arguments = parser.parse_args()
    arguments.does(arguments)


if __name__ == "__main__":
    main()
