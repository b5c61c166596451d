"""A run: what trains, with which shape and flags, on how many GPUs, where its results go, and what came out.

Lists of runs are CSV files (gpu_lab/runs). Columns that a list leaves out have the defaults of Run:

    engine        fsdp2, fsdp1, ddp, deepspeed-zero1 to 3, megatron-fsdp-v1 or -v2 (or mfsdp1, mfsdp2), with -compile or -eager;
                  lists of our own runs have no such column
    model         a folder of scenarios/models, or a file of gpu_lab/models
    layers        instead of the model's
    sequence      tokens; micro_batch: sequences; microbatches: of a step; ranks: GPUs
    recompute     yes: every block's forward again in backward
    wire          fp32 or bf16: what gradients are reduced in
    strategy, outer (copies of the weights in HSDP), clip (a norm; empty: none), double_buffer (yes or no)
    limit         share of the memory that would be reserved which the run may have; empty: all
    real          yes: as many GPUs as ranks, through NCCL, timed; no: rank 0 alone, whose collectives move nothing
    steps, exposed (no: no step is traced for its collectives), trace (yes: a Kineto trace of one more step),
    snapshot (yes: every allocation of rank 0; `engines session --fresh`)
    flags         more flags of mfsdp-sim and mfsdp-exec alike; of other engines, of mfsdp-sim and `engines train`
"""

import csv
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_lab.launch import Launcher
from gpu_lab.machine import SMALL_LLAMA, WrongFlag, cut_model
from gpu_lab.results import Figures

OURS = "mfsdp"
FAMILIES = {"fsdp2": "fsdp2", "fsdp1": "fsdp1", "ddp": "ddp", "mfsdp1": "megatron-fsdp-v1", "mfsdp2": "megatron-fsdp-v2",
            "megatron-fsdp-v1": "megatron-fsdp-v1", "megatron-fsdp-v2": "megatron-fsdp-v2",
            "deepspeed-zero1": "deepspeed-zero1", "deepspeed-zero2": "deepspeed-zero2", "deepspeed-zero3": "deepspeed-zero3"}
MEGATRON = ("megatron-fsdp-v1", "megatron-fsdp-v2")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}  # PyTorch's names
WHOLE_SHARD = "optim_grads_params"


def family_of(engine: str) -> tuple[str, str]:
    """An engine's family and its variant: fsdp2-compile is fsdp2 and compile."""
    for name in sorted(FAMILIES, key=len, reverse=True):
        if engine == name or engine.startswith(name + "-"):
            return FAMILIES[name], engine[len(name) + 1:]
    raise WrongFlag(f"engine: expected one of {', '.join(FAMILIES)}, got {engine!r}")


