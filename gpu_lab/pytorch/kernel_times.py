"""Times of PyTorch's GEMMs and attention: floors for kernels of mfsdp-exec."""

import csv
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpu_lab.command_line import Flags, on_ranks
from gpu_lab.pytorch.timing import median_ms, timed

# ---- GEMMs --------------------------------------------------------------------------------------

# M, N and K of forward, as small models have them.
SHAPES = [(rows, *one) for rows in (2048, 8192, 16384)
          for one in ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192))]
SHAPES += [(rows, *one) for rows in (2048, 4096, 8192)
           for one in ((5120, 3072), (3072, 3072), (16384, 3072), (3072, 8192))]
SHAPES += [(8192, *one) for one in ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072))]
SHAPES += [(4096, 128256, 2048), (4096, 128256, 3072), (8192, 151936, 1024)]
SECONDS = 1 / 3  # without pause


def gemm_times(call: Callable[[], Any], bursts_of: int) -> tuple[float, float, float]:
    """ms of the second and of the first half of a third of a second without pause, and of calls in bursts (0: none)."""
    import torch
    call()
    torch.cuda.synchronize()
    probe = timed(call, 4)
    torch.cuda.synchronize()
    one = probe[0].elapsed_time(probe[1]) / 4
    half = max(int(SECONDS / 2 * 1e3 / one), 4)
    first, second = timed(call, half), timed(call, half)
    torch.cuda.synchronize()
    bursts = []
    for _ in range(10 if bursts_of else 0):
        time.sleep(bursts_of * one / 1e3)
        bursts.append(timed(call, bursts_of))
        torch.cuda.synchronize()
    mean = sum(begin.elapsed_time(end) for begin, end in bursts) / (10 * bursts_of) if bursts else 0.0
    return second[0].elapsed_time(second[1]) / half, first[0].elapsed_time(first[1]) / half, mean


GRAPHED = 8  # calls


def graphed(call: Callable[[], Any]) -> Callable[[], Any]:
    """GRAPHED calls as one CUDA graph, as the host is slower than a small GEMM."""
    import torch
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPHED):
            call()
    return graph.replay


def measure_gemms(flags: Flags) -> None:
    """This rank's share of the shapes."""
    import torch
    rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.manual_seed(rank)
    made = lambda rows, columns, size: (size * torch.randn(rows, columns, device=device)).bfloat16()
    if rank == 0:
        print("kind,M,N,K,ms,first_half_ms,burst_ms,tflops", flush=True)
    shapes = SHAPES
    if flags.shapes:
        with open(flags.shapes, newline="") as file:
            shapes = [(int(row["M"]), int(row["N"]), int(row["K"])) for row in csv.DictReader(file)]
    for rows, outputs, inputs in shapes[rank::ranks]:
        weight, x, gradient = made(outputs, inputs, 0.02), made(rows, inputs, 1), made(rows, outputs, 1e-3)
        calls = {"fwd": lambda: x @ weight.t(), "dgrad": lambda: gradient @ weight, "wgrad": lambda: gradient.t() @ x}
        for kind, call in calls.items():
            if flags.shapes:
                ms, first, burst = (time / GRAPHED for time in gemm_times(graphed(call), 0))
            else:
                ms, first, burst = gemm_times(call, 8)
            rate = 2e-9 * rows * outputs * inputs / ms
            sys.stdout.write(f"{kind},{rows},{outputs},{inputs},{ms:.4f},{first:.4f},{burst:.4f},{rate:.1f}\n")
            sys.stdout.flush()


def gemms(flags: Flags) -> int:
    """Times GEMMs of small models as training makes them: without pause, and in bursts with the GPU idle between.

        python3 -m gpu_lab pytorch gemms --gpus 2 > rates.csv      each rank has half of the shapes

    Columns are those of scenarios/gpus/tables/h200_gemm_bf16.csv where they are the same: ms is the second half of a third
    of a second without pause. burst_ms: eight in a row after as long a pause, mean of ten such bursts. Weights are as they
    are initialised, activations and gradients as norms leave them. --shapes FILE: those of a CSV with M, N and K (such as
    gpu_lab/shapes/gemms_families.csv), in CUDA graphs of eight, without bursts.
    """
    return on_ranks(flags, lambda _: measure_gemms(flags))


# ---- attention ----------------------------------------------------------------------------------

COLUMNS = ["kind", "way", "heads", "key_heads", "d", "dv", "sequence", "window", "cap", "documents", "forward_ms",
           "backward_ms", "forward_tflops", "backward_tflops", "refused"]
WAYS = ("cudnn", "flash", "flex", "mask")


