#!/usr/bin/env python3
"""Trains an export of mfsdp-exec with PyTorch FSDP2 on the tokens that mfsdp-exec trains on.

    torchrun --nproc-per-node N train_fsdp2.py --init-from DIR --data FILE --sequence N
        --global-batch N --steps N [--variant N] [--micro-batch N] [--lr X ...] > LOSSES.jsonl

The arithmetic is that of mfsdp-exec's defaults: fp32 main weights, bf16 computation, gradients
reduced in fp32, AdamW in fp32 with decay of matrices alone, the norm clipped at 1, samples in the
order of --seed. Flags mean what mfsdp-exec's mean. Variants compute the same numbers, summed in other orders:

    0  flash attention
    1  flash attention, micro-batches half as large
    2  cuDNN attention, samples of a step dealt out backwards, products never reduced in bf16
    3  attention as plain products in bf16, micro-batches twice as large

Rank 0 prints a JSON line a step: step, loss, grad_norm (before clipping), learning_rate.
"""

import argparse
import contextlib
import json
import math
import os
import sys

import torch
import torch.distributed as dist

from hf_model import load_model
from run_files import read_sample, read_tokens, shuffled_sample

VARIANTS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--init-from", required=True)
    parser.add_argument("--data", required=True, help="a text, or an llm.c file")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--variant", type=int, default=0, choices=range(VARIANTS))
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--min-lr", type=float, default=None)
    parser.add_argument("--warmup", type=int, default=None)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--adam-epsilon", type=float, default=1e-8)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.min_lr is None:
        arguments.min_lr = arguments.lr / 10
    if arguments.warmup is None:
        arguments.warmup = arguments.steps // 10
    return arguments


def learning_rate_at(arguments, step):
    """gpu_backend/train/learning_rate.hpp"""
    if step < arguments.warmup:
        return arguments.lr * (step + 1) / arguments.warmup
    intervals = arguments.steps - 1 - arguments.warmup
    if intervals <= 0:
        return arguments.lr
    part = (step - arguments.warmup) / intervals
    return arguments.min_lr + (arguments.lr - arguments.min_lr) * (1 + math.cos(math.pi * part)) / 2


def micro_batch_of(arguments, world):
    """Sequences that a rank computes at a time in this variant."""
    most = arguments.global_batch // world
    wanted = arguments.micro_batch
    if arguments.variant == 1:
        wanted //= 2
    if arguments.variant == 3:
        wanted *= 2
    wanted = min(max(wanted, 1), most)
    if most * world != arguments.global_batch or most % wanted != 0:
        sys.exit(f"--global-batch {arguments.global_batch}: expected a multiple of {world} ranks' "
                 f"micro-batches of {wanted}")
    return wanted


def attention_of(variant):
    if variant == 3:
        return "eager", contextlib.nullcontext
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernel = SDPBackend.CUDNN_ATTENTION if variant == 2 else SDPBackend.FLASH_ATTENTION
    # Plain products in fp32 where this PyTorch's kernel does not take such heads.
    return "sdpa", lambda: sdpa_kernel([kernel, SDPBackend.MATH])


def shard(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def samples_of(arguments, stream, step):
    """Tokens and labels of the step's global batch, in the order of its samples' numbers."""
    samples = (len(stream) - 1) // arguments.sequence
    rows = []
    for place in range(arguments.global_batch):
        number = step * arguments.global_batch + place
        rows.append(read_sample(stream, arguments.sequence,
                                shuffled_sample(arguments.seed, number, samples)))
    if arguments.variant == 2:
        rows.reverse()
    return [torch.stack([torch.from_numpy(row[i]) for row in rows]) for i in range(2)]


def main():
    arguments = parse_arguments()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = arguments.variant != 2
    micro_batch = micro_batch_of(arguments, world)
    attention, attention_kernel = attention_of(arguments.variant)

    # fp32 holds the export's bf16 exactly.
    model = load_model(arguments.init_from, torch.float32, attention).to(device).train()
    shard(model)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": arguments.weight_decay},
         {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}],
        lr=arguments.lr, betas=(arguments.beta1, arguments.beta2), eps=arguments.adam_epsilon)
    stream = read_tokens(arguments.data)
    tokens = arguments.global_batch * arguments.sequence

    for step in range(arguments.steps):
        ids, labels = (rows.to(device) for rows in samples_of(arguments, stream, step))
        total = torch.zeros((), device=device)
        for begin in range(rank * micro_batch, arguments.global_batch, world * micro_batch):
            mine = slice(begin, begin + micro_batch)
            with attention_kernel():
                logits = model(ids[mine], use_cache=False).logits
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1).float(), labels[mine].flatten(), reduction="sum")
                # Of the mean over all ranks' tokens; FSDP2 divides by the number of ranks.
                (loss * (world / tokens)).backward()
            total += loss.detach()
        dist.all_reduce(total)
        norm = torch.nn.utils.clip_grad_norm_(parameters, arguments.clip or math.inf)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        rate = learning_rate_at(arguments, step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(json.dumps({"event": "step", "step": step + 1, "loss": total.item() / tokens,
                              "grad_norm": norm.item(), "learning_rate": rate}), flush=True)
    if rank == 0:
        memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        print(f"torch {torch.__version__}, {world} ranks, variant {arguments.variant}, micro-batch "
              f"{micro_batch}, {memory / 2**30:.1f} GiB allocated at most", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
