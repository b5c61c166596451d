"""Meshes of up to eight ranks on one GPU: each rank is a host of its own, and NCCL reaches it by the network.

Two ranks of one host may not share a GPU, two hosts may: NCCL distinguishes hosts by NCCL_HOSTID. Times mean nothing here,
numbers are held against those of one rank.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_lab.launch import run_threads
from gpu_lab.machine import cut_model, model_path, scenarios, visible_gpus
from gpu_lab.results import Bits, bits_of, read_lines
from gpu_lab.stages import Failed, NotDone

if TYPE_CHECKING:
    from gpu_lab.checks.device import Check

STEPS = 3
NEAR_STEPS = 50  # of ranks that share blocks or attention
NEAR = 0.05  # of their losses and one rank's
LIMIT = 420.0  # seconds after which no training is begun
LOSS_BOUND = 2e-6  # of the loss: ranks' sums of losses are added in another order


@dataclass(frozen=True)
class MeshTraining:
    """A training of several ranks. `alone`: flags of the same training on one rank. `blocks`: of the pipelines' model.

    `heads`, `layers`: of the model of ranks that share sequences or blocks. `near`: sums are rounded otherwise, as ranks
    share blocks, or attention of a sequence.
    """

    name: str
    ranks: int
    flags: tuple[str, ...]
    alone: tuple[str, ...]
    blocks: int | None = None
    heads: int | None = None
    layers: int = 4
    near: bool = False

    @property
    def same_loss(self) -> bool:
        """Whether losses are those of one rank bit by bit, as one rank of a pipeline adds all of them."""
        return self.blocks is not None

    @property
    def steps(self) -> int:
        """Steps of the training."""
        return NEAR_STEPS if self.near else STEPS

    def model_in(self, root: pathlib.Path, write: bool) -> list[str]:
        """The flag of a model that the training needs; it is written under `root`."""
        if self.blocks is not None:
            model, folder = scenarios() / "pipeline" / "model.json", root / f"blocks{self.blocks}"
            return ["--model", str(cut_model(str(model), self.blocks, folder) if write else folder / "config.json")]
        if self.heads is None:
            return []
        config = root / f"heads{self.heads}_layers{self.layers}" / "config.json"
        if write:
            shape = json.loads(model_path("llama_tiny").read_text())
            shape |= {"num_attention_heads": self.heads, "num_key_value_heads": self.heads,
                      "head_dim": shape["hidden_size"] // self.heads, "num_hidden_layers": self.layers}
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(json.dumps(shape, indent=2))
        return ["--model", str(config)]


def _training(name: str, ranks: int, common: str, mesh: str) -> MeshTraining:
    return MeshTraining(name, ranks, tuple(f"{common} {mesh}".split()), tuple(common.split()))


def _pipeline(name: str, stages: int, blocks: int, microbatches: int) -> MeshTraining:
    plan = ("--plan", str(scenarios() / "pipeline" / f"{name}.json"), "--data", "synthetic")
    alone = f"--strategy no_shard --global-batch {microbatches} --seq-len 8 --recompute none --data synthetic"
    return MeshTraining(name, stages, plan, tuple(alone.split()), blocks)


def _of_chunks(shared: int, ranks: int, exchange: str, tokens: int, more: str = "") -> MeshTraining:
    """Ranks that share sequences, each with two chunks. `tokens`: of a sequence. `more`: other flags of the mesh."""
    common = f"--seq-len {tokens} --global-batch 8 --data synthetic"
    name = f"cp {shared} by {exchange} on {ranks} ranks, {tokens} tokens {more}".strip()
    of = _training(name, ranks, common, f"--cp {shared} --cp-comm {exchange} {more}".strip())
    return dataclasses.replace(of, heads=8 if tokens == 64 else 4, near=True)


def mesh_trainings() -> list[MeshTraining]:
    """Every mesh of data ranks, meshes with experts, ranks that share sequences or blocks, stages, and the shipped pipelines."""
    trainings = [_pipeline("1f1b_2x4", 2, 2, 4), _pipeline("1f1b_4x8", 4, 4, 8), _pipeline("interleaved_2x2x4", 2, 4, 4),
                 _pipeline("zero_bubble_2x4", 2, 2, 4)]
    for ranks in range(2, 9):
        batch = 35 if ranks in (5, 7) else 24
        common = f"--model llama_tiny --exact-sums --seq-len 64 --global-batch {batch} --data synthetic"
        for outer in range(1, ranks + 1):
            if ranks % outer == 0:
                trainings.append(_training(f"{outer} x {ranks // outer}", ranks, common, f"--outer-dp {outer}"))
    common = "--model moe_nano --exact-sums --seq-len 32 --global-batch 8 --data synthetic"
    for ranks, mesh in ((2, "--ep 2"), (4, "--ep 4"), (4, "--outer-dp 2 --ep 2"), (8, "--ep 4"), (8, "--outer-dp 2 --ep 2")):
        trainings.append(_training(f"experts on {ranks} ranks, {mesh}", ranks, common, mesh))
    for ranks in (2, 4, 8):
        for shared in (2, 4, 8):
            if shared > ranks:
                continue
            for axis, flags in (("cp", "--exact-sums --logits-chunk 8"), ("tp", "")):
                common = f"--seq-len 64 --global-batch 8 --data synthetic {flags}".strip()
                of = _training(f"{axis} {shared} on {ranks} ranks", ranks, common, f"--{axis} {shared}")
                trainings.append(dataclasses.replace(of, heads=8, near=axis == "tp"))
            for exchange in ("all_gather", "p2p"):
                trainings.append(_of_chunks(shared, ranks, exchange, 64))
    # Chunks of whole tiles, which the warpgroup kernels of attention take.
    trainings += [_of_chunks(2, 2, exchange, 512) for exchange in ("all_gather", "p2p")]
    trainings += [_of_chunks(2, 4, exchange, 64, "--tp 2") for exchange in ("all_gather", "p2p")]
    common = "--model llama_tiny --exact-sums --seq-len 64 --global-batch 16 --data synthetic"
    for ranks, mesh in ((2, "--pp 2"), (2, "--pp 2 --schedule gpipe"), (4, "--pp 2"), (4, "--pp 4 --strategy optim"),
                        (4, "--pp 2 --strategy optim_grads"), (8, "--pp 2 --outer-dp 2"), (8, "--pp 4"),
                        (2, "--pp 2 --vpp 2 --schedule interleaved"), (4, "--pp 2 --schedule zb_h1 --strategy optim")):
        trainings.append(_training(f"stages on {ranks} ranks, {mesh}", ranks, common, mesh))
    common = "--seq-len 64 --global-batch 16 --data synthetic"
    for ranks, mesh in ((4, "--pp 2 --tp 2"), (4, "--pp 4 --vpp 2 --schedule interleaved"), (8, "--pp 2 --tp 2 --outer-dp 2")):
        of = _training(f"stages on {ranks} ranks, {mesh}", ranks, common, mesh)
        trainings.append(dataclasses.replace(of, heads=8, layers=8, near=True))
    return trainings


def train_as_hosts(check: Check, folder: pathlib.Path, ranks: int, steps: int, words: Sequence[str]) -> bool:
    """A training whose ranks are hosts of their own on the first GPU; false where this call has no time left for it.

    One that ended well is not run again.
    """
    code = folder / "code"
    if not check.launcher.dry_run:
        if code.exists() and not any(map(int, code.read_text().split())):
            return True
        if check.launcher.spent() > LIMIT:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    shared = {"MFSDP_SECRET": os.urandom(32).hex(), "CUDA_VISIBLE_DEVICES": (visible_gpus() or ["0"])[0]}
    command = check.exec("--backend", "cuda", "--nproc", 1, "--deadline", 60, "--steps", steps, "--output", "jsonl", *words)
    if ranks > 1:
        command += ["--nnodes", str(ranks), "--master", f"127.0.0.1:{random.randint(21000, 28999)}"]
    codes = [0] * ranks

    def host(rank: int) -> None:
        place = ["--node-rank", str(rank)] if ranks > 1 else []
        codes[rank] = check.launcher.run([*command, *place], seconds=120,
                                         environment={**shared, "NCCL_HOSTID": f"h{rank}"},
                                         out=folder / f"host{rank}.jsonl", log=folder / f"host{rank}.errors").code

    run_threads([functools.partial(host, rank) for rank in reversed(range(ranks))])
    if not check.launcher.dry_run:
        code.write_text(" ".join(map(str, codes)))
    return True


def figures_of_run(folder: pathlib.Path, ranks: int) -> Bits:
    """The losses and norms that one of the ranks printed. Raises Failed where none or several did, or where a rank failed."""
    if any(map(int, codes := (folder / "code").read_text().split())):
        raise Failed(f"exit codes {' '.join(codes)}: {folder}")
    printed = [bits for rank in range(ranks) if (bits := bits_of(read_lines(folder / f"host{rank}.jsonl")))]
    if len(printed) != 1:
        raise Failed(f"{len(printed)} of {ranks} ranks have printed steps, expected one: {folder}")
    return printed[0]


def fault_of_run(training: MeshTraining, found: Bits, expected: Bits) -> str:
    """Why these are not the figures of one rank; empty where they are."""
    if len(found) != training.steps or len(expected) != training.steps:
        return f"{len(found)} steps, {len(expected)} on one rank, expected {training.steps}"
    for step, ((loss, norm), (loss_alone, norm_alone)) in enumerate(zip(found, expected), 1):
        if norm != norm_alone and not training.near:
            return f"step {step}: norm {norm}, {norm_alone} on one rank"
        bound = NEAR if training.near else 0.0 if training.same_loss else LOSS_BOUND * abs(loss_alone)
        if not abs(loss - loss_alone) <= bound:
            return f"step {step}: loss {loss}, {loss_alone} on one rank"
    return ""


def judge(training: MeshTraining, folder: pathlib.Path, of_one: pathlib.Path) -> str:
    """Why a training that was run is wrong; empty where it is right."""
    try:
        return fault_of_run(training, figures_of_run(folder, training.ranks), figures_of_run(of_one, 1))
    except Failed as failed:
        return str(failed)


def one_gpu_meshes(check: Check) -> None:
    """meshes of up to eight ranks on one GPU, pipelines among them, against one rank"""
    check.needs_gpus(1)
    root, write = check.out / "meshes", not check.launcher.dry_run
    alone: dict[tuple[object, ...], pathlib.Path] = {}
    runs: list[tuple[pathlib.Path, int, int, Sequence[str]]] = []
    of_each: list[tuple[MeshTraining, pathlib.Path, pathlib.Path]] = []
    for training in mesh_trainings():
        key = (training.blocks, training.heads, training.layers, training.steps, *training.alone)
        model = training.model_in(root, write)
        if key not in alone:
            alone[key] = root / f"alone{len(alone)}"
            runs.append((alone[key], 1, training.steps, [*model, *training.alone]))
        folder = root / re.sub(r"\W+", "_", training.name).strip("_")
        of_ranks = [] if training.blocks is not None else model  # a plan has its model
        runs.append((folder, training.ranks, training.steps, [*of_ranks, *training.flags]))
        of_each.append((training, folder, alone[key]))
    with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
        all_run = all(list(pool.map(lambda run: train_as_hosts(check, *run), runs)))
    if not write:
        return
    if not all_run:
        raise NotDone
    faults = [(training, judge(training, folder, of_one)) for training, folder, of_one in of_each]
    for training, fault in faults:
        print(f"{training.name}: {fault or 'as one rank'}")
    if any(fault for _, fault in faults):
        raise Failed("meshes differ from one rank")
