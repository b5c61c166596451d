#!/usr/bin/env python3
"""What other engines take on a GPU: PyTorch FSDP2 and Megatron-FSDP train a plain Llama on random tokens.

    engines.py --engine fsdp2 --model config.json --sequence 8192 --ranks 8 --fake [--compile] [--recompute]
        [--reduce float32] [--micro-batch 1] [--microbatches 1] [--steps 6] [--snapshot FILE] [--memory-part X]
        [--strategy optim_grads] [--outer 2] [--clip 1.0] [--trace FILE] [--exposed]
    torchrun --nproc-per-node N engines.py --engine mfsdp2 ...

--fake: this process alone is rank 0 of so many, and its collectives move nothing. What it allocates is what
rank 0 allocates in a real run, as no size depends on values; times and losses mean nothing then. The model is
written in few lines: q, k and v in one product, gate and up in another, F.rms_norm, angles in fp32, causal
attention by scaled_dot_product_attention, cross entropy of fp32 logits, AdamW (fused), clipping where asked for.
--strategy optim_grads (ZeRO-2): of fsdp2 reshard_after_forward=False; optim (ZeRO-1): of mfsdp1 and mfsdp2 alone.
--outer N: HSDP, the weights N times over the ranks.
Megatron-FSDP: its folder megatron/core/distributed/fsdp/src on PYTHONPATH. Rank 0 prints one JSON object; memory in bytes.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

ENGINES = ("fsdp2", "mfsdp1", "mfsdp2")


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--model", required=True, help="config.json of Hugging Face")
    parser.add_argument("--layers", type=int, help="instead of the configuration's")
    parser.add_argument("--untied", action="store_true", help="a head of its own, whatever the configuration says")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="with --fake")
    parser.add_argument("--alone", action="store_true", help="of several processes, each as the only rank (fsdp2)")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--compile", action="store_true", help="every block")
    parser.add_argument("--fuse", action="store_true", help="compile the element-wise functions alone")
    parser.add_argument("--recompute", action="store_true", help="every block's forward again in backward")
    parser.add_argument("--reduce", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--double-buffer", action="store_true", help="of mfsdp1")
    parser.add_argument("--strategy", choices=["optim", "optim_grads", "optim_grads_params"], default="optim_grads_params")
    parser.add_argument("--outer", type=int, default=1, help="times that the weights are there (HSDP)")
    parser.add_argument("--clip", type=float, help="the norm that gradients are clipped to")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--snapshot", help="every allocation of rank 0, for mfsdp-sim --replay")
    parser.add_argument("--memory-part", type=float, help="of the GPU's memory that PyTorch may reserve")
    parser.add_argument("--trace", help="Kineto's trace of one more step")
    parser.add_argument("--exposed", action="store_true", help="communication of one more step, and what of it is exposed")
    parser.add_argument("--kernels", help="with --exposed: times of that step's kernels by their names, as JSON")
    return parser.parse_args(words)


ARGUMENTS = parse_arguments()


def fused(function):
    return torch.compile(function, dynamic=False) if ARGUMENTS.fuse else function


@fused
def fused_norm(x, weight, epsilon):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight


@fused
def swiglu(both):
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


@fused
def rotate(x, cosine, sine):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return (x.float() * cosine + turned.float() * sine).to(x.dtype)


@fused
def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    def forward(self, x):
        if ARGUMENTS.fuse:
            return fused_norm(x, self.weight, self.epsilon)
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Linear(nn.Linear):
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)


class Embedding(nn.Embedding):
    def reset_parameters(self):
        nn.init.normal_(self.weight, std=0.02)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.heads = config["num_attention_heads"]
        self.pairs = config.get("num_key_value_heads", self.heads)
        self.head = config.get("head_dim") or hidden // self.heads
        biased = config["model_type"] == "qwen2"
        self.norm1, self.norm2 = Norm(hidden, epsilon), Norm(hidden, epsilon)
        self.qkv = Linear(hidden, (self.heads + 2 * self.pairs) * self.head, bias=biased)
        self.normed = config["model_type"] == "qwen3"
        if self.normed:
            self.norm_q, self.norm_k = Norm(self.head, epsilon), Norm(self.head, epsilon)
        self.out = Linear(self.heads * self.head, hidden, bias=False)
        self.gate_up = Linear(hidden, 2 * config["intermediate_size"], bias=False)
        self.down = Linear(config["intermediate_size"], hidden, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, _ = x.shape
        heads = [self.heads, self.pairs, self.pairs]
        qkv = self.qkv(self.norm1(x)).view(batch, length, sum(heads), self.head).transpose(1, 2)
        q, k, v = qkv.split(heads, 1)
        if self.normed:
            q, k = self.norm_q(q), self.norm_k(k)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(swiglu(self.gate_up(self.norm2(x))))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList([Block(config) for _ in range(config["num_hidden_layers"])])
        self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])
        self.head = Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config.get("tie_word_embeddings") and not ARGUMENTS.untied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens, labels, cosine, sine):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return loss_of(self.head(self.norm(x)), labels)


def reset(model):
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def angles(length, config, device):
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    theta = config.get("rope_theta", 10000.0)
    steps = 1.0 / theta ** (torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
    turns = torch.outer(torch.arange(length, device=device, dtype=torch.float32), steps)
    return torch.cat([turns.cos(), turns.cos()], -1), torch.cat([turns.sin(), turns.sin()], -1)


def prepare(model):
    """Before an engine takes it."""
    if ARGUMENTS.recompute:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        for number, layer in enumerate(model.layers):
            model.layers[number] = checkpoint_wrapper(layer)
    if ARGUMENTS.compile:
        for layer in model.layers:
            layer.compile()


def ranks_mesh(names):
    """One axis of all ranks or, in HSDP, an outer one and one that shards."""
    from torch.distributed.device_mesh import init_device_mesh
    world, outer = dist.get_world_size(), ARGUMENTS.outer
    if ARGUMENTS.alone:
        return init_device_mesh("cuda", (world, 1), mesh_dim_names=names)[names[1]]
    if outer == 1:
        return init_device_mesh("cuda", (world,), mesh_dim_names=names[1:])
    return init_device_mesh("cuda", (outer, world // outer), mesh_dim_names=names)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def any_microbatch(_is_last):
    """Of engines that do the same in each of them."""
    return contextlib.nullcontext()


def fsdp2(config, device, wire):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    if ARGUMENTS.strategy == "optim":
        sys.exit("FSDP2 shards gradients")
    mesh = ranks_mesh(("outer", "shard"))
    with torch.device("meta"):
        model = Llama(config)
    prepare(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=wire)
    ways = {"mesh": mesh, "mp_policy": policy}
    if ARGUMENTS.strategy == "optim_grads":
        ways["reshard_after_forward"] = False
    for layer in model.layers:
        fully_shard(layer, **ways)
    fully_shard(model, **ways)
    model.to_empty(device=device)
    reset(model)
    return model, adamw(model.parameters()), any_microbatch


def mfsdp1(config, device, wire):
    from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model, fully_shard_optimizer
    from torch.distributed.device_mesh import init_device_mesh
    world, outer = dist.get_world_size(), ARGUMENTS.outer
    axes = {"dp_shard_dim": "dp", "tp_dim": "tp"}
    if outer == 1:
        mesh = init_device_mesh("cuda", (world, 1), mesh_dim_names=("dp", "tp"))
    else:
        mesh = init_device_mesh("cuda", (outer, world // outer, 1), mesh_dim_names=("outer", "dp", "tp"))
        both = mesh[("outer", "dp")]._flatten("both")
        axes.update(dp_outer_dim="outer", hybrid_fsdp_group=both.get_group())
    with torch.device("meta"):
        model = Llama(config).to(torch.bfloat16)
    prepare(model)
    policy = MixedPrecisionPolicy(main_params_dtype=torch.float32, main_grads_dtype=wire, grad_comm_dtype=wire)
    model = fully_shard_model(module=model, fsdp_unit_modules=[Block], device_mesh=mesh, **axes,
                              zero_dp_strategy=ARGUMENTS.strategy, init_model_with_meta_device=True,
                              mixed_precision_policy=policy, fsdp_double_buffer=ARGUMENTS.double_buffer,
                              sync_model_each_microbatch=True)
    return model, fully_shard_optimizer(optimizer=adamw(model.parameters())), any_microbatch


def mfsdp2(config, device, wire):
    from megatron_fsdp.experimental import (Placements, fully_shard, fully_shard_context,
                                            fully_shard_optimizer, microbatch)
    from megatron_fsdp.mixed_precision import MixedPrecisionPolicy
    from torch.distributed.tensor import Partial, Replicate, Shard
    mesh = ranks_mesh(("outer", "dp"))
    whole = ARGUMENTS.strategy in ("optim", "optim_grads")
    sums = ARGUMENTS.strategy == "optim"
    outer = ARGUMENTS.outer > 1
    places = Placements(dp_axes=list(mesh.mesh_dim_names),
                        parameter=[Replicate()] * outer + [Replicate() if whole else Shard(0)],
                        gradient=[Partial("avg")] * outer + [Partial("avg") if sums else Shard(0)],
                        optimizer=[Replicate()] * outer + [Shard(0)])
    policy = MixedPrecisionPolicy(main_params_dtype=torch.float32, main_grads_dtype=wire, grad_comm_dtype=wire)
    with torch.device("meta"):
        model = Llama(config).to(torch.bfloat16)
    prepare(model)
    with fully_shard_context(device) as context:
        for layer in model.layers:
            layer.to_empty(device=device)
            reset(layer)
            fully_shard(layer, mesh, places, policy)
        tied = model.head.weight is model.embedding.weight
        for module in (model.embedding, model.norm, model.head):
            module.to_empty(device=device)
            module.reset_parameters()
        if tied:
            model.head.weight = model.embedding.weight
        fully_shard(model, mesh, places, policy)
    optimizer = adamw(list(model.parameters()))
    fully_shard_optimizer(optimizer)
    return model, optimizer, lambda is_last: microbatch(context, is_last)


def join():
    """This process's device, as one rank of several."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    if ARGUMENTS.fake:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=ARGUMENTS.ranks, store=FakeStore())
    else:
        dist.init_process_group("nccl", device_id=device)
    return device


