"""`engines ...`: FSDP2 and Megatron-FSDP, recorded, predicted, run and scored."""

import argparse
import functools
import pathlib
from typing import Any

from gpu_lab.command_line import Flags, add_bin, add_command, add_dry_run, add_group, launcher_of, on_ranks, tools_of
from gpu_lab.engines import fresh, host_parts, memory_runs, predictions, process_memory, recordings, scores, session, train
from gpu_lab.results import read_lines


def predict(flags: Flags) -> None:
    """Predicts every run of a list: `engines predict --gpu h100 RUNS.csv > PREDICTED.csv`.

    How long the host takes for a launch is a fact of the machine. --launches predicts each run at several such times, for
    timed runs (`engines session`, `engines score`); without it, for `engines run` and `engines check`, each run is
    predicted once, and once more under the limit that its row has. gpu_lab/runs.py lists the columns.
    """
    launcher, sim = launcher_of(flags), tools_of(flags).find("mfsdp-sim")
    if flags.launches:
        predictions.print_launches(launcher, sim, flags.gpu, flags.runs)
    else:
        predictions.print_memory(launcher, sim, flags.gpu, flags.runs, flags.host_launch_us)


def run(flags: Flags) -> None:
    """Measures a predicted list: `engines run PREDICTED.csv > MEASURED.csv`.

    Several runs whose memory alone is asked for run at the same time on one GPU; then those that are timed, one by one.
    --only: "memory" for runs that are not real, "one" for real ones of one rank, "several" for those of more;
    "memory:ENGINE" for that engine alone (mfsdp: Megatron-FSDP).
    """
    memory_runs.measure(launcher_of(flags), flags.runs, flags.only, flags.steps)


def check(flags: Flags) -> None:
    """Prints measured memory and steps beside their predictions: `engines check MEASURED.csv`."""
    memory_runs.check(flags.runs)


def host_launch(flags: Flags) -> None:
    """Prints the time of one launch on this host, for mfsdp-sim's --host-launch-us.

        python3 -m gpu_lab engines host-launch FOLDER/facts.jsonl

    FOLDER is that of `engines record host`. For runs that differ only in their number of blocks, the difference of their
    steps is divided by the difference of their predicted launches.
    """
    memory_runs.host_launch(launcher_of(flags), tools_of(flags).find("mfsdp-sim"), read_lines(flags.facts))


def record(flags: Flags) -> None:
    """Makes small recordings, from which other engines are described; each run takes some seconds.

        python3 -m gpu_lab engines record memory FOLDER      every allocation of four small blocks, several runs at a time
        python3 -m gpu_lab engines record host FOLDER        steps in which the GPU has next to nothing to do
        python3 -m gpu_lab engines record host FOLDER --ranks 2      the same through NCCL on N GPUs

    FOLDER gets NAME.pickle.gz (memory), NAME.trace.json.gz (host) and facts.jsonl, a line for each run. Megatron-FSDP: its
    folder megatron/core/distributed/fsdp/src on PYTHONPATH.
    """
    recorder = recordings.Recorder(launcher_of(flags), flags.folder)
    if flags.part == "memory":
        recorder.memory(flags.only, flags.jobs)
    else:
        recorder.host(flags.only, flags.ranks)


def run_session(flags: Flags) -> int:
    """Makes many timed runs in one set of processes: `engines session --gpus 2 --out FOLDER RUNS.csv`.

    The list's `ranks` is the number of GPUs, or 1: then every process is the only rank of a run of its own, at the same
    time. Rank 0 appends a line to FOLDER/measured.jsonl as a run ends: the run, when it began, what `engines train` prints,
    and the host's time of one operator. Runs in one process find cuBLAS's workspaces and the CUDA context there: reserved
    memory is not that of a first run (`engines warm`). --fresh: each run has new processes; a call again goes on with the
    runs that FOLDER does not have.
    """
    if flags.fresh and not flags.dry_run:
        return fresh.run_fresh(flags.runs, flags.out, flags.steps, flags.seconds)
    return on_ranks(flags, lambda _: session.run_session(flags.runs, flags.out, flags.first, flags.steps, flags.seconds))


def score(flags: Flags) -> None:
    """Scores timed runs: `engines score [--predicted PREDICTED.csv] MEASURED.jsonl`.

    MEASURED.jsonl is from `engines session`, PREDICTED.csv from `engines predict --launches`; without it mfsdp-sim predicts
    now. The time of a launch follows from the eager runs of small blocks, unless --launch-us gives it. A profiler slows the
    host: the traced step is held to a prediction for the slower host under which it is predicted to take as long.
    """
    known: predictions.Predictions
    if flags.predicted:
        known = predictions.Committed(flags.predicted)
    else:
        known = predictions.Today(launcher_of(flags), tools_of(flags).find("mfsdp-sim"), flags.gpu)
    scores.score(scores.read_timed(flags.measured), known, flags.launch_us)


