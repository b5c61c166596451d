#!/usr/bin/env python3
"""Small recordings of other engines, from which they are described; each run takes some seconds.

    record_engines.py memory FOLDER     # every allocation of four small blocks: snapshots, several runs at a time
    record_engines.py host FOLDER       # what the host takes: steps in which the GPU has next to nothing to do, alone
    record_engines.py host FOLDER --ranks 2    # the same through NCCL on so many GPUs

Megatron-FSDP: its folder megatron/core/distributed/fsdp/src on PYTHONPATH. FOLDER gets NAME.pickle.gz (memory),
NAME.trace.json.gz (host) and facts.jsonl, a line for each run.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "small_llama.json")
LOCK = threading.Lock()

# Name, engine, flags of engines.py.
MEMORY = [
    ("fsdp2_zero2", "fsdp2", "--strategy optim_grads"),
    ("fsdp2_zero2_microbatches", "fsdp2", "--strategy optim_grads --microbatches 3"),
    ("fsdp2_zero2_recomputed", "fsdp2", "--strategy optim_grads --recompute"),
    ("fsdp2_hsdp", "fsdp2", "--outer 2"),
    ("fsdp2_hsdp_bf16", "fsdp2", "--outer 2 --reduce bfloat16"),
    ("fsdp2_hsdp_microbatches", "fsdp2", "--outer 2 --microbatches 3"),
    ("fsdp2_hsdp_zero2", "fsdp2", "--outer 2 --strategy optim_grads"),
    ("fsdp2_replicated", "fsdp2", "--outer 8"),
    ("fsdp2_clip", "fsdp2", "--clip 1.0"),
    ("fsdp2_compile_zero2", "fsdp2", "--compile --strategy optim_grads"),
    ("fsdp2_compile_hsdp", "fsdp2", "--compile --outer 2"),
    ("fsdp2_compile_clip", "fsdp2", "--compile --clip 1.0"),
    ("mfsdp2_zero2", "mfsdp2", "--fuse --strategy optim_grads --reduce bfloat16"),
    ("mfsdp2_zero1", "mfsdp2", "--fuse --strategy optim --reduce bfloat16"),
    ("mfsdp2_hsdp", "mfsdp2", "--fuse --outer 2 --reduce bfloat16"),
    ("mfsdp2_hsdp_microbatches", "mfsdp2", "--fuse --outer 2 --reduce bfloat16 --microbatches 3"),
    ("mfsdp2_clip", "mfsdp2", "--fuse --clip 1.0 --reduce bfloat16"),
    ("mfsdp1", "mfsdp1", "--fuse"),
    ("mfsdp1_zero2", "mfsdp1", "--fuse --strategy optim_grads"),
    ("mfsdp1_zero1", "mfsdp1", "--fuse --strategy optim"),
    ("mfsdp1_hsdp", "mfsdp1", "--fuse --outer 2"),
    ("mfsdp1_clip", "mfsdp1", "--fuse --clip 1.0"),
]
HOST = [
    ("fsdp2_4", "fsdp2", "--layers 4"),
    ("fsdp2_16", "fsdp2", "--layers 16"),
    ("fsdp2_16_recomputed", "fsdp2", "--layers 16 --recompute"),
    ("fsdp2_16_clip", "fsdp2", "--layers 16 --clip 1.0"),
    ("fsdp2_compile_4", "fsdp2", "--layers 4 --compile"),
    ("fsdp2_compile_16", "fsdp2", "--layers 16 --compile"),
    ("mfsdp2_eager_4", "mfsdp2", "--layers 4 --reduce bfloat16"),
    ("mfsdp2_eager_16", "mfsdp2", "--layers 16 --reduce bfloat16"),
    ("mfsdp2_4", "mfsdp2", "--layers 4 --fuse --reduce bfloat16"),
    ("mfsdp2_16", "mfsdp2", "--layers 16 --fuse --reduce bfloat16"),
    ("mfsdp1_4", "mfsdp1", "--layers 4 --fuse"),
    ("mfsdp1_16", "mfsdp1", "--layers 16 --fuse"),
]


def pack(path):
    if not os.path.exists(path):
        return
    with open(path, "rb") as plain, gzip.open(path + ".gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    os.remove(path)


def run(folder, name, engine, flags, launcher, environment):
    command = [*launcher, os.path.join(HERE, "engines.py"), "--engine", engine, "--model", MODEL, *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=170, env={**os.environ, **environment})
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        facts = json.loads(lines[-1]) if lines else {"error": done.stderr[-2000:]}
    except subprocess.TimeoutExpired:
        facts = {"error": "took too long"}
    with LOCK:
        with open(os.path.join(folder, "facts.jsonl"), "a") as file:
            file.write(json.dumps({"name": name, **facts}) + "\n")
        print(name, facts.get("error", "")[-300:] or f"{facts.get('step_ms')} ms, {facts.get('allocated')} allocated, "
              f"{facts.get('reserved')} reserved", flush=True)


def record_memory(arguments):
    def one(row):
        name, engine, flags = row
        path = os.path.join(arguments.folder, name + ".pickle")
        run(arguments.folder, name, engine,
            [*flags.split(), "--fake", "--ranks", "8", "--sequence", "3072", "--steps", "3", "--snapshot", path],
            [sys.executable], {"CONTEXT": "alloc"})
        pack(path)

    with concurrent.futures.ThreadPoolExecutor(max_workers=arguments.jobs) as pool:
        list(pool.map(one, [row for row in MEMORY if arguments.only in row[0]]))


def record_host(arguments):
    launcher, ranks = [sys.executable], ["--fake", "--ranks", "8"]
    if arguments.ranks:
        launcher, ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                           str(arguments.ranks)], []
    for name, engine, flags in [row for row in HOST if arguments.only in row[0]]:
        path = os.path.join(arguments.folder, name + ".trace.json")
        run(arguments.folder, name, engine,
            [*flags.split(), *ranks, "--sequence", "128", "--steps", "20", "--trace", path], launcher, {})
        pack(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["memory", "host"])
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="runs with this in their name")
    parser.add_argument("--jobs", type=int, default=8, help="at a time")
    parser.add_argument("--ranks", type=int, help="GPUs, through NCCL")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    (record_memory if arguments.part == "memory" else record_host)(arguments)


if __name__ == "__main__":
    main()
