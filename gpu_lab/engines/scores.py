"""Timed runs of other engines beside their predictions, on a host whose speed the same runs show."""

import json
import pathlib
import pickle
import statistics
import tempfile
from dataclasses import dataclass
from typing import Any

from gpu_lab.engines.predictions import LAUNCHES, Predictions
from gpu_lab.launch import Launcher
from gpu_lab.machine import cut_model
from gpu_lab.pairing import error_of, summary
from gpu_lab.results import Json, read_lines
from gpu_lab.runs import Run, run_of

HEAD = ("| engine | run | ranks | step ms | predicted | compute ms | predicted | exposed ms | predicted | host ms | predicted "
        "| allocated | reserved |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

LAST_RANKS = ("deepspeed-zero1", "deepspeed-zero2")


@dataclass
class Timed:
    """A run of `engines session` and what it printed."""

    run: Run
    facts: Json


def read_timed(path: str) -> list[Timed]:
    """The runs of a measured.jsonl. Where a run has one rank, every process is such a run: its step is their mean.

    Memory is that of rank 0; of DeepSpeed's first two stages that of the last rank, for which they are predicted.
    """
    timed = [Timed(run_of(row["run"]), row["facts"]) for row in read_lines(pathlib.Path(path))]
    for one in timed:
        if one.run.engine in LAST_RANKS and "memory_of_ranks" in one.facts:
            one.facts["allocated"], one.facts["reserved"] = one.facts["memory_of_ranks"][-1]
        steps = one.facts.get("steps_of_ranks_ms")
        if steps and one.run.ranks == 1:
            one.facts["step_ms"] = statistics.mean(steps)
    return timed


def launch_of(timed: list[Timed], predictions: Predictions) -> float:
    """Microseconds of a launch, from the eager runs of small blocks.

    The difference of the runs with most and fewest layers, each a mean, over the difference that is predicted.
    """
    small = [one for one in timed if one.run.is_small and one.run.engine == "fsdp2"]
    layers = sorted({one.run.layers or 0 for one in small})
    if len(layers) < 2:
        raise RuntimeError("expected eager runs of small_llama.json with two numbers of layers, or --launch-us")
    few, many = ([one for one in small if one.run.layers == count] for count in (layers[0], layers[-1]))
    mean = lambda runs: statistics.fmean(one.facts["step_ms"] for one in runs)
    at = 10.0
    predicted = predictions.of(many[0].run, at)["issue_ms"] - predictions.of(few[0].run, at)["issue_ms"]
    return (mean(many) - mean(few)) / predicted * at


def under_profiler(one: Timed, launch: float, predictions: Predictions) -> dict[str, float]:
    """The prediction for the slower host under which the step is predicted to take as long as the traced one did."""
    low, high = launch, float(LAUNCHES[-1])
    if predictions.of(one.run, low)["step_ms"] >= one.facts["traced_ms"]:
        return predictions.of(one.run, low)
    for _ in range(8):
        middle = (low + high) / 2
        if predictions.of(one.run, middle)["step_ms"] < one.facts["traced_ms"]:
            low = middle
        else:
            high = middle
    return predictions.of(one.run, high)


def errors_of(one: Timed, guess: dict[str, float], launch: float, predictions: Predictions) -> dict[str, float]:
    """Errors of a prediction by figure. A profiler slows the host, so a traced step has a prediction of its own."""
    facts = one.facts
    off = {"step": error_of(guess["step_ms"], facts["step_ms"])}
    off.update((name, error_of(guess[name], facts[name])) for name in ("allocated", "reserved"))
    if "exposed_ms" in facts:
        slower = under_profiler(one, launch, predictions)
        off["exposed"] = (guess["exposed_ms"] - facts["exposed_ms"]) / facts["step_ms"]
        off["exposed, of the traced step"] = (slower["exposed_ms"] - facts["exposed_ms"]) / facts["traced_ms"]
        off["compute, of the traced step"] = error_of(slower["compute_ms"], facts["compute_ms"])
    return off


def score(timed: list[Timed], predictions: Predictions, launch_us: float | None) -> None:
    """Prints the table and the errors. Runs of small blocks do not count in the means."""
    launch = launch_us or launch_of(timed, predictions)
    print(f"a launch: {launch:.2f} us\n")
    print(HEAD)
    errors: dict[str, list[float]] = {}
    for one in timed:
        run, facts = one.run, one.facts
        if "out_of_memory" in facts:
            print(f"| {run.engine} | {run.model} | {run.ranks} | out of memory |")
            continue
        guess = predictions.of(run, launch)
        off = errors_of(one, guess, launch, predictions)
        if not run.is_small:
            for figure, value in off.items():
                errors.setdefault(figure, []).append(value)
        issued = max(statistics.median_high([step[-1] for step in rank]) for rank in facts["issue_ms"])
        number = lambda name: f"{facts[name]:.1f}" if name in facts else "-"
        print(f"| {run.engine} | {run.title} | {run.ranks} | {facts['step_ms']:.1f} | {100 * off['step']:+.1f} % "
              f"| {number('compute_ms')} | {guess['compute_ms']:.1f} | {number('exposed_ms')} | {guess['exposed_ms']:.1f} "
              f"| {issued:.1f} | {guess['issue_ms']:.1f} | {100 * off['allocated']:+.2f} % | {100 * off['reserved']:+.2f} % |")
    print()
    for figure in ("step", "exposed", "exposed, of the traced step", "compute, of the traced step", "allocated", "reserved"):
        if figure in errors:
            print(f"{figure}: {len(errors[figure])} runs, {summary(errors[figure])}")


# ---- runs in a process that has run before ------------------------------------------------------


def _is_workspace(event: Json) -> bool:
    return event["action"] == "alloc" and any("cublas_workspace" in frame["name"] for frame in event.get("frames", []))


def workspaces_first(events: list[Json]) -> list[Json]:
    """The same allocations with cuBLAS's workspaces before all others, at addresses of their own. No one frees them."""
    first, rest = [], []
    top = max(event["addr"] + event["size"] for event in events)
    for event in events:
        if _is_workspace(event):
            first.append({**event, "addr": top})
            top += event["size"]
        else:
            rest.append(event)
    return first + rest


def warm_reserved(launcher: Launcher, sim: str, gpu: str, run: Run) -> int:
    """Bytes that the run reserves in a process that has cuBLAS's workspaces already.

    mfsdp-sim predicts new processes. Its allocations are replayed with the workspaces before all others.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path, model = folder / "snapshot.pickle", cut_model(run.model, run.layers, folder)
        made = launcher.run(run.sim_command(sim, gpu, model, "--memory-snapshot", str(path)))
        if launcher.dry_run:
            return 0
        if made.code != 0:
            raise RuntimeError(made.last_line())
        snapshot: dict[str, Any] = pickle.loads(path.read_bytes())
        snapshot["device_traces"][0] = workspaces_first(snapshot["device_traces"][0])
        path.write_bytes(pickle.dumps(snapshot))
        replayed = launcher.run([sim, "--replay", path, "--output", "json"])
        if replayed.code != 0:
            raise RuntimeError(replayed.last_line())
        return json.loads(replayed.out)["replays"][0]["peak_reserved_bytes"]


def score_warm(launcher: Launcher, sim: str, gpu: str, timed: list[Timed]) -> None:
    """Prints what all runs but the first of a process reserved, beside the prediction for a warm process."""
    errors = []
    for one in timed:
        run = one.run
        if run.number == 0 or run.is_small:
            continue
        predicted = warm_reserved(launcher, sim, gpu, run)
        if launcher.dry_run:
            continue
        errors.append(error_of(predicted, one.facts["reserved"]))
        print(f"{run.engine} {run.model} {run.sequence} x {run.micro_batch}: {one.facts['reserved']} bytes, "
              f"{predicted} predicted ({100 * errors[-1]:+.3f} %)", flush=True)
    if errors:
        print(f"{len(errors)} runs, {summary(errors, 3)}")
