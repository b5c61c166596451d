"""One block of Llama-3-8B by PyTorch, in bf16 and in FP8: the time that casts and GEMMs take."""

import argparse
import functools
import json
from collections.abc import Callable
from typing import Any

from gpu_lab.command_line import Flags
from gpu_lab.machine import WrongFlag
from gpu_lab.pytorch.timing import median_ms, timed

HIDDEN, INTERMEDIATE, HEADS, KEY_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
QKV = (HEADS + 2 * KEY_HEADS) * HEAD_DIM
LAYERS = 32  # of the model
MODES = ("bf16", "split", "fast")  # split: fast accumulation in forward alone


def block_flops(tokens: int) -> int:
    """FLOP of forward and backward: the GEMMs of four linear layers, and half of attention, which is causal."""
    parameters = HIDDEN * QKV + HIDDEN * HIDDEN + 3 * HIDDEN * INTERMEDIATE
    return 6 * tokens * parameters + 6 * HIDDEN * tokens * tokens


def plain_casts() -> dict[str, Callable[..., Any]]:
    """The largest magnitude, and both copies of a matrix with one scale."""
    import torch

    def amax(x: Any) -> Any:
        return x.abs().amax().float()

    def both(x: Any, largest: Any, dtype: Any) -> Any:
        limit = torch.finfo(dtype).max
        factor = torch.where(largest > 0, limit / largest, torch.ones_like(largest))
        codes = (x.float() * factor).clamp(-limit, limit).to(dtype)
        return codes, codes.t().contiguous(), 1 / factor

    def quantise(x: Any, dtype: Any) -> Any:
        return both(x, amax(x), dtype)

    return {"amax": amax, "both": both, "quantise": quantise, "transpose": lambda codes: codes.t().contiguous()}


def compiled_casts() -> dict[str, Callable[..., Any]]:
    """`plain_casts`, each compiled. Each shape has its own kernels."""
    import torch
    torch._dynamo.config.recompile_limit = 64
    return {name: torch.compile(function, dynamic=False) for name, function in plain_casts().items()}


def fp8_linear(quantise: Callable[..., Any], fast_backward: bool) -> Callable[[Any, Any], Any]:
    """A linear layer whose three GEMMs have FP8 operands, scaled by tensor: E4M3, gradients E5M2."""
    import torch
    multiply = torch._scaled_mm

    class Linear(torch.autograd.Function):
        """y = x weight^T. Keeps the transposed codes of the input, and of the weight."""

        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            codes, codes_t, scale = quantise(x, torch.float8_e4m3fn)
            weight_codes, weight_t, weight_scale = quantise(weight, torch.float8_e4m3fn)
            ctx.save_for_backward(codes_t, scale, weight_t, weight_scale)
            return multiply(codes, weight_codes.t(), scale_a=scale, scale_b=weight_scale, out_dtype=torch.bfloat16,
                            use_fast_accum=True)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            input_t, scale, weight_t, weight_scale = ctx.saved_tensors
            codes, codes_t, gradient_scale = quantise(gradient, torch.float8_e5m2)
            d_input = multiply(codes, weight_t.t(), scale_a=gradient_scale, scale_b=weight_scale,
                               out_dtype=torch.bfloat16, use_fast_accum=fast_backward)
            d_weight = multiply(codes_t, input_t.t(), scale_a=gradient_scale, scale_b=scale, out_dtype=torch.bfloat16,
                                use_fast_accum=fast_backward)
            return d_input, d_weight

    return Linear.apply


@functools.cache
def fp8_module() -> Any:
    """One class for all layers: torch.compile compiles blocks anew whose classes differ."""
    import torch
    multiply = fp8_linear(plain_casts()["quantise"], fast_backward=False)

    class Fp8Linear(torch.nn.Linear):
        """Rows of tokens by the layer's weight."""

        def forward(self, x: Any) -> Any:
            return multiply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])

    return Fp8Linear


def use_fp8(block: Any) -> None:
    """Has the linear layers of a module multiply in FP8. The casts are compiled with the module, if it is."""
    import torch
    for module in block.modules():
        if type(module) is torch.nn.Linear:
            if module.bias is not None:
                raise WrongFlag("--fp8: expected a model without biases of linear layers")
            module.__class__ = fp8_module()


