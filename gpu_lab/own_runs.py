"""Runs of mfsdp-exec that no price was fitted to, predicted before they are measured."""

import csv
import functools
import json
import pathlib
import re
import sys
import tempfile
from typing import Any

from gpu_lab.command_line import Flags, add_bin, add_command, add_group, launcher_of, tools_of
from gpu_lab.launch import Launcher
from gpu_lab.machine import cut_model
from gpu_lab.pairing import error_of, mean_of, summary, worst_of
from gpu_lab.results import Json, figures_of, measured_figures, read_lines
from gpu_lab.runs import Run, read_rows, read_runs

STEPS, SKIP = 16, 4
LONGEST = 180.0  # seconds of a run
FIGURES = ("step", "compute", "exposed", "pools")  # ms, ms, ms, GiB


def predict(flags: Flags) -> None:
    """Predicts every run of a list: `own predict --gpu h200 RUNS.csv > PREDICTED.csv`.

    RUNS.csv has columns model (a folder of scenarios/models), layers, sequence, micro_batch, microbatches, ranks and flags
    (of mfsdp-sim and mfsdp-exec alike), as gpu_lab/runs/own.csv.
    """
    launcher, sim = launcher_of(flags), tools_of(flags).find("mfsdp-sim")
    rows = csv.writer(sys.stdout, lineterminator="\n")
    if not flags.dry_run:
        rows.writerow(("run", *FIGURES))
    for run in read_runs(flags.runs):
        result = run.predict(launcher, sim, flags.gpu)
        if not flags.dry_run:
            figures = figures_of(result)
            rows.writerow((run.name, *(f"{getattr(figures, one):.4f}" for one in FIGURES)))


def run_one(run: Run, launcher: Launcher, tool: str, gpu: str) -> int:
    """Runs mfsdp-exec in the run's folder, which has `done` if it ends well. The exit code."""
    assert run.folder is not None
    if not launcher.dry_run:
        run.folder.mkdir(parents=True, exist_ok=True)
    model = cut_model(run.model, run.layers, run.folder) if not launcher.dry_run else run.folder / "config.json"
    command = run.exec_command(
        tool, model, "--gpu", gpu, "--data", "synthetic", "--steps", str(STEPS), "--gemm-search", "on",
        "--gemm-cache", str(run.folder.parent / "gemm"), "--deadline", "60", "--no-save",
        "--trace", str(run.folder / "trace.json"))
    done = launcher.run(command, seconds=LONGEST, environment=run.environment, out=run.folder / "lines", log=run.folder / "log")
    if done.code == 0 and not launcher.dry_run:
        run.result = measured_figures(read_lines((run.folder / "lines").rename(run.folder / "done")), SKIP)
    return done.code


def share(text: str) -> tuple[int, int]:
    """K/N, the K-th of N parts."""
    part, _, parts = text.partition("/")
    if not 1 <= int(part) <= int(parts or "0"):
        raise ValueError(text)
    return int(part), int(parts)


def placed_runs(path: str, out: pathlib.Path) -> list[Run]:
    """The runs of a list, each with its folder."""
    runs = read_runs(path)
    for run in runs:
        run.folder = out / run.name
    return runs


def run_all(flags: Flags) -> int:
    """Runs what a folder does not have yet of a list: `own run --gpu h200 --out FOLDER RUNS.csv`.

    Each run takes 16 steps, the first four of which do not count, and leaves a trace of the step whose times it records.
    No run is begun after --limit seconds: call again for the rest, of which those that failed come last. A run of three
    minutes is ended and has code 124. --share 1/2: every second run, for one of two pairs of GPUs.
    """
    launcher, tool = launcher_of(flags), tools_of(flags).find("mfsdp-exec")
    part, parts = flags.share
    good = True
    for run in sorted(placed_runs(flags.runs, flags.out.absolute())[part - 1::parts],
                      key=lambda run: run.folder is not None and (run.folder / "log").exists()):
        assert run.folder is not None
        if (run.folder / "done").exists():
            continue
        if launcher.spent() > flags.limit:
            print("not done: call again for the rest", file=sys.stderr)
            return 1
        code = run_one(run, launcher, tool, flags.gpu)
        good = good and code == 0
        if not flags.dry_run:
            how = f"{run.result.step:.1f} ms a step" if run.result else f"exit code {code}: {run.folder}/log"
            print(f"{run.name}: {how}", flush=True)
    return 0 if good else 1


