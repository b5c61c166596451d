#!/usr/bin/env python3
"""Predictions of other engines beside what they took: memory of many runs on one GPU.

    engines_check.py predict --sim mfsdp-sim [--gpu h100] [--host-launch-us X] RUNS.csv > PREDICTED.csv
    engines_check.py measure [--only WORD] PREDICTED.csv > MEASURED.csv     # on GPUs, several runs at a time
    engines_check.py compare MEASURED.csv
    engines_check.py host --sim mfsdp-sim FACTS.jsonl     # --host-launch-us, from what record_engines.py host wrote

RUNS.csv has columns engine, model (a folder of scenarios/models, or a file here), sequence, micro_batch,
microbatches, ranks, recompute (yes or no), wire (fp32 or bf16), limit (a part of what would be reserved; empty:
none), real (yes: as many GPUs as ranks, through NCCL, timed; no: rank 0 of so many, whose collectives move nothing)
and, where they are there, strategy, outer (copies of the weights in HSDP), clip (a norm; empty: none) and double_buffer (yes: of mfsdp1).
--only: "memory" runs that are not real, "one" real ones of one rank, "several" of more; "memory:ENGINE" of that engine
alone (mfsdp: of Megatron-FSDP).
"""

import argparse
import concurrent.futures
import csv
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "scenarios", "models")
GIB = 2**30
FIGURES = ("allocated", "reserved", "device", "step_ms", "exposed_ms", "host_bound_ms", "retries", "fits", "certain")
MEASURED = ("allocated", "reserved", "device", "step_ms", "compute_ms", "communication_ms", "exposed_ms", "traced_ms",
            "retries", "fits", "error")


def model_of(run):
    here = os.path.join(HERE, run["model"])
    return here if run["model"].endswith(".json") else os.path.join(MODELS, run["model"], "config.json")


def command_of(sim, gpu, run, model):
    """mfsdp-sim for a run."""
    command = [sim, "--no-save", "--output", "json", "--gpu", gpu, "--engine", run["engine"],
               "--model", model, "--seq-len", run["sequence"], "--clip", run.get("clip") or "0",
               "--micro-batch", run["micro_batch"], "--gpus", run["ranks"],
               "--global-batch", str(int(run["micro_batch"]) * int(run["microbatches"]) * int(run["ranks"])),
               "--recompute", "full" if run["recompute"] == "yes" else "none", "--reduce-dtype", run["wire"],
               "--strategy", run.get("strategy") or "optim_grads_params", "--outer-dp", run.get("outer") or "1"]
    if run["engine"].startswith("mfsdp"):
        command += ["--grad-dtype", run["wire"]]
    if run.get("double_buffer") == "yes":
        command += ["--allocator", "double_buffer"]
    return command