def pairs_of(sequence: int, window: int, documents: int) -> int:
    """Pairs of a query and a key that it attends to, of one head."""
    total = 0
    for length in [sequence // documents] * documents:
        hidden = max(0, length - window) if window else 0
        total += length * (length + 1) // 2 - hidden * (hidden + 1) // 2
    return total


def attend(row: dict[str, Any]) -> Callable[..., Any]:
    """A function of q, k and v. PyTorch raises what it refuses."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    if row["way"] == "mask":
        # As transformers: a mask of bool, by which PyTorch chooses its kernel.
        seen = torch.ones(row["sequence"], row["sequence"], dtype=torch.bool, device="cuda").tril().triu(1 - row["window"])
        return lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[None, None])
    if row["way"] != "flex":
        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[row["way"]]

        def by_kernel(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        return by_kernel
    window, documents, cap, sequence = row["window"], row["documents"], row["cap"], row["sequence"]
    length = sequence // documents

    def visible(_b: Any, _h: Any, i: Any, j: Any) -> Any:
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


def measure_attention(row: dict[str, Any]) -> dict[str, float]:
    """ms and TFLOP/s: 4 FLOP a pair and head column forward, 10 backward."""
    import torch
    torch.manual_seed(1)
    torch._dynamo.reset()  # one compiled function for each kind; PyTorch gives up after eight
    made = lambda count, width: torch.randn(1, count, row["sequence"], width, device="cuda", dtype=torch.bfloat16,
                                            requires_grad=True)
    q, k, v = made(row["heads"], row["d"]), made(row["key_heads"], row["d"]), made(row["key_heads"], row["dv"])
    call = attend(row)
    forward = median_ms(lambda: call(q, k, v))
    out = call(q, k, v)
    grad = torch.randn_like(out)
    backward = median_ms(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    flops = 2 * pairs_of(row["sequence"], row["window"], row["documents"]) * row["heads"] * (row["d"] + row["dv"])
    return {"forward_ms": round(forward, 4), "backward_ms": round(backward, 4),
            "forward_tflops": round(flops / forward / 1e9, 1), "backward_tflops": round(2.5 * flops / backward / 1e9, 1)}


def attention_rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Kinds of attention of today's families. (head size, value size, heads, key heads); windows in tokens."""
    plain = {"cap": 0, "window": 0, "documents": 1}
    for sequence in (8192,) if quick else (2048, 4096, 8192):
        def row(kind: str, way: str, d: int, dv: int, heads: int, keys: int, **more: int) -> dict[str, Any]:
            return {**plain, "kind": kind, "way": way, "heads": heads, "key_heads": keys, "d": d, "dv": dv,
                    "sequence": sequence, **more}

        for d, dv, heads, keys in ((128, 128, 32, 8), (64, 64, 32, 8), (96, 96, 32, 32), (192, 128, 32, 32),
                                   (256, 256, 8, 4), (256, 256, 4, 1)):
            for way in WAYS:
                yield row("whole", way, d, dv, heads, keys)
        for window, d, heads, keys in ((512, 256, 4, 1), (1024, 128, 32, 8), (4096, 128, 32, 8), (4096, 256, 8, 4),
                                       (128, 64, 64, 8), (512, 128, 32, 8)):
            if window < sequence:
                yield row("window", "flex", d, d, heads, keys, window=window)
        yield row("cap", "flex", 256, 256, 8, 4, cap=50)
        yield row("documents", "flex", 128, 128, 32, 8, documents=8)
        for d, heads in ((64, 64), (96, 32), (128, 32), (256, 4), (256, 8)):
            yield row("window", "mask", d, d, heads, heads, window=512)


def attention(flags: Flags) -> None:
    """Times kinds of attention on one GPU: `pytorch attention [--quick] [--way flex] > kinds.csv`.

    A row for each kind: heads of 64, 96, 128, 192/128 (latent) and 256, sliding windows, a logit softcap, documents. `way` is
    PyTorch's backend: cudnn and flash (scaled_dot_product_attention), mask (the same with a mask, which computes all pairs)
    or flex (flex_attention, compiled). bf16, random normal operands, batch 1; times are medians of ten calls, in ms; TFLOP/s count the pairs of query and key that a kind has. Kinds
    that PyTorch refuses have its reason in the last column.
    """
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in attention_rows(flags.quick):
        if flags.way and row["way"] not in flags.way:
            continue
        try:
            figures: dict[str, Any] = measure_attention(row)
        except (RuntimeError, NotImplementedError) as error:
            figures = {"refused": str(error).splitlines()[0][:90]}
        writer.writerow({**row, **figures})
        sys.stdout.flush()