def score(flags: Flags) -> int:
    """Prints measured runs beside their predictions: `own score --predicted PREDICTED.csv FOLDER`.

    Times are ms, pools GiB; the error of exposed communication is a share of the measured step. Exit code 0: all runs are
    done, steps are off by 2.5 % on average and 6 % at most, exposed communication by 1.5 % of the step, pools are equal.
    """
    rows = read_rows(flags.predicted)
    print("| run | step | predicted | | compute | predicted | exposed | predicted | | pools | predicted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    steps: list[float] = []
    exposed: list[float] = []
    equal_pools = 0
    for row in rows:
        got = measured_figures(read_lines(pathlib.Path(flags.out) / row["run"] / "done"), SKIP)
        if got is None:
            print(f"| {row['run']} | not run |")
            continue
        predicted = {one: float(row[one]) for one in FIGURES}
        measured: dict[str, float] = {one: getattr(got, one) for one in FIGURES}
        steps.append(error_of(predicted["step"], measured["step"]))
        exposed.append((predicted["exposed"] - measured["exposed"]) / measured["step"])
        equal_pools += abs(predicted["pools"] - measured["pools"]) < 1e-3
        pair = lambda name, digits=1: f"{measured[name]:.{digits}f} | {predicted[name]:.{digits}f}"
        print(f"| {row['run']} | {pair('step')} | {steps[-1]:+.1%} | {pair('compute')} | {pair('exposed')} "
              f"| {exposed[-1]:+.1%} | {pair('pools', 2)} |")
    if not steps:
        print("no run is done", file=sys.stderr)
        return 1
    print(f"\n{len(steps)} of {len(rows)} runs: step {summary(steps)}; exposed communication, of the step, "
          f"{summary(exposed)}; pools equal in {equal_pools}")
    right = mean_of(steps) <= 0.025 and worst_of(steps) <= 0.06 and worst_of(exposed) <= 0.015
    return 0 if right and equal_pools == len(steps) == len(rows) else 1


def kinds_of(trace: Json) -> dict[str, float]:
    """ms of each kind of kernel on rank 0 in one step; GEMMs by the name of their weight."""
    times: dict[str, float] = {}
    steps = set()
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event["pid"] != 1 or "kind" not in event.get("args", {}):
            continue
        kind = event["args"]["kind"]
        if kind.startswith("gemm"):
            kind = re.sub(r"\.(\d+|chunk\d+)\b", "", event["name"])
        times[kind] = times.get(kind, 0) + event["dur"] / 1000
        steps.add(event["args"].get("step"))
    return {kind: time / len(steps) for kind, time in times.items()}


def kinds(flags: Flags) -> None:
    """Prints kinds of kernels whose predicted time is off by one percent of the step or more.

        python3 -m gpu_lab own kinds --gpu h200 --out FOLDER RUNS.csv

    The traced step of each run in FOLDER is held to the predicted trace. Times are ms of a step.
    """
    launcher, sim = launcher_of(flags), tools_of(flags).find("mfsdp-sim")
    print("| run | kind | measured | predicted |")
    print("|---|---|---:|---:|")
    for run in placed_runs(flags.runs, flags.out):
        assert run.folder is not None
        trace = run.folder / "trace.json"
        if not trace.exists():
            continue
        got = kinds_of(json.loads(trace.read_text()))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            result = run.predict(launcher, sim, flags.gpu, "--trace", str(path))
            if flags.dry_run:
                continue
            predicted = kinds_of(json.loads(path.read_text()))
        off = {kind: abs(predicted.get(kind, 0) - got.get(kind, 0)) for kind in {*got, *predicted}}
        for kind in sorted(off, key=lambda one: (-off[one], one)):
            if off[kind] >= figures_of(result).step / 100:
                print(f"| {run.name} | {kind} | {got.get(kind, 0):.1f} | {predicted.get(kind, 0):.1f} |")


def add_to(commands: Any) -> None:
    """Adds `own predict`, `own run`, `own score` and `own kinds`."""
    group = add_group(commands, "own", "lists of runs of mfsdp-exec: predict, run, score")
    add = functools.partial(add_command, group)
    for parser in (add("predict", predict, predict.__doc__, "mfsdp-sim; no GPU"),
                   add("run", run_all, run_all.__doc__, "a CUDA build's mfsdp-exec; as many GPUs as the list's `ranks`"),
                   add("kinds", kinds, kinds.__doc__, "mfsdp-sim; no GPU")):
        add_bin(parser)
        parser.add_argument("--gpu", required=True, help="by which mfsdp-sim predicts: h100, h200, ...")
        parser.add_argument("runs", metavar="RUNS.csv")
    for name in ("run", "kinds"):
        group.choices[name].add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER")
    group.choices["run"].add_argument("--limit", type=float, default=500, metavar="SECONDS")
    group.choices["run"].add_argument("--share", type=share, default=(1, 1), metavar="K/N")
    parser = add("score", score, score.__doc__, "no GPU")
    parser.add_argument("--predicted", required=True, metavar="PREDICTED.csv")
    parser.add_argument("out", metavar="FOLDER")