def predict_one(arguments, run, limit=None):
    command = command_of(arguments.sim, arguments.gpu, run, model_of(run))
    if arguments.host_launch_us:
        command += ["--host-launch-us", arguments.host_launch_us]
    if limit:
        command += ["--memory-limit", f"{limit}B"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    memory, time = result["memory"], result["time"]
    return {"allocated": memory["allocated_bytes"], "reserved": memory["reserved_bytes"],
            "device": memory["device_bytes"], "retries": memory["alloc_retries"], "fits": memory["fits"],
            "certain": memory["verdict_certain"], "step_ms": round(time["step_ns"] / 1e6, 2),
            "exposed_ms": round(time["exposed_communication_ns"] / 1e6, 2),
            "host_bound_ms": round(time.get("host_bound_ns", 0) / 1e6, 2)}


def predict(arguments):
    with open(arguments.runs) as file:
        runs = list(csv.DictReader(file))
    writer = csv.DictWriter(sys.stdout, list(runs[0]) + ["limit_bytes"] + ["predicted_" + f for f in FIGURES])
    writer.writeheader()
    for run in runs:
        figures = predict_one(arguments, run)
        run["limit_bytes"] = ""
        if run["limit"]:
            run["limit_bytes"] = int(float(run["limit"]) * figures["reserved"])
            figures = predict_one(arguments, run, run["limit_bytes"])
        writer.writerow({**run, **{"predicted_" + f: figures[f] for f in FIGURES}})


def measure_one(run, total, steps):
    engine = run["engine"]
    launcher = [sys.executable]
    if run["real"] == "yes" and run["ranks"] != "1":
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", run["ranks"]]
    command = [*launcher, os.path.join(HERE, "engines.py"), "--engine", engine.split("-")[0],
               "--model", model_of(run), "--sequence", run["sequence"],
               "--micro-batch", run["micro_batch"], "--microbatches", run["microbatches"],
               "--reduce", {"fp32": "float32", "bf16": "bfloat16"}[run["wire"]],
               "--strategy", run.get("strategy") or "optim_grads_params", "--outer", run.get("outer") or "1"]
    command += ["--clip", run["clip"]] if run.get("clip") else []
    command += ["--double-buffer"] if run.get("double_buffer") == "yes" else []
    command += ["--compile"] if engine.endswith("-compile") else []
    command += ["--fuse"] if engine in ("mfsdp1", "mfsdp2") else []
    command += ["--recompute"] if run["recompute"] == "yes" else []
    environment = dict(os.environ)
    if run["real"] == "yes":
        command += ["--steps", steps, "--exposed"]
        if run["ranks"] == "1":
            environment.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    else:
        command += ["--fake", "--ranks", run["ranks"], "--steps", "4"]
    if run["limit_bytes"]:
        command += ["--memory-part", repr(int(run["limit_bytes"]) / total)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    return {"error": done.stderr[-300:]}


def is_asked(run, only):
    """`only`: "KIND", "KIND:ENGINE" (or where its name begins), or empty."""
    kind, _, engine = only.partition(":")
    own = "memory" if run["real"] != "yes" else "one" if run["ranks"] == "1" else "several"
    named = run["engine"] == engine or (engine == "mfsdp" and run["engine"].startswith(engine))
    return kind in ("", own) and (not engine or named)


def measure(arguments):
    """Runs whose memory alone is asked for beside each other, as memory allows; then those that are timed, alone.
    A line is written as a run ends."""
    import torch
    total = torch.cuda.get_device_properties(0).total_memory
    with open(arguments.runs) as file:
        runs = [run for run in csv.DictReader(file) if is_asked(run, arguments.only)]
    columns = list(runs[0]) + list(MEASURED)
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writeheader()
    most = total - 6 * GIB
    lock, free = threading.Condition(), [most]

    def take(run):
        try:
            taken = measure_one(run, total, arguments.steps)
        except subprocess.TimeoutExpired:
            taken = {"error": "took too long"}
        row = {**run, **{name: taken.get(name, "") for name in columns[len(run):]}}
        row["fits"] = "" if "error" in taken else "out_of_memory" not in taken
        with lock:
            writer.writerow(row)
            sys.stdout.flush()

    def work(run):
        need = min(int(run["predicted_reserved"]) + 2 * GIB, most)
        with lock:
            lock.wait_for(lambda: free[0] >= need)
            free[0] -= need
        take(run)
        with lock:
            free[0] += need
            lock.notify_all()

    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(work, [run for run in runs if run["real"] != "yes"]))
    for run in runs:
        if run["real"] == "yes":
            take(run)


def compare(arguments):
    with open(arguments.runs) as file:
        runs = list(csv.DictReader(file))
    errors = {"allocated": [], "reserved": [], "device": [], "step_ms": []}
    for run in runs:
        cells = [run[c] for c in ("engine", "model", "sequence", "micro_batch", "microbatches", "ranks", "wire")]
        cells += [run[c] for c in ("strategy", "outer", "clip") if run.get(c)]
        cells.append("recompute" if run["recompute"] == "yes" else "")
        if run["error"]:
            print("|", " | ".join(cells), "| error", run["error"].strip().splitlines()[-1], "|")
            continue
        if run["limit"]:
            doubt = "" if run["predicted_certain"] == "True" else " within error"
            print("|", " | ".join(cells), f"| {run['limit']} | fits {run['fits']} | predicted {run['predicted_fits']}{doubt} |",
                  f"{run['retries']} retries, {run['predicted_retries']} predicted |")
            continue
        for figure, all_of in errors.items():
            if figure in ("device", "step_ms") and run["real"] != "yes":
                continue
            mine, theirs = float(run["predicted_" + figure]), float(run[figure])
            all_of.append(mine / theirs - 1)
            unit = GIB if figure != "step_ms" else 1
            cells.append(f"{theirs / unit:.2f} | {mine / unit:.2f} ({100 * all_of[-1]:+.2f} %)")
        print("|", " | ".join(cells), "|")
    for figure, all_of in errors.items():
        if all_of:
            mean = 100 * sum(map(abs, all_of)) / len(all_of)
            print(f"{figure}: {len(all_of)} runs, {mean:.2f} % on average, {100 * max(map(abs, all_of)):.2f} % at worst")


def issue_ns(sim, facts, layers):
    """What the host needs for a step of so many small blocks, as predicted."""
    engine = facts["engine"] + ("-compile" if facts["compile"] else "")
    engine += "-eager" if engine == "mfsdp2" and not facts["fuse"] else ""
    with open(os.path.join(HERE, "small_llama.json")) as file:
        shape = json.load(file)
    shape["num_hidden_layers"] = layers
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(shape, file)
        wire = {"float32": "fp32", "bfloat16": "bf16"}[facts["reduce"]]
        command = [sim, "--no-save", "--output", "json", "--engine", engine, "--model", path, "--seq-len", "128",
                   "--gpus", str(facts["ranks"]), "--clip", str(facts["clip"]), "--reduce-dtype", wire,
                   "--recompute", "full" if facts["recompute"] else "none", "--host-launch-us", "1"]
        command += ["--grad-dtype", wire] if engine.startswith("mfsdp") else []
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["time"]["host_issue_ns"]


def host(arguments):
    """Of runs that differ in their blocks alone, what one launch took: their difference over that which is predicted."""
    with open(arguments.runs) as file:
        runs = [facts for facts in map(json.loads, file) if "step_ms" in facts]
    same = lambda run: (run["engine"], run["compile"], run["fuse"], run["recompute"], run["clip"], run["ranks"])
    for few in runs:
        for many in runs:
            if same(few) != same(many) or few["layers"] >= many["layers"]:
                continue
            measured = (many["step_ms"] - few["step_ms"]) * 1e6
            counted = issue_ns(arguments.sim, many, many["layers"]) - issue_ns(arguments.sim, few, few["layers"])
            print(f"{few['name']}, {many['name']}: {measured / 1e3 / (many['layers'] - few['layers']):.0f} us a block, "
                  f"{1e-3 * counted / (many['layers'] - few['layers']):.1f} launches: {measured / counted:.2f} us a launch")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("predict", predict), ("measure", measure), ("compare", compare), ("host", host)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("runs")
    commands.choices["predict"].add_argument("--sim", required=True)
    commands.choices["predict"].add_argument("--gpu", default="h200")
    commands.choices["predict"].add_argument("--host-launch-us")
    commands.choices["host"].add_argument("--sim", required=True)
    commands.choices["measure"].add_argument("--only", default="")
    commands.choices["measure"].add_argument("--steps", default="14", help="of runs that are timed")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
