#!/usr/bin/env python3
"""How fast PyTorch FSDP2 trains a model of random weights on random tokens, beside mfsdp-exec.

    torchrun --nproc-per-node N speed_fsdp2.py --model config.json --sequence 8192 [--compile]
        [--reduce float32] [--micro-batch 1] [--microbatches 1] [--steps 25] [--timed 20] [--recompute]
        [--snapshot FILE] [--memory-part X]

--micro-batch sequences a GPU in each of --microbatches forwards and backwards of a step, each of which gathers and
reduces, as mfsdp's optim_grads_params does; fp32 main weights, bf16 computation, flash attention, fused AdamW, the
norm clipped at 1. --compile: blocks and loss through torch.compile; --recompute: every block's forward
again in backward. --snapshot: every allocation of rank 0, for mfsdp-sim --replay; --memory-part: of the GPU's
memory that PyTorch may reserve. Rank 0 prints one JSON object: the median of the last --timed steps (rank 0's device time),
tokens and TFLOP a second and GPU, memory, and between which seconds since 1970 those steps ran. TFLOP count as mfsdp's do: 6 FLOP a matrix parameter and
token, head included, embedding not, and causal attention half.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="config.json of Hugging Face")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a forward")
    parser.add_argument("--microbatches", type=int, default=1, help="of a step")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--timed", type=int, default=20, help="last steps that the median is of")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--keep-gathered", action="store_true", help="weights stay gathered until backward (ZeRO-2)")
    parser.add_argument("--reduce", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--snapshot", help="file to write")
    parser.add_argument("--memory-part", type=float, help="between 0 and 1")
    arguments = parser.parse_args()
    for name in ("micro_batch", "microbatches", "timed"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1")
    if arguments.timed > arguments.steps:
        parser.error("--timed: expected at most --steps")
    return arguments


def make_model(arguments, device):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(arguments.model)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    layers = model.model.layers
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=getattr(torch, arguments.reduce))
    for number, layer in enumerate(layers):
        if arguments.recompute:
            layers[number] = layer = checkpoint_wrapper(layer)
        if arguments.compile:
            layer.compile()
        fully_shard(layer, mp_policy=policy, reshard_after_forward=not arguments.keep_gathered)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    # Its angles are no parameters: made anew, as meta tensors have no values.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    for parameter in model.parameters():
        if parameter.ndim < 2:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=0.02)
    return model.train(), config


def flops_of(config, sequence):
    """A token's, forward and backward."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = config.num_attention_heads * head
    key_value = config.num_key_value_heads * head
    block = config.hidden_size * (2 * width + 2 * key_value + 3 * config.intermediate_size)
    matrices = config.num_hidden_layers * block + config.vocab_size * config.hidden_size
    return 6 * matrices + 6 * config.num_hidden_layers * width * sequence


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def loss_and_backward(model, criterion, config, arguments, device):
    """Of a step: the mean over its microbatches."""
    total = torch.zeros((), device=device)
    for _ in range(arguments.microbatches):
        tokens = torch.randint(config.vocab_size, (arguments.micro_batch, arguments.sequence + 1), device=device)
        loss = criterion(model(tokens[:, :-1], use_cache=False).logits, tokens[:, 1:]) / arguments.microbatches
        loss.backward()
        total += loss.detach()
    return total


def main():
    arguments = parse_arguments()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    if arguments.memory_part:
        torch.cuda.set_per_process_memory_fraction(arguments.memory_part)
    if arguments.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python", context=None)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(dist.get_rank())
    model, config = make_model(arguments, device)
    criterion = torch.compile(loss_of) if arguments.compile else loss_of
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    losses = []
    for step in range(arguments.steps):
        events[step].record()
        losses.append(loss_and_backward(model, criterion, config, arguments, device))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    events[-1].record()
    torch.cuda.synchronize()
    ended = time.time()
    if arguments.snapshot and dist.get_rank() == 0:
        torch.cuda.memory._dump_snapshot(arguments.snapshot)
    times = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    step = statistics.median(times[-arguments.timed:])
    rate = arguments.sequence * arguments.micro_batch * arguments.microbatches / step * 1000
    if dist.get_rank() == 0:
        print(json.dumps({
            "torch": torch.__version__, "gpus": dist.get_world_size(), "compile": arguments.compile,
            "recompute": arguments.recompute, "reduce": arguments.reduce,
            "micro_batch": arguments.micro_batch, "microbatches": arguments.microbatches,
            "timed": arguments.timed, "timed_from": round(ended - sum(times[-arguments.timed:]) / 1000, 3),
            "timed_to": round(ended, 3), "step_ms": round(step, 2),
            "tokens_per_s_per_gpu": round(rate, 1),
            "tflops_per_gpu": round(rate * flops_of(config, arguments.sequence) / 1e12, 1),
            "allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
            "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
            "first_loss": losses[0].item(), "last_loss": losses[-1].item()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
