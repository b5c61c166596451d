#!/usr/bin/env python3
"""Timed runs of other engines beside their predictions, on a host whose speed is measured with them.

    engines_score.py predict --sim mfsdp-sim --gpu h200 RUNS.csv > PREDICTED.csv
    engines_score.py score --predicted PREDICTED.csv MEASURED.jsonl
    engines_score.py score --sim mfsdp-sim --gpu h200 MEASURED.jsonl      # with today's mfsdp-sim instead

RUNS.csv and MEASURED.jsonl are those of engines_many.py. What the host takes for a launch is a fact of the machine:
PREDICTED.csv has every run at several of them, and `score` takes what the eager runs of small blocks say: the
difference of those of 4 and of 16, each a mean, over the difference that is predicted. Between the launches of
PREDICTED.csv it interpolates. Runs of small blocks are no part of the means. Of a run of one rank every process
is a run: its step is their mean. A profiler slows the host: what is exposed of a traced step, and what it computes, is also held to a
prediction for the slower host under which the step is predicted to take as long as the traced one did.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

import engines_check

LAUNCHES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20)
FIGURES = ("step_ms", "compute_ms", "exposed_ms", "issue_ms", "host_bound_ms", "allocated", "reserved", "device")
SMALL = "small_llama.json"
GIB = 2**30


def model_with_layers(run, folder):
    """The run's model; of another number of layers in a file of the folder."""
    path = engines_check.model_of(run)
    if not run.get("layers"):
        return path
    with open(path) as file:
        shape = json.load(file)
    layers = int(run["layers"])
    shape["num_hidden_layers"] = layers
    if "layer_types" in shape:  # one for each layer
        shape["layer_types"] = shape["layer_types"][:layers]
    path = os.path.join(folder, "config.json")
    with open(path, "w") as file:
        json.dump(shape, file)
    return path


