"""Rows and ways of a campaign: what trains, and how. A row's model is the same in all ways."""

from dataclasses import dataclass

from gpu_lab.runs import Run

NARROW = "--reduce-dtype bf16 --grad-dtype bf16 --logits-chunk 8192"
BY_COPY = "--gather copy_engine --reduce copy_engine --placement attention --prefetch 2"
BY_SYMMETRIC = "--gather copy_engine --reduce symmetric --placement attention --prefetch 2"
COMPILED = "--engine fsdp2-compile-loss"


@dataclass(frozen=True)
class Row:
    """A model and its shape. Sequence in tokens, micro-batch in sequences of a GPU. `flags`: of both tools."""

    title: str
    sequence: int
    micro_batch: int = 1
    microbatches: int = 1
    model: str = "llama3_8b"
    flags: str = ""


ROWS = {
    "s8192": Row("8192 x 1", 8192),
    "s4096": Row("4096 x 1", 4096),
    "s2048": Row("2048 x 1", 2048),
    "b2": Row("8192 x 2", 8192, micro_batch=2),
    "m4": Row("4096 x 1, 4 microbatches", 4096, microbatches=4),
    "full": Row("8192 x 1, full recomputation", 8192, flags="--recompute full"),
    "l1b": Row("1B, 8192 x 2", 8192, micro_batch=2, model="llama3_1b"),
    "l3b": Row("3B, 4096 x 1", 4096, model="llama3_3b"),
    "l3b_m4": Row("3B, 4096 x 1, 4 microbatches", 4096, microbatches=4, model="llama3_3b"),
}


@dataclass(frozen=True)
class Way:
    """How a row trains. `flags`: of mfsdp-sim, and of mfsdp-exec where it is our engine."""

    wire: str  # what gradients are reduced in
    flags: str = ""
    found: bool = False  # mfsdp-sim --find fastest chooses, strategy and recomputation included
    several: bool = False  # needs two GPUs or more
    ours: bool = True
    keep_gathered: bool = False


WAYS = {
    "fp32": Way("fp32"),
    "bf16": Way("bf16", NARROW),
    "copy": Way("bf16", f"{NARROW} {BY_COPY}", several=True),
    "symmetric": Way("bf16", f"{NARROW} {BY_SYMMETRIC}", several=True),
    "found": Way("bf16", NARROW, found=True),
    "fp32_copy": Way("fp32", BY_COPY, several=True),
    "fp32_symmetric": Way("fp32", BY_SYMMETRIC, several=True),
    "fp32_found": Way("fp32", found=True),
    "fsdp2_fp32": Way("fp32", COMPILED, ours=False),
    "fsdp2_bf16": Way("bf16", f"{COMPILED} --reduce-dtype bf16", ours=False),
    "fsdp2_kept_fp32": Way("fp32", f"{COMPILED} --strategy optim_grads", ours=False, keep_gathered=True),
    "fsdp2_kept_bf16": Way("bf16", f"{COMPILED} --strategy optim_grads --reduce-dtype bf16", ours=False, keep_gathered=True),
}
# Ways for which a row's model has to fit.
FITTING = ("fsdp2_fp32", "fsdp2_bf16", "fp32", "bf16", "copy", "symmetric", "fp32_copy", "fp32_symmetric")


def run_of(row: str, way: str, gpus: int, model: str) -> Run:
    """A row in one way, of this model."""
    shape = ROWS[row]
    return Run(model, shape.sequence, shape.micro_batch, shape.microbatches, gpus,
               flags=tuple(f"{WAYS[way].flags} {shape.flags}".split()))
