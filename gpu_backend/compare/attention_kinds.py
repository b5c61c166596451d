#!/usr/bin/env python3
"""Attention kinds of today's families in PyTorch on one GPU: times of forward and backward beside those of whole causal attention.

    attention_kinds.py [--quick] [--way flex] > kinds.csv

A row for each kind: heads of 64, 96, 128, 192/128 (latent) and 256, sliding windows, a soft cap of scores, documents. `way` is
PyTorch's backend: cudnn and flash (scaled_dot_product_attention) or flex (flex_attention, compiled). bf16, random normal
operands, batch 1; times are medians over calls of CUDA events, in ms; TFLOP/s count the pairs of query and key that a kind
has, 4 FLOP a pair and head column forward and 10 backward. A way that PyTorch refuses has its reason in the last column.
"""

import argparse
import csv
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

WARM, TIMED = 3, 10


def median_ms(call):
    for _ in range(WARM):
        call()
    times = []
    for _ in range(TIMED):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def pairs_of(sequence, window, documents):
    """Pairs of a query and a key that it sees, of one head."""
    lengths = [sequence // documents] * documents
    total = 0
    for length in lengths:
        whole = length * (length + 1) // 2
        hidden = max(0, length - window) if window else 0
        total += whole - hidden * (hidden + 1) // 2
    return total


def attend(way, cap, window, documents, sequence):
    """A function of q, k and v. Errors come from PyTorch."""
    if way != "flex":
        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[way]

        def call(q, k, v):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return call
    length = sequence // documents

    def visible(b, h, i, j):
        seen = i >= j
        if window:
            seen = seen & (i - j < window)
        if documents > 1:
            seen = seen & (i // length == j // length)
        return seen

    mask = create_block_mask(visible, None, None, sequence, sequence, device="cuda")
    capped = (lambda score, b, h, i, j: cap * torch.tanh(score / cap)) if cap else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=capped, block_mask=mask, enable_gqa=True)


def measure(row):
    heads, keys, d, dv, sequence = (row[name] for name in ("heads", "key_heads", "d", "dv", "sequence"))
    torch.manual_seed(1)
    torch._dynamo.reset()  # a compiled function of each kind; PyTorch gives up after eight
    made = lambda count, width: torch.randn(1, count, sequence, width, device="cuda", dtype=torch.bfloat16,
                                            requires_grad=True)
    q, k, v = made(heads, d), made(keys, d), made(keys, dv)
    call = attend(row["way"], row["cap"], row["window"], row["documents"], sequence)
    forward = median_ms(lambda: call(q, k, v))
    out = call(q, k, v)
    grad = torch.randn_like(out)
    backward = median_ms(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    pairs = pairs_of(sequence, row["window"], row["documents"]) * heads
    flops = 2 * pairs * (d + dv)
    return {"forward_ms": round(forward, 4), "backward_ms": round(backward, 4),
            "forward_tflops": round(flops / forward / 1e9, 1), "backward_tflops": round(2.5 * flops / backward / 1e9, 1)}


def rows(quick):
    sequences = (8192,) if quick else (2048, 4096, 8192)
    base = {"cap": 0, "window": 0, "documents": 1}
    for sequence in sequences:
        for d, dv, heads, keys in ((128, 128, 32, 8), (64, 64, 32, 8), (96, 96, 32, 32), (192, 128, 32, 32),
                                   (256, 256, 8, 4), (256, 256, 4, 1)):
            for way in ("cudnn", "flash", "flex"):
                yield {**base, "kind": "whole", "way": way, "heads": heads, "key_heads": keys, "d": d, "dv": dv,
                       "sequence": sequence}
        for window, d, heads, keys in ((512, 256, 4, 1), (1024, 128, 32, 8), (4096, 128, 32, 8), (4096, 256, 8, 4),
                                       (128, 64, 64, 8), (512, 128, 32, 8)):
            if window < sequence:
                yield {**base, "kind": "window", "way": "flex", "heads": heads, "key_heads": keys, "d": d, "dv": d,
                       "sequence": sequence, "window": window}
        yield {**base, "kind": "cap", "way": "flex", "heads": 8, "key_heads": 4, "d": 256, "dv": 256, "sequence": sequence,
               "cap": 50}
        yield {**base, "kind": "documents", "way": "flex", "heads": 32, "key_heads": 8, "d": 128, "dv": 128,
               "sequence": sequence, "documents": 8}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="sequence 8192 alone")
    parser.add_argument("--way", action="append", choices=["cudnn", "flash", "flex"], help="these alone")
    arguments = parser.parse_args()
    columns = ["kind", "way", "heads", "key_heads", "d", "dv", "sequence", "window", "cap", "documents", "forward_ms",
               "backward_ms", "forward_tflops", "backward_tflops", "refused"]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows(arguments.quick):
        if arguments.way and row["way"] not in arguments.way:
            continue
        try:
            figures = measure(row)
        except (RuntimeError, NotImplementedError) as error:
            figures = {"refused": str(error).splitlines()[0][:90]}
        writer.writerow({**row, **figures})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
