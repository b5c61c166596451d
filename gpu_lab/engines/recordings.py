"""Small recordings of other engines, from which mfsdp-sim's descriptions of them are made."""

import concurrent.futures
import gzip
import json
import pathlib
import shutil
import threading

from gpu_lab.engines.memory_runs import train_once
from gpu_lab.launch import Launcher
from gpu_lab.machine import MODELS, SMALL_LLAMA

# Name of a recording and flags of `engines train`.
MEMORY = {
    "fsdp2_zero2": "--engine fsdp2 --strategy optim_grads",
    "fsdp2_zero2_microbatches": "--engine fsdp2 --strategy optim_grads --microbatches 3",
    "fsdp2_zero2_recomputed": "--engine fsdp2 --strategy optim_grads --recompute",
    "fsdp2_hsdp": "--engine fsdp2 --outer 2",
    "fsdp2_hsdp_bf16": "--engine fsdp2 --outer 2 --reduce bfloat16",
    "fsdp2_hsdp_microbatches": "--engine fsdp2 --outer 2 --microbatches 3",
    "fsdp2_hsdp_zero2": "--engine fsdp2 --outer 2 --strategy optim_grads",
    "fsdp2_replicated": "--engine fsdp2 --outer 8",
    "fsdp2_clip": "--engine fsdp2 --clip 1.0",
    "fsdp2_compile_zero2": "--engine fsdp2 --compile --strategy optim_grads",
    "fsdp2_compile_hsdp": "--engine fsdp2 --compile --outer 2",
    "fsdp2_compile_clip": "--engine fsdp2 --compile --clip 1.0",
    "mfsdp2_zero2": "--engine megatron-fsdp-v2 --fuse --strategy optim_grads --reduce bfloat16",
    "mfsdp2_zero1": "--engine megatron-fsdp-v2 --fuse --strategy optim --reduce bfloat16",
    "mfsdp2_hsdp": "--engine megatron-fsdp-v2 --fuse --outer 2 --reduce bfloat16",
    "mfsdp2_hsdp_microbatches": "--engine megatron-fsdp-v2 --fuse --outer 2 --reduce bfloat16 --microbatches 3",
    "mfsdp2_clip": "--engine megatron-fsdp-v2 --fuse --clip 1.0 --reduce bfloat16",
    "mfsdp1": "--engine megatron-fsdp-v1 --fuse",
    "mfsdp1_zero2": "--engine megatron-fsdp-v1 --fuse --strategy optim_grads",
    "mfsdp1_zero1": "--engine megatron-fsdp-v1 --fuse --strategy optim",
    "mfsdp1_hsdp": "--engine megatron-fsdp-v1 --fuse --outer 2",
    "mfsdp1_clip": "--engine megatron-fsdp-v1 --fuse --clip 1.0",
}
HOST = {
    "fsdp2_4": "--engine fsdp2 --layers 4",
    "fsdp2_16": "--engine fsdp2 --layers 16",
    "fsdp2_16_recomputed": "--engine fsdp2 --layers 16 --recompute",
    "fsdp2_16_clip": "--engine fsdp2 --layers 16 --clip 1.0",
    "fsdp2_compile_4": "--engine fsdp2 --layers 4 --compile",
    "fsdp2_compile_16": "--engine fsdp2 --layers 16 --compile",
    "mfsdp2_eager_4": "--engine megatron-fsdp-v2 --layers 4 --reduce bfloat16",
    "mfsdp2_eager_16": "--engine megatron-fsdp-v2 --layers 16 --reduce bfloat16",
    "mfsdp2_4": "--engine megatron-fsdp-v2 --layers 4 --fuse --reduce bfloat16",
    "mfsdp2_16": "--engine megatron-fsdp-v2 --layers 16 --fuse --reduce bfloat16",
    "mfsdp1_4": "--engine megatron-fsdp-v1 --layers 4 --fuse",
    "mfsdp1_16": "--engine megatron-fsdp-v1 --layers 16 --fuse",
}
FAKE = ["--fake", "--ranks", "8"]


def pack(path: pathlib.Path) -> None:
    """Compresses a file, where there is one."""
    if not path.exists():
        return
    with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()


class Recorder:
    """Writes recordings, and facts.jsonl with a line for each, to a folder."""

    def __init__(self, launcher: Launcher, folder: pathlib.Path) -> None:
        self.launcher, self.folder, self.lock = launcher, folder, threading.Lock()
        if not launcher.dry_run:
            folder.mkdir(parents=True, exist_ok=True)

    def record(self, name: str, flags: list[str], file: pathlib.Path, ranks: int, environment: dict[str, str]) -> None:
        """One run of `engines train`, which writes `file`."""
        words = ["engines", "train", "--model", str(MODELS / SMALL_LLAMA), *flags]
        facts = train_once(self.launcher, ranks, words, environment)
        if self.launcher.dry_run:
            return
        pack(file)
        with self.lock:
            with open(self.folder / "facts.jsonl", "a") as lines:
                lines.write(json.dumps({"name": name, **facts}) + "\n")
            print(name, facts.get("error", "")[-300:] or f"{facts.get('step_ms')} ms, {facts.get('allocated')} allocated, "
                  f"{facts.get('reserved')} reserved", flush=True)

    def memory(self, only: str, jobs: int) -> None:
        """Snapshots of every allocation of four small blocks, several runs at a time."""
        def one(name: str) -> None:
            file = self.folder / f"{name}.pickle"
            flags = [*MEMORY[name].split(), *FAKE, "--sequence", "3072", "--steps", "3", "--snapshot", str(file)]
            self.record(name, flags, file, 0, {"CONTEXT": "alloc"})

        with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
            list(pool.map(one, [name for name in MEMORY if only in name]))

    def host(self, only: str, ranks: int | None) -> None:
        """Traces of steps in which the GPU has next to nothing to do, one run at a time; with `ranks` through NCCL."""
        for name in [name for name in HOST if only in name]:
            file = self.folder / f"{name}.trace.json"
            flags = [*HOST[name].split(), *([] if ranks else FAKE), "--sequence", "128", "--steps", "20", "--trace", str(file)]
            self.record(name, flags, file, ranks or 0, {})