def covered(spans):
    """Union of spans (begin, end), as sorted spans that do not touch."""
    union = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([begin, end])
    return union


def length_of(union):
    return sum(end - begin for begin, end in union)


def communication_of(trace):
    """Milliseconds of a step's collectives, and of those that run while no kernel of the compute stream does."""
    kernels = [event for event in trace["traceEvents"]
               if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in event]
    is_collective = [event["name"].startswith("ncclDevKernel") for event in kernels]
    work = {}
    for event, collective in zip(kernels, is_collective):
        stream = event["args"].get("stream", event["tid"])
        work[stream] = work.get(stream, 0) + (0 if collective else event["dur"])
    compute_stream = max(work, key=work.get)
    span = lambda event: (event["ts"], event["ts"] + event["dur"])
    compute = covered(span(event) for event, collective in zip(kernels, is_collective)
                      if not collective and event["args"].get("stream", event["tid"]) == compute_stream)
    collectives = covered(span(event) for event, collective in zip(kernels, is_collective) if collective)
    both = covered([tuple(one) for one in compute + collectives])
    return {"compute_ms": length_of(compute) / 1e3, "communication_ms": length_of(collectives) / 1e3,
            "exposed_ms": (length_of(both) - length_of(compute)) / 1e3,
            "traced_ms": (both[-1][1] - both[0][0]) / 1e3}


