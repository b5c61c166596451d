#!/usr/bin/env python3
"""Products of small models as training makes them: without pause, and in bursts with the GPU idle between.

    torchrun --nproc-per-node 2 product_rates.py > rates.csv      # each rank has half of the shapes

Columns as scenarios/gpus/tables/h200_gemm_bf16.csv has them, where they are the same: ms is the second half of a
third of a second without pause. burst_ms: eight in a row after as long a pause, mean of ten such bursts.
Weights are as they are initialised, activations and gradients as norms leave them.
"""

import os
import sys
import time

import torch

SHAPES = [(rows, *one) for rows in (2048, 8192, 16384)
          for one in ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192))]
SHAPES += [(rows, *one) for rows in (2048, 4096, 8192)
           for one in ((5120, 3072), (3072, 3072), (16384, 3072), (3072, 8192))]
SHAPES += [(8192, *one) for one in ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072))]
SHAPES += [(4096, 128256, 2048), (4096, 128256, 3072), (8192, 151936, 1024)]
SECONDS = 1 / 3


def timed(call, times):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        call()
    end.record()
    return begin, end


def measure(call):
    call()
    torch.cuda.synchronize()
    probe = timed(call, 4)
    torch.cuda.synchronize()
    one = probe[0].elapsed_time(probe[1]) / 4
    half = max(int(SECONDS / 2 * 1e3 / one), 4)
    first, second = timed(call, half), timed(call, half)
    torch.cuda.synchronize()
    bursts = []
    for _ in range(10):
        time.sleep(8 * one / 1e3)
        bursts.append(timed(call, 8))
        torch.cuda.synchronize()
    mean = sum(begin.elapsed_time(end) for begin, end in bursts) / 80
    return second[0].elapsed_time(second[1]) / half, first[0].elapsed_time(first[1]) / half, mean


def main():
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.manual_seed(rank)
    made = lambda rows, columns, size: (size * torch.randn(rows, columns, device=device)).bfloat16()
    if rank == 0:
        print("kind,M,N,K,ms,first_half_ms,burst_ms,tflops", flush=True)
    for rows, outputs, inputs in SHAPES[rank::ranks]:
        weight, x, gradient = made(outputs, inputs, 0.02), made(rows, inputs, 1), made(rows, outputs, 1e-3)
        kinds = {"fwd": lambda: x @ weight.t(), "dgrad": lambda: gradient @ weight, "wgrad": lambda: gradient.t() @ x}
        for kind, call in kinds.items():
            ms, first, burst = measure(call)
            rate = 2e-9 * rows * outputs * inputs / ms
            sys.stdout.write(f"{kind},{rows},{outputs},{inputs},{ms:.4f},{first:.4f},{burst:.4f},{rate:.1f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
