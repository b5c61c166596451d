"""`pytorch ...`, and comparisons of weights, gradients and logits with transformers and PEFT."""

import argparse
import functools
import pathlib
from collections.abc import Callable
from typing import Any

from gpu_lab.command_line import Flags, add_bin, add_command, add_dry_run, add_group
from gpu_lab.pytorch import compare, exports, families, fp8_block, fsdp2_speed, fsdp2_train, gradients, kernel_times, moe_speed, pairs

HF = "torch, transformers and safetensors"


def _add_cases(commands: Any, name: str, does: Callable[[Flags], int], needs: str, cases: dict[str, Any]) -> None:
    parser = add_command(commands, name, does, does.__doc__, f"mfsdp-exec, {needs}; a GPU with --backend cuda alone")
    add_bin(parser)
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default=",".join(cases), metavar="NAME,...")
    parser.add_argument("--tolerance", type=float, default=1e-3)


def _add_weights(commands: Any) -> None:
    _add_cases(commands, "families", families.families, HF, families.FAMILIES)
    _add_cases(commands, "lora", families.lora, f"{HF}, peft", families.ADAPTERS)
    parser = add_command(commands, "gradients", gradients.gradients, gradients.gradients.__doc__, f"{HF}; no GPU with --device cpu")
    parser.add_argument("--make-tokens", metavar="FILE")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--sequence", type=int, help="tokens")
    parser.add_argument("--export", metavar="DIR", help="weights, from --export of mfsdp-exec")
    parser.add_argument("--state", metavar="DIR", help="gradients: a save, from --save")
    parser.add_argument("--logits", metavar="FILE", help="from --logits")
    parser.add_argument("--tokens", metavar="FILE", help="that --make-tokens wrote")
    parser.add_argument("--device", default="cpu")
    parser = add_command(commands, "load-export", exports.load_export, exports.load_export.__doc__, HF)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--tokens", required=True, help="ids, separated by commas")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32", "float64"], help="default: that of the export")
    parser.add_argument("--device", default="cpu")
    parser = add_command(commands, "new-user", exports.new_user, exports.new_user.__doc__, f"mfsdp-sim, mfsdp-exec, {HF}; no GPU")
    add_bin(parser)
    parser.add_argument("--device", default="cpu")


def _add_run(group: Any, name: str, does: Callable[[Flags], int], needs: str,
             add_flags: Callable[[argparse.ArgumentParser], None]) -> None:
    parser = add_command(group, name, does, does.__doc__, needs)
    add_flags(parser)
    add_dry_run(parser)


def add_to(commands: Any) -> None:
    """Adds the commands."""
    _add_weights(commands)
    group = add_group(commands, "pytorch", "PyTorch beside mfsdp-exec: training, speed, kernels")
    add = functools.partial(add_command, group)
    parser = add("compare", compare.compare, f"{compare.compare.__doc__}\n    Stages:\n" + "\n".join(
        f"      {name:10} {stage.__doc__}" for name, stage in compare.STAGES.items()),
        f"a CUDA build's mfsdp-exec, {HF}; a GPU or more")
    add_bin(parser)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_compare"), help="logs and losses (gpu_compare)")
    parser.add_argument("--stage", default=",".join(compare.STAGES), metavar="STAGE,...")
    parser.add_argument("--steps", type=int, default=300, help="of a training")
    parser = add("bands", compare.bands, compare.bands.__doc__, "no GPU")
    parser.add_argument("ours", type=pathlib.Path)
    parser.add_argument("references", type=pathlib.Path, nargs="+")
    _add_run(group, "fsdp2-train", fsdp2_train.fsdp2_train, f"{HF}; --gpus GPUs, or none (gloo)", fsdp2_train.add_flags)
    _add_run(group, "fsdp2-speed", fsdp2_speed.fsdp2_speed, "torch 2.11 and transformers; --gpus GPUs", fsdp2_speed.add_flags)
    _add_run(group, "moe-speed", moe_speed.moe_speed, "torch (1.13 with --device cpu); --gpus GPUs", moe_speed.add_flags)
    parser = add("pairs", pairs.pairs, pairs.pairs.__doc__, f"a CUDA build's mfsdp-exec, {HF}; a GPU")
    add_bin(parser)
    pairs.add_flags(parser)
    parser = add("gemms", kernel_times.gemms, kernel_times.gemms.__doc__, "torch; --gpus GPUs")
    parser.add_argument("--gpus", type=int, default=1, help="each has its share of the shapes (1)")
    parser.add_argument("--shapes", metavar="FILE", help="a CSV with columns M, N and K of forward; those of small models")
    add_dry_run(parser)
    fp8_block.add_flags(add("fp8", fp8_block.fp8, fp8_block.fp8.__doc__, "torch 2.11; a GPU of compute capability 8.9 or later"))
    parser = add("attention", kernel_times.attention, kernel_times.attention.__doc__, "torch 2.11; a GPU")
    parser.add_argument("--quick", action="store_true", help="sequence 8192 alone")
    parser.add_argument("--way", action="append", choices=kernel_times.WAYS, help="these alone")