def make_block(mode: str, tokens: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function of the residual, and its weights. Norms, RoPE and SwiGLU are compiled, attention is cuDNN's."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    torch.manual_seed(1)
    made = lambda *shape: (0.02 * torch.randn(*shape, device="cuda")).bfloat16().requires_grad_()
    qkv_weight, out_weight = made(QKV, HIDDEN), made(HIDDEN, HIDDEN)
    gate_up_weight, down_weight = made(2 * INTERMEDIATE, HIDDEN), made(HIDDEN, INTERMEDIATE)
    norms = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    linear = torch.nn.functional.linear
    if mode != "bf16":
        linear = fp8_linear(compiled_casts()["quantise"], fast_backward=mode == "fast")
    angles = torch.outer(torch.arange(tokens, device="cuda"),
                         500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM))
    cos, sin = (torch.cat((part, part), -1)[:, None] for part in (angles.cos(), angles.sin()))

    @torch.compile
    def normed(x: Any, weight: Any) -> Any:
        return torch.nn.functional.rms_norm(x.float(), (HIDDEN,), eps=1e-5).to(x.dtype) * weight

    @torch.compile
    def heads(qkv: Any) -> Any:
        q, k, v = qkv.view(tokens, -1, HEAD_DIM).split((HEADS, KEY_HEADS, KEY_HEADS), 1)
        rotate = lambda x: (x * cos + torch.cat((-x[..., HEAD_DIM // 2:], x[..., :HEAD_DIM // 2]), -1) * sin).to(x.dtype)
        return tuple(x.transpose(0, 1)[None] for x in (rotate(q), rotate(k), v))

    @torch.compile
    def gated(gate_up: Any) -> Any:
        gate, up = gate_up.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    def block(x: Any) -> Any:
        q, k, v = heads(linear(normed(x, norms[0]), qkv_weight))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + linear(attended[0].transpose(0, 1).reshape(tokens, HIDDEN), out_weight)
        return x + linear(gated(linear(normed(x, norms[1]), gate_up_weight)), down_weight)

    return block, [qkv_weight, out_weight, gate_up_weight, down_weight, *norms]


def time_block(mode: str, tokens: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of forward and backward, in the second half of `seconds` without pause."""
    import torch
    block, weights = make_block(mode, tokens)
    x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = 1e-3 * torch.randn_like(x)

    def step() -> None:
        torch.autograd.grad(block(x), [x, *weights], gradient)

    first = median_ms(step, 3, 5)
    half = max(3, int(seconds * 500 / first))
    timed(step, half)
    begin, end = timed(step, half)
    torch.cuda.synchronize()
    ms = begin.elapsed_time(end) / half
    return {"what": "block", "mode": mode, "ms": round(ms, 3), "ms_of_32": round(LAYERS * ms, 1),
            "tflops": round(block_flops(tokens) / ms / 1e9, 1)}


def time_casts(tokens: int) -> list[dict[str, Any]]:
    """Compiled casts at the widths of a block, each with the bytes that it must move."""
    import torch
    compiled, rows = compiled_casts(), []
    for cols in (HIDDEN, QKV, INTERMEDIATE, 2 * INTERMEDIATE):
        x = torch.randn(tokens, cols, device="cuda", dtype=torch.bfloat16)
        largest = compiled["amax"](x)
        codes = compiled["both"](x, largest, torch.float8_e4m3fn)[0]
        calls = {"amax": (2, lambda: compiled["amax"](x)),
                 "both": (4, lambda: compiled["both"](x, largest, torch.float8_e4m3fn)),
                 "quantise": (6, lambda: compiled["quantise"](x, torch.float8_e4m3fn)),
                 "transpose": (2, lambda: compiled["transpose"](codes))}
        for name, (size, call) in calls.items():
            ms = median_ms(call)
            rows.append({"what": name, "rows": tokens, "cols": cols, "us": round(1e3 * ms, 1),
                         "gb_per_s": round(size * tokens * cols / ms / 1e6)})
    return rows


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `pytorch fp8`."""
    parser.add_argument("--tokens", type=int, default=8192, help="of one sequence (8192)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each block without pause (3)")
    parser.add_argument("--mode", action="append", choices=MODES, help="these blocks alone; split: fast in forward alone")


def fp8(flags: Flags) -> int:
    """Times one block of Llama-3-8B by PyTorch, forward and backward: bf16, and FP8 scaled by tensor.

        python3 -m gpu_lab pytorch fp8 > pytorch_fp8.jsonl

    FP8 GEMMs are torch._scaled_mm; casts, the largest magnitudes and transposes are compiled, and weights are cast in
    each pass. A JSON object a line: blocks by mode, then the casts alone, with the bytes that they must move as gb_per_s.
    """
    import torch
    if torch.cuda.get_device_capability() < (8, 9):
        raise SystemExit("pytorch fp8: expected a GPU of compute capability 8.9 or later")
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}), flush=True)
    for mode in flags.mode or MODES:
        print(json.dumps(time_block(mode, flags.tokens, flags.seconds)), flush=True)
    for row in time_casts(flags.tokens):
        print(json.dumps(row), flush=True)
    return 0