def warm(flags: Flags) -> None:
    """Scores what runs reserved in a process that had run before: `engines warm --gpu h200 MEASURED.jsonl`.

    cuBLAS's workspaces are there already, in segments of their own; a new process makes them in its first forward and
    backward, in holes between activations. mfsdp-sim predicts new processes. This command takes its allocations
    (--memory-snapshot), puts the workspaces before all others, and replays them (--replay).
    """
    scores.score_warm(launcher_of(flags), tools_of(flags).find("mfsdp-sim"), flags.gpu, scores.read_timed(flags.measured))


def print_host_parts(flags: Flags) -> None:
    """Divides the host's time for a block into FSDP2's hooks, collectives and graphs, from a profiler's trace.

        python3 -m gpu_lab engines host-parts --block-us 5056 --launches 829 run_12.trace.json.gz

    The trace (CPU and GPU, `engines train --trace`) is of a step of small blocks that the host bounds. --block-us is what a
    block took without the profiler: the difference of runs of 16 and of 4 blocks, over twelve. --launches: mfsdp-sim's
    count for the block.
    """
    host_parts.print_parts(flags.trace, flags.block_us, flags.launches)


def print_process_memory(flags: Flags) -> int:
    """Prints what a PyTorch process takes of its GPU besides its allocator, part by part; some 15 seconds.

        [CUDA_MODULE_LOADING=EAGER] python3 -m gpu_lab engines process-memory --gpus 2

    Each rank prints a JSON line for each stage: total less free of cudaMemGetInfo, less what is reserved, and pages of
    2 MiB since the stage before. sim/engines/pytorch_process.cpp is to agree with them.
    """
    return on_ranks(flags, lambda _: process_memory.print_stages())


def _add_launched(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, default=2, help="processes to start (2), one for each GPU")
    add_dry_run(parser)


def add_to(commands: Any) -> None:
    """Adds the commands."""
    group = add_group(commands, "engines", "FSDP2 and other engines: record, predict, run, check and score")
    add = functools.partial(add_command, group)
    torch = "torch 2.11, for Megatron-FSDP its sources"

    parser = add("predict", predict, predict.__doc__, "mfsdp-sim; no GPU")
    parser.add_argument("runs", metavar="RUNS.csv")
    parser.add_argument("--launches", action="store_true", help="at several times of a launch")
    parser.add_argument("--host-launch-us", help="microseconds of a launch; default: mfsdp-sim's")
    parser = add("run", run, run.__doc__, f"{torch}; a GPU, or as many as real runs have ranks")
    parser.add_argument("runs", metavar="PREDICTED.csv")
    parser.add_argument("--only", default="", metavar="KIND[:ENGINE]")
    parser.add_argument("--steps", default="14", help="of runs that are timed")
    add_dry_run(parser)
    parser = add("check", check, check.__doc__, "no GPU")
    parser.add_argument("runs", metavar="MEASURED.csv")
    parser = add("record", record, record.__doc__, f"{torch}; a GPU")
    parser.add_argument("part", choices=["memory", "host"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="runs with this in their name")
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time")
    parser.add_argument("--ranks", type=int, help="GPUs, through NCCL")
    add_dry_run(parser)
    parser = add("host-launch", host_launch, host_launch.__doc__, "mfsdp-sim; no GPU")
    parser.add_argument("facts", type=pathlib.Path, metavar="FACTS.jsonl")
    add_bin(parser)
    parser = add("session", run_session, run_session.__doc__, f"{torch}; as many GPUs as the list's `ranks`")
    parser.add_argument("runs", metavar="RUNS.csv")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=140, help="after which no run begins")
    parser.add_argument("--steps", default="9")
    parser.add_argument("--first", type=int, default=0, help="number of the run to begin with")
    parser.add_argument("--fresh", action="store_true", help="new processes for each run")
    _add_launched(parser)
    parser = add("score", score, score.__doc__, "no GPU; mfsdp-sim without --predicted")
    parser.add_argument("measured", metavar="MEASURED.jsonl")
    parser.add_argument("--predicted", metavar="PREDICTED.csv", help="made before")
    parser.add_argument("--launch-us", type=float, help="microseconds of a launch")
    parser = add("warm", warm, warm.__doc__, "mfsdp-sim; no GPU")
    parser.add_argument("measured", metavar="MEASURED.jsonl")
    for name in ("predict", "score", "warm"):
        add_bin(group.choices[name])
        group.choices[name].add_argument("--gpu", default="h200")
    parser = add("host-parts", print_host_parts, print_host_parts.__doc__, "no GPU")
    parser.add_argument("--block-us", type=float, required=True)
    parser.add_argument("--launches", type=float, required=True)
    parser.add_argument("trace", metavar="TRACE.json.gz")
    parser = add("process-memory", print_process_memory, print_process_memory.__doc__, f"{torch}; --gpus GPUs")
    _add_launched(parser)
    parser = add("train", train.train, train.train.__doc__, f"{torch}; a GPU, or one for each rank under torchrun")
    train.add_flags(parser)