def predict_one(sim, gpu, run, launch_us):
    with tempfile.TemporaryDirectory() as folder:
        command = engines_check.command_of(sim, gpu, run, model_with_layers(run, folder))
        command += ["--host-launch-us", f"{launch_us:g}"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    memory, time = result["memory"], result["time"]
    ms = lambda key: round(time.get(key, 0) / 1e6, 2)
    return {"step_ms": ms("step_ns"), "compute_ms": ms("compute_ns"), "exposed_ms": ms("exposed_communication_ns"),
            "issue_ms": ms("host_issue_ns"), "host_bound_ms": ms("host_bound_ns"), "allocated": memory["allocated_bytes"],
            "reserved": memory["reserved_bytes"], "device": memory["device_bytes"]}


def predict(arguments):
    with open(arguments.runs) as file:
        runs = list(csv.DictReader(file))
    writer = csv.DictWriter(sys.stdout, ["number", *runs[0], "gpu", "launch_us", *FIGURES])
    writer.writeheader()
    for number, run in enumerate(runs):
        for launch in LAUNCHES:
            figures = predict_one(arguments.sim, arguments.gpu, run, launch)
            writer.writerow({"number": number, **run, "gpu": arguments.gpu, "launch_us": launch, **figures})


class Committed:
    """Predictions that were made before, by number of the run and launch."""

    def __init__(self, path):
        self.rows = {}
        with open(path) as file:
            for row in csv.DictReader(file):
                at = self.rows.setdefault(int(row["number"]), {})
                at[float(row["launch_us"])] = {figure: float(row[figure]) for figure in FIGURES}

    def of(self, run, launch):
        rows = self.rows[int(run["number"])]
        below = max((one for one in rows if one <= launch), default=min(rows))
        above = min((one for one in rows if one >= launch), default=max(rows))
        part = 0 if above == below else (launch - below) / (above - below)
        return {figure: rows[below][figure] + part * (rows[above][figure] - rows[below][figure]) for figure in FIGURES}


class Today:
    """Predictions of a simulator as it is."""

    def __init__(self, sim, gpu):
        self.sim, self.gpu = sim, gpu

    def of(self, run, launch):
        return predict_one(self.sim, self.gpu, run, launch)


def launch_of(measured, predictions):
    """Microseconds of a launch, from the eager runs of small blocks."""
    small = [row for row in measured if row["run"]["model"] == SMALL and row["run"]["engine"] == "fsdp2"]
    layers = sorted({int(row["run"]["layers"]) for row in small})
    few, many = [[row for row in small if int(row["run"]["layers"]) == one] for one in (layers[0], layers[-1])]
    mean = lambda rows: sum(row["facts"]["step_ms"] for row in rows) / len(rows)
    at = 10.0
    predicted = predictions.of(many[0]["run"], at)["issue_ms"] - predictions.of(few[0]["run"], at)["issue_ms"]
    return (mean(many) - mean(few)) / predicted * at


def under_profiler(run, traced, launch, predictions):
    """What is predicted at the launch (up to the slowest predicted) that makes the step as long as the traced one."""
    low, high = launch, float(LAUNCHES[-1])
    if predictions.of(run, low)["step_ms"] >= traced["traced_ms"]:
        return predictions.of(run, low)
    for _ in range(8):
        middle = (low + high) / 2
        if predictions.of(run, middle)["step_ms"] < traced["traced_ms"]:
            low = middle
        else:
            high = middle
    return predictions.of(run, high)


def read_measured(path):
    with open(path) as file:
        measured = [json.loads(line) for line in file]
    for row in measured:
        steps = row["facts"].get("steps_of_ranks_ms")
        if steps and row["run"]["ranks"] == "1":
            row["facts"]["step_ms"] = statistics.mean(steps)
    return measured


def score(arguments):
    measured = read_measured(arguments.runs)
    predictions = Committed(arguments.predicted) if arguments.predicted else Today(arguments.sim, arguments.gpu)
    launch = arguments.launch_us or launch_of(measured, predictions)
    print(f"a launch: {launch:.2f} us\n")
    print("| engine | run | ranks | step ms | predicted | compute ms | predicted | exposed ms | predicted | host ms | predicted "
          "| allocated | reserved |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    errors = {"step": [], "exposed": [], "exposed, of the traced step": [], "compute, of the traced step": [],
              "allocated": [], "reserved": []}
    for row in measured:
        run, facts = row["run"], row["facts"]
        if "out_of_memory" in facts:
            print(f"| {run['engine']} | {run['model']} | {run['ranks']} | out of memory |")
            continue
        guess = predictions.of(run, launch)
        off = {"step": guess["step_ms"] / facts["step_ms"] - 1}
        for figure in ("allocated", "reserved"):
            off[figure] = guess[figure] / facts[figure] - 1
        if "exposed_ms" in facts:
            off["exposed"] = (guess["exposed_ms"] - facts["exposed_ms"]) / facts["step_ms"]
            slower = under_profiler(run, facts, launch, predictions)
            off["exposed, of the traced step"] = (slower["exposed_ms"] - facts["exposed_ms"]) / facts["traced_ms"]
            off["compute, of the traced step"] = slower["compute_ms"] / facts["compute_ms"] - 1
        if run["model"] != SMALL:
            for figure, value in off.items():
                errors[figure].append(abs(value))
        issued = max(statistics.median_high([step[-1] for step in rank]) for rank in facts["issue_ms"])
        what = f"{run['model'].split('.json')[0]}{' of ' + run['layers'] if run.get('layers') else ''}, {run['sequence']}"
        what += f" x {run['micro_batch']}" if run["micro_batch"] != "1" else ""
        what += f", {run['microbatches']} microbatches" if run["microbatches"] != "1" else ""
        what += ", recomputed" if run["recompute"] == "yes" else ""
        what += ", bf16 wire" if run["wire"] == "bf16" else ""
        what += ", ZeRO-2" if run.get("strategy") == "optim_grads" else ""
        number = lambda name: f"{facts[name]:.1f}" if name in facts else "-"
        print(f"| {run['engine']} | {what} | {run['ranks']} | {facts['step_ms']:.1f} | {100 * off['step']:+.1f} % "
              f"| {number('compute_ms')} | {guess['compute_ms']:.1f} | {number('exposed_ms')} | {guess['exposed_ms']:.1f} "
              f"| {issued:.1f} | {guess['issue_ms']:.1f} | {100 * off['allocated']:+.2f} % | {100 * off['reserved']:+.2f} % |")
    print()
    for figure, values in errors.items():
        if values:
            print(f"{figure}: {len(values)} runs, {100 * sum(values) / len(values):.2f} % on average, "
                  f"{100 * max(values):.2f} % at worst")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("predict", predict), ("score", score)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("runs")
        command.add_argument("--sim", default="mfsdp-sim")
        command.add_argument("--gpu", default="h200")
    commands.choices["score"].add_argument("--predicted", help="made before, instead of --sim")
    commands.choices["score"].add_argument("--launch-us", type=float, help="instead of what the runs of small blocks say")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