def kernels_of(trace):
    """Stream and name of a step's kernels -> how many, and their microseconds."""
    times = {}
    for event in trace["traceEvents"]:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset") or "dur" not in event:
            continue
        stream = event["args"].get("stream", event["tid"])
        times.setdefault(f"{stream} {event['name'][:160]}", []).append(round(event["dur"], 2))
    return {name: {"count": len(all_of), "us": round(sum(all_of), 1)} for name, all_of in
            sorted(times.items(), key=lambda one: -sum(one[1]))}


def exposed(step):
    import tempfile
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            trace = json.load(file)
    if ARGUMENTS.kernels and dist.get_rank() == 0:
        with open(ARGUMENTS.kernels, "w") as file:
            json.dump(kernels_of(trace), file, indent=0)
    return {name: round(value, 3) for name, value in communication_of(trace).items()}


def of_all_ranks(value):
    """What every rank has for it; collective."""
    if ARGUMENTS.fake or dist.get_world_size() == 1:
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def operator_us(device):
    """What the host takes for one small operator, and its kernel's launch."""
    one = torch.zeros(16, device=device)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(400):
            one.add_(1.0)
        times.append((time.perf_counter() - begin) / 400 * 1e6)
        torch.cuda.synchronize()
    return round(statistics.median(times), 3)