@dataclass
class Run:
    """One training run. Sequences are in tokens, batches in sequences of one GPU."""

    model: str
    sequence: int
    micro_batch: int = 1
    microbatches: int = 1
    ranks: int = 1
    engine: str = OURS
    layers: int | None = None
    recompute: bool = False
    wire: str = "fp32"
    strategy: str = WHOLE_SHARD
    outer: int = 1
    clip: float | None = None
    double_buffer: bool = False
    limit: float | None = None
    real: bool = True
    steps: int | None = None
    exposed: bool = True
    trace: bool = False
    snapshot: bool = False
    flags: tuple[str, ...] = ()
    number: int = 0  # place in its list
    row: Mapping[str, str] = field(default_factory=dict)  # as the list has it, for copies of the list
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: pathlib.Path | None = None  # where results go
    result: Figures | None = None

    @property
    def name(self) -> str:
        """A folder's name, unique in a list."""
        return f"{self.number:02}_{self.model}_{self.sequence}"

    @property
    def title(self) -> str:
        """The run in a table, besides its engine and GPUs."""
        words = [f"{self.model.split('.json')[0]}{f' of {self.layers}' if self.layers else ''}, {self.sequence}"]
        words[0] += f" x {self.micro_batch}" if self.micro_batch != 1 else ""
        words += [f"{self.microbatches} microbatches"] if self.microbatches != 1 else []
        words += ["recomputed"] if self.recompute else []
        words += ["bf16 wire"] if self.wire == "bf16" else []
        words += ["ZeRO-2"] if self.strategy == "optim_grads" else []
        words += [" ".join(self.flags)] if self.flags else []
        return ", ".join(words)

    @property
    def global_batch(self) -> int:
        """Sequences of a step on all GPUs."""
        return self.ranks * self.micro_batch * self.microbatches

    @property
    def is_small(self) -> bool:
        """Whether the host bounds it: small blocks by which a launch's time is measured."""
        return self.model == SMALL_LLAMA

    def shape_flags(self, model: pathlib.Path) -> list[str]:
        """Flags that mfsdp-sim and mfsdp-exec share, flags of the list included."""
        return ["--model", str(model), "--seq-len", str(self.sequence), "--micro-batch", str(self.micro_batch),
                "--global-batch", str(self.global_batch), *self.flags]

    def sim_command(self, sim: str, gpu: str, model: pathlib.Path, *more: str) -> list[str]:
        """mfsdp-sim for this run."""
        command = [sim, "--no-save", "--output", "json", "--gpu", gpu, "--gpus", str(self.ranks), *self.shape_flags(model)]
        if self.engine == OURS:
            # One GPU sends nothing, and a node of one GPU has no bandwidth by which it could be priced.
            return [*command, "--gpus-per-node", str(self.ranks if self.ranks >= 2 else 8), *more]
        family, _ = family_of(self.engine)
        command += ["--engine", self.engine, "--clip", str(self.clip or 0),
                    "--recompute", "full" if self.recompute else "none", "--reduce-dtype", self.wire,
                    "--strategy", self.strategy, "--outer-dp", str(self.outer)]
        command += ["--grad-dtype", self.wire] if family in MEGATRON else []
        command += ["--allocator", "double_buffer"] if self.double_buffer else []
        return [*command, *more]

    def exec_command(self, tool: str, model: pathlib.Path, *more: str) -> list[str]:
        """mfsdp-exec on GPUs for this run."""
        return [tool, *self.shape_flags(model), "--backend", "cuda", "--nproc", str(self.ranks), "--output", "jsonl", *more]

    def train_words(self, model: pathlib.Path, *more: str) -> list[str]:
        """`engines train` of this package for a run of another engine."""
        family, variant = family_of(self.engine)
        words = ["engines", "train", "--engine", family, "--model", str(model), "--sequence", str(self.sequence),
                 "--micro-batch", str(self.micro_batch), "--microbatches", str(self.microbatches),
                 "--reduce", DTYPES[self.wire], "--strategy", self.strategy, "--outer", str(self.outer)]
        words += ["--clip", str(self.clip)] if self.clip else []
        words += ["--double-buffer"] if self.double_buffer else []
        words += ["--compile"] if variant.startswith("compile") else []
        words += ["--fuse"] if family in MEGATRON and not variant else []
        words += ["--compile-loss"] if variant == "compile-loss" else []
        words += ["--recompute"] if self.recompute else []
        words += ["--layers", str(self.layers)] if self.layers else []
        return [*words, *self.flags, *more]

    def predict(self, launcher: Launcher, sim: str, gpu: str, *more: str) -> dict[str, Any]:
        """The output of mfsdp-sim for this run. Raises RuntimeError if it refuses the run."""
        with tempfile.TemporaryDirectory() as folder:
            model = cut_model(self.model, self.layers, pathlib.Path(folder))
            done = launcher.run(self.sim_command(sim, gpu, model, *more))
        if done.code != 0:
            raise RuntimeError(f"{self.model}, {self.sequence}: {done.last_line()}")
        return {} if launcher.dry_run else json.loads(done.out)


def _is_yes(text: str) -> bool:
    return text == "yes"


_COLUMNS: dict[str, Callable[[str], Any]] = {"model": str, "sequence": int, "micro_batch": int, "microbatches": int, "ranks": int, "engine": str,
            "layers": int, "recompute": _is_yes, "wire": str, "strategy": str, "outer": int, "clip": float,
            "double_buffer": _is_yes, "limit": float, "real": _is_yes, "steps": int, "trace": _is_yes, "snapshot": _is_yes,
            "flags": lambda text: tuple(text.split()), "exposed": lambda text: text != "no", "number": int}


def run_of(row: Mapping[str, Any], number: int = 0) -> Run:
    """The run of a list's row. Empty cells have the defaults of Run; other columns are kept in `row` alone."""
    if missing := [name for name in ("model", "sequence") if not row.get(name)]:
        raise WrongFlag(f"list of runs: expected a column {missing[0]} with a value in row {number + 1}")
    try:
        values: dict[str, Any] = {name: read(str(row[name])) for name, read in _COLUMNS.items() if row.get(name) not in (None, "")}
    except ValueError as error:
        raise WrongFlag(f"list of runs: row {number + 1}: {error}") from error
    values.setdefault("number", number)
    return Run(row=dict(row), **values)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    try:
        with open(path, newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise WrongFlag(f"{path}: {error.strerror}") from error


def read_runs(path: str | os.PathLike[str]) -> list[Run]:
    """The runs of a list."""
    return [run_of(row, number) for number, row in enumerate(read_rows(path))]


def choose(names: str, known: Sequence[str], flag: str, what: str) -> list[str]:
    """Comma-separated names of a flag, each once: one or more, all of them known."""
    chosen = list(dict.fromkeys(name for name in names.split(",") if name))
    if not chosen:
        raise WrongFlag(f"{flag}: expected a {what} or more of {','.join(known)}")
    if unknown := [name for name in chosen if name not in known]:
        raise WrongFlag(f"{flag}: there is no {what} {unknown[0]}: expected some of {','.join(known)}")
    return chosen
