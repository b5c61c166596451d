"""mfsdp-exec beside transformers' own model, compiled, on the same GPU: one pair of runs for each row of a list."""

import argparse
import json
import math
import pathlib
import statistics
import sys

from gpu_lab.command_line import Flags, launcher_of, tools_of
from gpu_lab.launch import Launcher, own_command
from gpu_lab.machine import WrongFlag, cut_model, model_path
from gpu_lab.own_runs import SKIP, placed_runs, run_one
from gpu_lab.results import Json, measured_figures, read_lines
from gpu_lab.runs import Run

ATTENTION = ("sdpa", "flex_attention", "eager")
LONGEST = 240.0  # seconds of a run of PyTorch, most of which torch.compile may take
# Flags of mfsdp-exec that a row may have, each with what `pytorch fsdp2-speed` calls it.
FLAGS = {(): (), ("--recompute", "full"): ("--recompute",), ("--fp8", "current"): ("--fp8",)}
LEAST, MEDIAN = 1.10, 1.15  # ratios that a list has to reach


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `pytorch pairs`."""
    parser.add_argument("--gpu", required=True, help="by which mfsdp-sim predicts: h100, h200, ...")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=500, metavar="SECONDS", help="no pair is begun after them (500)")
    parser.add_argument("--attention", action="append", choices=ATTENTION,
                        help="of transformers; given several times, the fastest counts (sdpa, then eager where it refuses)")
    parser.add_argument("runs", metavar="RUNS.csv")


def pytorch_words(run: Run, model: pathlib.Path, attention: str) -> list[str]:
    """`pytorch fsdp2-speed` for a run, compiled."""
    words = ["pytorch", "fsdp2-speed", "--model", str(model), "--sequence", str(run.sequence), "--micro-batch",
             str(run.micro_batch), "--microbatches", str(run.microbatches), "--attention", attention, "--compile"]
    return [*words, *FLAGS[run.flags]]


def check_row(run: Run) -> None:
    """Both sides of a pair do the same: one rank, and no flag that only mfsdp-exec has."""
    place = f"list of runs: row {run.number + 1}"
    if run.ranks != 1:
        raise WrongFlag(f"{place}: ranks: expected 1, got {run.ranks}")
    if run.flags not in FLAGS:
        expected = " or ".join(" ".join(flags) or "none" for flags in FLAGS)
        raise WrongFlag(f"{place}: flags: expected {expected}, got {' '.join(run.flags)}")
    if min(run.sequence, run.micro_batch, run.microbatches, run.layers or 1) < 1:
        raise WrongFlag(f"{place}: expected sequence, micro_batch, microbatches and layers of at least 1")
    if not model_path(run.model).is_file():
        raise WrongFlag(f"{place}: model: there is no {model_path(run.model)}")


def facts_of(path: pathlib.Path) -> Json | None:
    """The facts that PyTorch printed; None if it did not end well."""
    try:
        facts: Json = json.loads(path.read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return facts if "step_ms" in facts else None


def run_pytorch(run: Run, launcher: Launcher, attention: str) -> None:
    """Runs transformers' model, if the folder does not have the run yet."""
    assert run.folder is not None
    out = run.folder / f"pytorch_{attention}"
    if facts_of(out) is None:
        model = cut_model(run.model, run.layers, run.folder) if not launcher.dry_run else run.folder / "config.json"
        launcher.run(own_command(*pytorch_words(run, model, attention)), seconds=LONGEST, out=out,
                     log=run.folder / f"pytorch_{attention}.log")


def fastest(run: Run) -> Json | None:
    """PyTorch's fastest run in a folder."""
    assert run.folder is not None
    found = [facts for one in ATTENTION if (facts := facts_of(run.folder / f"pytorch_{one}"))]
    return min(found, key=lambda facts: float(facts["step_ms"]), default=None)


def why_not(run: Run) -> str:
    """The last line of errors of PyTorch's first run."""
    assert run.folder is not None
    logs = [run.folder / f"pytorch_{one}.log" for one in ATTENTION]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines() if line.strip()]
    return lines[-1][:120] if lines else "not run"


def print_pairs(runs: list[Run]) -> int:
    """The table, and whether it is good."""
    print("| run | mfsdp, ms | PyTorch, ms | attention | ratio | memory, GiB | PyTorch, GiB |\n|---|---:|---:|---|---:|---:|---:|")
    ratios: list[float] = []
    for run in runs:
        assert run.folder is not None
        done = run.folder / "done"
        ours = measured_figures(read_lines(done), SKIP) if done.exists() else None
        theirs = fastest(run)
        if ours is None or theirs is None:
            print(f"| {run.name} | {f'{ours.step:.1f}' if ours else 'not run'} | {'not run' if theirs is None else theirs['step_ms']} "
                  f"| {why_not(run) if theirs is None else ''} | | | |")
            continue
        ratio = theirs["step_ms"] / ours.step
        finite = math.isfinite(theirs["last_loss"])
        if finite:
            ratios.append(ratio)
        print(f"| {run.name} | {ours.step:.1f} | {theirs['step_ms']:.1f} | {theirs['attention']} | {ratio:.2f} x"
              f"{'' if finite else ' (its loss is not finite)'} | {ours.pools:.1f} | {theirs['reserved_gib']:.1f} |")
    if not ratios:
        print("no pair is done", file=sys.stderr)
        return 1
    print(f"\n{len(ratios)} of {len(runs)} pairs: median {statistics.median(ratios):.2f} x, least {min(ratios):.2f} x")
    return 0 if len(ratios) == len(runs) and min(ratios) >= LEAST and statistics.median(ratios) >= MEDIAN else 1


def pairs(flags: Flags) -> int:
    """Holds mfsdp-exec to transformers' own model, compiled, pair by pair: `pytorch pairs --gpu h200 --out FOLDER RUNS.csv`.

    RUNS.csv is a list as gpu_lab/runs/pairs.csv, of one rank; `flags` may be --recompute full or --fp8 current. Each pair is one run of
    mfsdp-exec and one of PyTorch (`pytorch fsdp2-speed --compile`) right after it: same shape, same dtypes, fused AdamW, the
    norm clipped alike. A ratio is the time of PyTorch's step over ours. Runs that the folder has are not made again. Exit
    code 0: every ratio is at least 1.10, the median at least 1.15.
    """
    launcher, tool = launcher_of(flags), tools_of(flags).find("mfsdp-exec")
    runs = placed_runs(flags.runs, flags.out.absolute())
    if not runs:
        raise WrongFlag(f"{flags.runs}: expected rows of runs, got none")
    for run in runs:
        check_row(run)
    for run in runs:
        assert run.folder is not None
        if launcher.spent() > flags.limit:
            print("not done: call again for the rest", file=sys.stderr)
            break
        if not (run.folder / "done").exists():
            run_one(run, launcher, tool, flags.gpu)
        for attention in flags.attention or ["sdpa"]:
            run_pytorch(run, launcher, attention)
        if not flags.attention and not launcher.dry_run and fastest(run) is None:
            run_pytorch(run, launcher, "eager")
    return 0 if launcher.dry_run else print_pairs(runs)
