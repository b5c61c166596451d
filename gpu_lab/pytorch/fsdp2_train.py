"""Trains an export of mfsdp-exec with PyTorch FSDP2 on the tokens that mfsdp-exec trains on."""

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from gpu_lab.command_line import Flags, on_ranks
from gpu_lab.machine import GIB
from gpu_lab.pytorch.tokens import read_sample, read_tokens, shuffled_sample
from gpu_lab.pytorch.weights import load_model

VARIANTS = 4


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `pytorch fsdp2-train`."""
    parser.add_argument("--gpus", type=int, default=1, help="processes to start (1), one for each GPU")
    parser.add_argument("--init-from", required=True, metavar="DIR")
    parser.add_argument("--data", required=True, help="a text, or an llm.c file")
    parser.add_argument("--sequence", type=int, required=True, help="tokens")
    parser.add_argument("--global-batch", type=int, required=True, help="sequences of a step")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a GPU and forward")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--variant", type=int, default=0, choices=range(VARIANTS))
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--min-lr", type=float, help="default: a tenth of --lr")
    parser.add_argument("--warmup", type=int, help="steps; default: a tenth of --steps")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--adam-epsilon", type=float, default=1e-8)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)


def learning_rate_at(flags: Flags, step: int) -> float:
    """gpu_backend/train/learning_rate.hpp"""
    least = flags.lr / 10 if flags.min_lr is None else flags.min_lr
    warmup = flags.steps // 10 if flags.warmup is None else flags.warmup
    if step < warmup:
        return flags.lr * (step + 1) / warmup
    intervals = flags.steps - 1 - warmup
    if intervals <= 0:
        return flags.lr
    return least + (flags.lr - least) * (1 + math.cos(math.pi * (step - warmup) / intervals)) / 2


def micro_batch_of(flags: Flags, world: int) -> int:
    """Sequences that a rank computes at a time in this variant."""
    most = flags.global_batch // world
    wanted = {1: flags.micro_batch // 2, 3: flags.micro_batch * 2}.get(flags.variant, flags.micro_batch)
    wanted = min(max(wanted, 1), most)
    if most * world != flags.global_batch or most % wanted != 0:
        sys.exit(f"--global-batch {flags.global_batch}: expected a multiple of {world} ranks' micro-batches of {wanted}")
    return wanted


def attention_of(variant: int) -> tuple[str, Callable[[], Any]]:
    """The name of the attention for transformers, and a context that chooses its kernel."""
    if variant == 3:
        return "eager", contextlib.nullcontext
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kernel = SDPBackend.CUDNN_ATTENTION if variant == 2 else SDPBackend.FLASH_ATTENTION
    # MATH, plain GEMMs in fp32, where this PyTorch's kernel does not take such heads.
    return "sdpa", lambda: sdpa_kernel([kernel, SDPBackend.MATH])


def shard(model: Any) -> None:
    """FSDP2: bf16 computation, gradients reduced in fp32."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def samples_of(flags: Flags, stream: Any, step: int) -> tuple[Any, Any]:
    """Tokens and labels of the step's global batch, in the order of its samples' numbers."""
    import torch
    samples = (len(stream) - 1) // flags.sequence
    first = step * flags.global_batch
    rows = [read_sample(stream, flags.sequence, shuffled_sample(flags.seed, number, samples))
            for number in range(first, first + flags.global_batch)]
    if flags.variant == 2:
        rows.reverse()
    return torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])


def optimizer_of(flags: Flags, parameters: list[Any]) -> Any:
    """AdamW that decays matrices alone."""
    import torch
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": flags.weight_decay},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=flags.lr, betas=(flags.beta1, flags.beta2), eps=flags.adam_epsilon)


def train(flags: Flags) -> None:
    """One of the processes. Works on the CPU too, through gloo."""
    import torch
    import torch.distributed as dist
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = flags.variant != 2
    micro_batch = micro_batch_of(flags, world)
    attention, attention_kernel = attention_of(flags.variant)

    # fp32 holds the export's bf16 exactly.
    model = load_model(flags.init_from, torch.float32, attention).to(device).train()
    shard(model)
    parameters = list(model.parameters())
    optimizer = optimizer_of(flags, parameters)
    stream, tokens = read_tokens(flags.data), flags.global_batch * flags.sequence
    for step in range(flags.steps):
        ids, labels = (rows.to(device) for rows in samples_of(flags, stream, step))
        total = torch.zeros((), device=device)
        for begin in range(rank * micro_batch, flags.global_batch, world * micro_batch):
            mine = slice(begin, begin + micro_batch)
            with attention_kernel():
                logits = model(ids[mine], use_cache=False).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1).float(), labels[mine].flatten(), reduction="sum")
                # The mean is over all ranks' tokens; FSDP2 divides by the number of ranks.
                (loss * (world / tokens)).backward()
            total += loss.detach()
        dist.all_reduce(total)
        norm = torch.nn.utils.clip_grad_norm_(parameters, flags.clip or math.inf)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        rate = learning_rate_at(flags, step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(json.dumps({"event": "step", "step": step + 1, "loss": total.item() / tokens,
                              "grad_norm": norm.item(), "learning_rate": rate}), flush=True)
    if rank == 0:
        memory = torch.cuda.max_memory_allocated() if on_gpu else 0
        print(f"torch {torch.__version__}, {world} ranks, variant {flags.variant}, micro-batch "
              f"{micro_batch}, {memory / GIB:.1f} GiB allocated at most", file=sys.stderr)
    dist.destroy_process_group()


def fsdp2_train(flags: Flags) -> int:
    """Trains an export of mfsdp-exec with PyTorch FSDP2 on the same tokens: `pytorch fsdp2-train ... > LOSSES.jsonl`.

    The arithmetic is that of mfsdp-exec's defaults: fp32 main weights, bf16 computation, gradients reduced in fp32, AdamW in
    fp32 with decay of matrices alone, the norm clipped at 1, samples in the order of --seed. Flags mean what mfsdp-exec's
    mean. Variants compute the same numbers, summed in other orders:

      0  flash attention.
      1  flash attention, micro-batches half as large.
      2  cuDNN attention, the samples of a step assigned to ranks in reverse order, no GEMM reduced in bf16.
      3  attention as plain GEMMs in bf16, micro-batches twice as large.

    Rank 0 prints a JSON line a step: step, loss, grad_norm (before clipping), learning_rate.
    """
    return on_ranks(flags, train)
