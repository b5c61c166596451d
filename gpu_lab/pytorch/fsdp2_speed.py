"""How fast PyTorch FSDP2 trains a model of transformers on random tokens."""

import argparse
import os
from typing import Any

from gpu_lab.command_line import Flags, on_ranks
from gpu_lab.machine import WrongFlag
from gpu_lab.pytorch.fp8_block import use_fp8
from gpu_lab.pytorch.timing import Clock, print_facts, step_facts, train_flops, write_snapshot


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `pytorch fsdp2-speed`."""
    parser.add_argument("--gpus", type=int, default=1, help="processes to start (1), one for each GPU")
    parser.add_argument("--model", required=True, help="config.json of Hugging Face")
    parser.add_argument("--sequence", type=int, required=True, help="tokens")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a GPU and forward")
    parser.add_argument("--microbatches", type=int, default=1, help="of a step")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--timed", type=int, default=20, help="last steps that the median is of")
    parser.add_argument("--compile", action="store_true", help="blocks and loss through torch.compile")
    parser.add_argument("--fp8", action="store_true", help="linear layers of blocks in FP8, scaled by tensor (_scaled_mm)")
    parser.add_argument("--recompute", action="store_true", help="every block's forward again in backward")
    parser.add_argument("--keep-gathered", action="store_true", help="weights stay gathered until backward (ZeRO-2)")
    parser.add_argument("--attention", default="sdpa", help="transformers' attn_implementation (sdpa)")
    parser.add_argument("--reduce", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--snapshot", help="every allocation of rank 0, for mfsdp-sim --replay")
    parser.add_argument("--memory-part", type=float, help="share of the GPU's memory that PyTorch may reserve")


def make_model(flags: Flags, device: Any) -> tuple[Any, Any]:
    """A sharded model of random weights, and its configuration."""
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(flags.model)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=flags.attention)
    body = model.base_model
    layers = body.h if hasattr(body, "h") else body.layers
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, flags.reduce))
    for number, layer in enumerate(layers):
        if flags.fp8:
            use_fp8(layer)
        if flags.recompute:
            layers[number] = layer = checkpoint_wrapper(layer)
        if flags.compile:
            layer.compile()
        fully_shard(layer, mp_policy=policy, reshard_after_forward=not flags.keep_gathered)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    # Its angles and scales are no parameters, and meta tensors have no values: they are made anew.
    if hasattr(body, "rotary_emb"):
        body.rotary_emb = type(body.rotary_emb)(config=config).to(device)
    for module in model.modules():
        if hasattr(module, "embed_scale"):
            module.embed_scale = torch.tensor(config.hidden_size**0.5, device=device)
    for parameter in model.parameters():
        if parameter.ndim < 2:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=0.02)
    return model.train(), config


def flops_of(config: Any, sequence: int) -> int:
    """FLOP of a token; 0 for a model whose blocks are not those of Llama."""
    if not hasattr(config, "num_key_value_heads") or hasattr(config, "num_experts_per_tok"):
        return 0
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width, key_value = config.num_attention_heads * head, config.num_key_value_heads * head
    block = config.hidden_size * (2 * width + 2 * key_value + 3 * config.intermediate_size)
    return train_flops(config.num_hidden_layers, block, config.vocab_size * config.hidden_size, width, sequence)


def loss_of(logits: Any, labels: Any) -> Any:
    """The mean of fp32 cross entropy."""
    import torch
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def loss_and_backward(model: Any, criterion: Any, vocabulary: int, flags: Flags, device: Any) -> Any:
    """The step's loss: the mean over its microbatches."""
    import torch
    total = torch.zeros((), device=device)
    for _ in range(flags.microbatches):
        tokens = torch.randint(vocabulary, (flags.micro_batch, flags.sequence + 1), device=device)
        loss = criterion(model(tokens[:, :-1], use_cache=False).logits, tokens[:, 1:]) / flags.microbatches
        loss.backward()
        total += loss.detach()
    return total


def train(flags: Flags) -> None:
    """One of the processes."""
    import torch
    import torch.distributed as dist
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    if flags.memory_part:
        torch.cuda.set_per_process_memory_fraction(flags.memory_part)
    if flags.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python", context=None)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(dist.get_rank())
    model, config = make_model(flags, device)
    criterion = torch.compile(loss_of) if flags.compile else loss_of
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    clock, losses = Clock(on_gpu=True), []
    for _ in range(flags.steps):
        clock.mark()
        losses.append(loss_and_backward(model, criterion, config.vocab_size, flags, device))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    clock.mark()
    facts = step_facts(clock.steps(), flags.timed, flags.sequence * flags.micro_batch * flags.microbatches,
                       flops_of(config, flags.sequence))
    if dist.get_rank() == 0:
        if flags.snapshot:
            write_snapshot(flags.snapshot)
        print_facts({**facts, "gpus": dist.get_world_size(), "compile": flags.compile, "fp8": flags.fp8,
                     "attention": flags.attention, "recompute": flags.recompute,
                     "reduce": flags.reduce, "micro_batch": flags.micro_batch, "microbatches": flags.microbatches,
                     "first_loss": losses[0].item(), "last_loss": losses[-1].item()})
    dist.destroy_process_group()


def fsdp2_speed(flags: Flags) -> int:
    """Measures how fast PyTorch FSDP2 trains a model of random weights on random tokens, and prints one JSON object.

    Each microbatch gathers and reduces, as mfsdp's optim_grads_params does. fp32 main weights, bf16 computation, flash
    attention, fused AdamW, the norm clipped at 1. Rank 0 prints the median of the last --timed steps (device time), tokens
    and TFLOP per second and GPU (counted as mfsdp does), and memory. It also prints the seconds since 1970 between which
    those steps ran.
    """
    for name in ("micro_batch", "microbatches", "timed"):
        if getattr(flags, name) < 1:
            raise WrongFlag(f"--{name.replace('_', '-')}: expected at least 1")
    if flags.timed > flags.steps:
        raise WrongFlag("--timed: expected at most --steps")
    return on_ranks(flags, train)