def record(device):
    """Trains, and what that took."""
    with open(ARGUMENTS.model) as file:
        config = json.load(file)
    if ARGUMENTS.layers:
        config["num_hidden_layers"] = ARGUMENTS.layers
    torch.manual_seed(1234)
    make = {"fsdp2": fsdp2, "mfsdp1": mfsdp1, "mfsdp2": mfsdp2}[ARGUMENTS.engine]
    model, optimizer, microbatch = make(config, device, getattr(torch, ARGUMENTS.reduce))
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    length, batch = ARGUMENTS.sequence, ARGUMENTS.micro_batch
    cosine, sine = angles(length, config, device)
    tokens = torch.randint(0, config["vocab_size"], (batch, length + 1), device=device)

    ends = []  # of what the host does: each forward, each backward, the optimizer

    def step():
        ends.clear()
        ends.append(time.perf_counter())
        for number in range(ARGUMENTS.microbatches):
            with microbatch(number + 1 == ARGUMENTS.microbatches):
                loss = model(tokens[:, :-1], tokens[:, 1:], cosine, sine)
                ends.append(time.perf_counter())
                loss.backward()
                ends.append(time.perf_counter())
        if ARGUMENTS.clip:
            torch.nn.utils.clip_grad_norm_(parameters, ARGUMENTS.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())

    times, issues = [], []
    for _ in range(ARGUMENTS.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        issues.append([round((end - begin) * 1e3, 2) for end in ends[1:]])
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    facts = {"engine": ARGUMENTS.engine, "model": os.path.abspath(ARGUMENTS.model).split(os.sep)[-2],
             "layers": config["num_hidden_layers"], "sequence": length, "micro_batch": batch,
             "microbatches": ARGUMENTS.microbatches,
             "ranks": 1 if ARGUMENTS.alone else dist.get_world_size(), "fake": ARGUMENTS.fake, "compile": ARGUMENTS.compile,
             "fuse": ARGUMENTS.fuse, "recompute": ARGUMENTS.recompute, "reduce": ARGUMENTS.reduce,
             "double_buffer": ARGUMENTS.double_buffer, "strategy": ARGUMENTS.strategy,
             "outer": ARGUMENTS.outer, "clip": ARGUMENTS.clip or 0,
             "step_ms": round(statistics.median(times[len(times) // 2:]) * 1e3, 2),
             "steps_ms": [round(one * 1e3, 2) for one in times],
             "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
             "device": total - free, "reserved_now": torch.cuda.memory_reserved(),
             "retries": stats["num_alloc_retries"], "torch": torch.__version__}
    facts["issue_ms"] = of_all_ranks(issues[len(issues) // 2:])
    facts["operator_us"] = of_all_ranks(operator_us(device))
    facts["steps_of_ranks_ms"] = of_all_ranks(facts["step_ms"])
    if ARGUMENTS.snapshot and dist.get_rank() == 0:
        torch.cuda.memory._dump_snapshot(ARGUMENTS.snapshot)
    if ARGUMENTS.exposed:
        facts["traced"] = of_all_ranks(exposed(step))
        # Collectives of a rank that is ahead wait for the others': what is exposed is the least of them.
        facts.update(min(facts["traced"], key=lambda one: one["exposed_ms"]))
    if ARGUMENTS.trace:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], record_shapes=True) as profiler:
            step()
            torch.cuda.synchronize()
        if dist.get_rank() == 0:
            profiler.export_chrome_trace(ARGUMENTS.trace)
    return facts


def record_or_fail(device):
    try:
        return record(device)
    except torch.OutOfMemoryError as error:
        if ARGUMENTS.snapshot:
            torch.cuda.memory._dump_snapshot(ARGUMENTS.snapshot)
        return {"out_of_memory": str(error).splitlines()[0]}


def main():
    if ARGUMENTS.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks=os.environ.get("STACKS", "python"),
                                                 context=os.environ.get("CONTEXT") or None)
    device = join()
    if ARGUMENTS.memory_part:
        torch.cuda.set_per_process_memory_fraction(ARGUMENTS.memory_part)
    facts = record_or_fail(device)
    if dist.get_rank() == 0:
        print(json.dumps(facts), flush=True)
    dist.destroy_process_group()
    return 1 if "out_of_memory" in facts else 0


if __name__ == "__main__":
    sys.exit(main())
