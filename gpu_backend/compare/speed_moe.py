#!/usr/bin/env python3
"""How fast PyTorch trains a model with experts (Qwen3-MoE), beside mfsdp-exec: FSDP2, grouped products, EP.

    speed_moe.py --layers 4 --seq 4096 --steps 50 --ep 1,2 [--gpus N] [--model config.json] [--data FILE]
        [--timed 40] [--micro-batch 1] [--reduce float32] [--no-compile] [--lr 3e-4] [--output json] [--device cpu]

Starts one process a GPU (--gpus: all there are) for each number of --ep, and prints one row of a table for each.
Under torchrun it is one of those processes. Needs no transformers. The model is written here: Qwen3's attention
(norms of queries and keys, RoPE), softmax router, K experts a token, SwiGLU; random weights, bytes of --data as
tokens, fp32 main weights, bf16 computation, fused AdamW, the norm clipped at 1.

Experts are torch._grouped_mm over rows in the order of experts. --ep 1: FSDP2 gathers them with their block.
--ep N: each of N ranks has E / N experts; all_to_all_single sends rows, of sizes that the host reads, as
torchtitan does; FSDP2 shards experts over the ranks that have the same ones, if there are several.
Compiled is what compiles: without EP whole blocks, with EP what lies between exchanges, and the loss. If
compilation fails, the run is made again without, and its row says so.

--device cpu: no FSDP2 and no grouped product but the same dispatch and exchange, in fp32, over gloo: losses of
every --ep must be alike. Works with PyTorch 1.13. Weights there depend on no rank.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = HERE.parent.parent / "scenarios"
COLUMNS = (("gpus", "GPUs"), ("ep", "EP"), ("layers", "layers"), ("sequence", "sequence"), ("compile", "compiled"),
           ("step_ms", "step ms"), ("tokens_per_s", "tokens/s"), ("tokens_per_s_per_gpu", "and GPU"),
           ("tflops_per_gpu", "TFLOP/s, GPU"), ("allocated_gib", "allocated GiB"), ("reserved_gib", "reserved GiB"))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=SCENARIOS / "models/qwen3_30b_a3b/config.json", help="config.json of Qwen3-MoE")
    parser.add_argument("--data", default=SCENARIOS / "texts/jargon.txt", help="file whose bytes are tokens")
    parser.add_argument("--layers", type=int, default=4, help="of the model's")
    parser.add_argument("--seq", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a GPU and step")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--timed", type=int, help="last steps that the median is of (four of five)")
    parser.add_argument("--ep", default="1", help="ranks over which experts are dealt out: numbers, one run each")
    parser.add_argument("--gpus", type=int, help="processes (all GPUs; 2 on the CPU)")
    parser.add_argument("--reduce", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--output", default="table", choices=["table", "json"])
    arguments = parser.parse_args()
    for name in ("layers", "seq", "micro_batch", "steps"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1")
    if arguments.timed is None:
        arguments.timed = max(1, arguments.steps * 4 // 5)
    if not 1 <= arguments.timed <= arguments.steps:
        parser.error("--timed: expected 1 to --steps")
    try:
        arguments.ep = [int(part) for part in arguments.ep.split(",")]
    except ValueError:
        parser.error("--ep: expected numbers separated by commas")
    if arguments.gpus is None:
        arguments.gpus = torch.cuda.device_count() if arguments.device == "cuda" else 2
    world = int(os.environ.get("WORLD_SIZE", arguments.gpus))
    experts = json.loads(pathlib.Path(arguments.model).read_text())["num_experts"]
    if world < 1:
        parser.error("--device: expected a GPU, there is none")
    for ep in arguments.ep:
        if ep < 1 or world % ep or experts % ep:
            parser.error(f"--ep: expected a divisor of {world} ranks and of {experts} experts, got {ep}")
    return arguments


def read_config(arguments):
    config = json.loads(pathlib.Path(arguments.model).read_text())
    if config.get("model_type") != "qwen3_moe" or config.get("mlp_only_layers") or config.get("tie_word_embeddings"):
        sys.exit("speed_moe.py: --model: expected qwen3_moe with experts in every block and a head of its own")
    config["num_hidden_layers"] = arguments.layers
    return argparse.Namespace(**config)


# ---- the model ----------------------------------------------------------------------------------


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def forward(self, rows):
        wide = rows.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(rows.dtype) * self.weight


def angles_of(config, sequence, device):
    """Cosines and sines of RoPE, [sequence, head size / 2]."""
    half = config.head_dim // 2
    rates = config.rope_theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    turned = torch.outer(torch.arange(sequence, device=device, dtype=torch.float32), rates)
    return turned.cos(), turned.sin()


def turn(heads, angles):
    """RoPE of [batch, sequence, heads, head size]."""
    cosines, sines = (part[None, :, None, :] for part in angles)
    first, second = heads.float().chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1).to(heads.dtype)


def attend(query, key, value):
    """Causal, of [batch, heads, sequence, head size]; each key and value for several queries."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    group = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, 1) for part in (key, value))
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    after = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(after, float("-inf")).softmax(-1) @ value


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head = config.head_dim
        self.query = nn.Linear(config.hidden_size, config.num_attention_heads * self.head, bias=False)
        self.key = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head, bias=False)
        self.value = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head, bias=False)
        self.output = nn.Linear(config.num_attention_heads * self.head, config.hidden_size, bias=False)
        self.query_norm = Norm(self.head, config.rms_norm_eps)
        self.key_norm = Norm(self.head, config.rms_norm_eps)
        self.angles = None  # set when there is a device; no parameters, so not cast to bf16

    def forward(self, rows):
        query, key, value = (part(rows).unflatten(-1, (-1, self.head)) for part in (self.query, self.key, self.value))
        query, key = turn(self.query_norm(query), self.angles), turn(self.key_norm(key), self.angles)
        mixed = attend(*(part.transpose(1, 2) for part in (query, key, value)))
        return self.output(mixed.transpose(1, 2).flatten(2))


class Spread(torch.autograd.Function):
    """Rows of tokens in the order of experts. Autograd's own backward would add row by row; this one gathers."""

    @staticmethod
    def forward(context, tokens, order, places, chosen):
        context.save_for_backward(places)
        context.chosen = chosen
        return tokens[order // chosen]

    @staticmethod
    def backward(context, gradient):
        places, = context.saved_tensors
        return gradient[places].unflatten(0, (-1, context.chosen)).sum(1), None, None, None


class Permute(torch.autograd.Function):
    """Rows in another order, and back in `inverse`: no row twice, so that a gradient's are gathered too."""

    @staticmethod
    def forward(context, rows, order, inverse):
        context.save_for_backward(inverse)
        return rows[order]

    @staticmethod
    def backward(context, gradient):
        inverse, = context.saved_tensors
        return gradient[inverse], None, None


def sorted_order(numbers):
    """Of equal ones the first stays first; and where each went."""
    order = torch.sort(numbers, stable=True).indices
    return order, torch.empty_like(order).scatter(0, order, torch.arange(order.numel(), device=order.device))


class Front(nn.Module):
    """Of a block what comes before its experts: attention, and rows in the order of experts."""

    def __init__(self, config):
        super().__init__()
        self.experts, self.chosen = config.num_experts, config.num_experts_per_tok
        self.normalise = config.norm_topk_prob
        self.attention_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config)
        self.experts_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.router = nn.Linear(config.hidden_size, config.num_experts, bias=False)

    def forward(self, residual):
        residual = residual + self.attention(self.attention_norm(residual))
        tokens = self.experts_norm(residual).flatten(0, 1)
        weights, indices = self.router(tokens).float().softmax(-1).topk(self.chosen, -1)
        if self.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        indices = indices.flatten()
        counts = indices.new_zeros(self.experts).scatter_add(0, indices, torch.ones_like(indices))
        order, places = sorted_order(indices)
        return residual, Spread.apply(tokens, order, places, self.chosen), weights, order, places, counts


def combine(residual, rows, weights, order, places):
    """Adds what experts made of each token, times its weights."""
    rows = Permute.apply(rows, places, order).unflatten(0, weights.shape)
    return residual + (rows * weights[..., None].to(rows.dtype)).sum(1).view_as(residual)


def grouped_product(rows, matrices, ends):
    """rows [M, K] of experts' [E, K, N]: each expert's rows end where `ends` says."""
    if rows.is_cuda:
        return torch._grouped_mm(rows, matrices, offs=ends)
    stops = [0, *ends.tolist()]
    return torch.cat([rows[a:b] @ matrix for a, b, matrix in zip(stops, stops[1:], matrices)])


def run_experts(rows, ends, gate_up, down):
    gate, up = grouped_product(rows, gate_up.transpose(-1, -2), ends).chunk(2, -1)
    return grouped_product(functional.silu(gate) * up, down.transpose(-1, -2), ends)


class Experts(nn.Module):
    """[E, outputs, inputs], E of this rank."""

    def __init__(self, config, count):
        super().__init__()
        inner = config.moe_intermediate_size
        self.gate_up = nn.Parameter(torch.empty(count, 2 * inner, config.hidden_size))
        self.down = nn.Parameter(torch.empty(count, config.hidden_size, inner))
        self.run = run_experts

    def forward(self, rows, ends):
        return self.run(rows, ends, self.gate_up, self.down)


class Exchange(torch.autograd.Function):
    """Rows to the ranks that have their experts, or back."""

    @staticmethod
    def forward(context, rows, sent, received, group):
        context.sizes = (received, sent, group)
        got = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(got, rows.contiguous(), received, sent, group=group)
        return got

    @staticmethod
    def backward(context, gradient):
        return (Exchange.apply(gradient, *context.sizes), None, None, None)


class Block(nn.Module):
    def __init__(self, config, ep, group):
        super().__init__()
        self.front = Front(config)
        self.experts = Experts(config, config.num_experts // ep)
        self.ep, self.group = ep, group
        self.combine = combine

    def forward(self, residual):
        residual, rows, weights, order, places, counts = self.front(residual)
        if self.ep == 1:
            rows = self.experts(rows, counts.cumsum(0).to(torch.int32))
        else:
            rows = self.exchanged(rows, counts)
        return self.combine(residual, rows, weights, order, places)

    def exchanged(self, rows, counts):
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        theirs = theirs.view(self.ep, -1)  # [rank it comes from, expert of this rank]
        sent, received = torch.stack((counts.view(self.ep, -1).sum(1), theirs.sum(1))).tolist()
        rows = Exchange.apply(rows, sent, received, self.group)
        expert = torch.arange(theirs.shape[1], device=rows.device).repeat(self.ep)
        expert = torch.repeat_interleave(expert, theirs.flatten(), output_size=sum(received))
        order, places = sorted_order(expert)
        rows = self.experts(Permute.apply(rows, order, places), theirs.sum(0).cumsum(0).to(torch.int32))
        return Exchange.apply(Permute.apply(rows, places, order), received, sent, self.group)


class Model(nn.Module):
    def __init__(self, config, ep, group):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, ep, group) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens):
        rows = self.embedding(tokens)
        for block in self.blocks:
            rows = block(rows)
        return self.head(self.norm(rows))


def loss_of(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


# ---- over ranks ---------------------------------------------------------------------------------


def compile_parts(model, ep):
    for block in model.blocks:
        if ep == 1:
            block.compile()
            continue
        block.front.compile()
        block.experts.run = torch.compile(run_experts, dynamic=True)
        block.combine = torch.compile(combine)


def shard(model, arguments, ep):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    world = dist.get_world_size()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, arguments.reduce))
    everyone = init_device_mesh("cuda", (world,))
    copies = init_device_mesh("cuda", (world // ep, ep), mesh_dim_names=("copies", "ep"))["copies"]
    for block in model.blocks:
        if ep > 1:
            # Of one rank alone there is nothing to gather again.
            fully_shard(block.experts, mesh=copies, mp_policy=policy, reshard_after_forward=world > ep)
            block.experts.set_gradient_divide_factor(world)  # all ranks' tokens are in a gradient of theirs
        fully_shard(block, mesh=everyone, mp_policy=policy)
    fully_shard(model, mesh=everyone, mp_policy=policy)
    if ep > 1:  # the host waits for sizes, so it must ask for the next block before
        parts = [[block, block.experts] for block in model.blocks]
        for block, after in zip(model.blocks, parts[1:]):
            block.set_modules_to_forward_prefetch(after)
        for block, before in zip(model.blocks[1:], parts):
            block.set_modules_to_backward_prefetch(before)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def set_weights(model, device, ep, rank):
    """On the CPU, where nothing is sharded, of each parameter the same whatever --ep is."""
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            if parameter.ndim < 2:
                local(parameter).fill_(1)
            elif device.type == "cuda":
                local(parameter).normal_(std=0.02)
            else:
                dealt = ep if ".experts." in name else 1
                whole = torch.empty(parameter.shape[0] * dealt, *parameter.shape[1:])
                whole.normal_(std=0.02, generator=torch.Generator().manual_seed(number))
                parameter.copy_(whole.chunk(dealt)[rank % dealt])


def average_on_cpu(model, world, copies):
    """What FSDP2 does on GPUs: means over ranks; of experts that are dealt out over the ranks that have them."""
    for name, parameter in model.named_parameters():
        group = copies if ".experts." in name else None
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= world


def clip(parameters, limit, dealt):
    """By the norm over all ranks. Each rank's part of a parameter is its own; on the CPU (`dealt`: groups of
    parameters with the part of a rank) dense ones are all ranks' alike. torch's own takes no mixture of meshes."""
    squares = 0
    for part, group in zip(dealt, parameters):
        squares = squares + part * torch.stack(torch._foreach_norm([local(p.grad) for p in group])).square().sum()
    dist.all_reduce(squares)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([local(p.grad) for group in parameters for p in group], factor.item() if factor.is_cpu else factor)


def flops_of(config, sequence):
    """A token's, forward and backward: of its own experts only."""
    width = config.num_attention_heads * config.head_dim
    heads = 2 * width + 2 * config.num_key_value_heads * config.head_dim
    experts = 3 * config.num_experts_per_tok * config.moe_intermediate_size
    block = config.hidden_size * (heads + config.num_experts + experts)
    matrices = config.num_hidden_layers * block + config.vocab_size * config.hidden_size
    return 6 * matrices + 6 * config.num_hidden_layers * width * sequence


class Clock:
    """Milliseconds of each step: of the GPU's own events, or of the host."""

    def __init__(self, device):
        self.on_gpu, self.marks = device.type == "cuda", []

    def mark(self):
        if self.on_gpu:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter() * 1000)

    def steps(self):
        if self.on_gpu:
            torch.cuda.synchronize()
        return [a.elapsed_time(b) if self.on_gpu else b - a for a, b in zip(self.marks, self.marks[1:])]


class Windows:
    """Random windows of a text's bytes, other ones on each rank."""

    def __init__(self, arguments, device, rank):
        self.bytes = torch.tensor(list(pathlib.Path(arguments.data).read_bytes()), device=device)
        self.shape, self.random = (arguments.micro_batch, arguments.seq + 1), torch.Generator().manual_seed(rank)
        if self.bytes.numel() <= arguments.seq + 1:
            sys.exit(f"speed_moe.py: --data: expected more than {arguments.seq + 1} bytes, got {self.bytes.numel()}")

    def next(self):
        begins = torch.randint(self.bytes.numel() - self.shape[1], (self.shape[0], 1), generator=self.random)
        return self.bytes[begins.to(self.bytes.device) + torch.arange(self.shape[1], device=self.bytes.device)]


def make_groups(ep):
    """This rank's groups: that over which experts are dealt out, and the ranks that have the same ones."""
    world, mine = dist.get_world_size(), [None, None]
    exchanges = [list(range(first, first + ep)) for first in range(0, world, ep)]
    copies = [list(range(first, world, ep)) for first in range(ep)]
    for kind, groups in enumerate((exchanges, copies)):
        for ranks in groups:
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine[kind] = group
    return mine


def train(arguments, config, ep, device, compiled, groups):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    on_gpu = device.type == "cuda"
    if on_gpu:
        with torch.device("meta"):
            model = Model(config, ep, groups[0])
    else:
        model = Model(config, ep, groups[0])
    if compiled:
        compile_parts(model, ep)
    if on_gpu:
        shard(model, arguments, ep)
        model.to_empty(device=device)
    set_weights(model, device, ep, rank)
    angles = angles_of(config, arguments.seq, device)
    for block in model.blocks:
        block.front.attention.angles = angles
    criterion = torch.compile(loss_of) if compiled else loss_of
    # Groups of their own, as one launch takes tensors of one mesh.
    named = list(model.named_parameters())
    parameters = [[p for name, p in named if (".experts." in name) == dealt] for dealt in (False, True)]
    optimizer = torch.optim.AdamW([{"params": group} for group in parameters], lr=arguments.lr, betas=(0.9, 0.95),
                                  **({"fused": True} if on_gpu else {}))
    windows, clock, losses = Windows(arguments, device, rank), Clock(device), []
    for _ in range(arguments.steps):
        clock.mark()
        tokens = windows.next()
        loss = criterion(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        if not on_gpu:
            average_on_cpu(model, world, groups[1])
        clip(parameters, 1.0, (1, 1) if on_gpu else (1 / world, ep / world))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    clock.mark()
    times = clock.steps()
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    return times, (losses / world).tolist()


def result_of(arguments, config, ep, compiled, times, losses):
    world = dist.get_world_size()
    ended = time.time()
    step = statistics.median(times[-arguments.timed:])
    rate = arguments.seq * arguments.micro_batch / step * 1000
    memory = {}
    if arguments.device == "cuda":
        memory = {"device": torch.cuda.get_device_name(),
                  "allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                  "reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2)}
    return {"torch": torch.__version__, "gpus": world, "ep": ep, "layers": arguments.layers, "sequence": arguments.seq,
            "micro_batch": arguments.micro_batch, "compile": compiled, "reduce": arguments.reduce,
            "timed": arguments.timed, "timed_from": round(ended - sum(times[-arguments.timed:]) / 1000, 3),
            "timed_to": round(ended, 3), "step_ms": round(step, 2), "slowest_ms": round(max(times[-arguments.timed:]), 2),
            "tokens_per_s": round(rate * world, 1), "tokens_per_s_per_gpu": round(rate, 1),
            "tflops_per_gpu": round(rate * flops_of(config, arguments.seq) / 1e12, 1), **memory,
            "first_loss": losses[0], "last_loss": losses[-1],
            "losses": {str(step): round(losses[step - 1], 6) for step in range(1, len(losses) + 1)
                       if step % 10 == 0 or len(losses) <= 10}}


def work(arguments):
    """One of the processes."""
    ep, = arguments.ep
    config = read_config(arguments)
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    groups = make_groups(ep)
    compiled = arguments.compile and arguments.device == "cuda"
    times, losses = train(arguments, config, ep, device, compiled, groups)
    result = result_of(arguments, config, ep, compiled, times, losses)
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


# ---- the command that starts them ---------------------------------------------------------------


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(processes):
    """Whether all ended well; one that fails ends the others, which would wait for it."""
    while True:
        codes = [process.poll() for process in processes]
        if any(code not in (None, 0) for code in codes):
            for process in processes:
                process.kill()
                process.wait()
            return False
        if None not in codes:
            return True
        time.sleep(0.2)


def start(arguments, ep, compiled):
    """The result of one run, or None."""
    command = [sys.executable, __file__, "--ep", str(ep)]
    for name in ("model", "data", "layers", "seq", "micro_batch", "steps", "timed", "reduce", "lr", "device"):
        command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    if not compiled:
        command.append("--no-compile")
    around = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(arguments.gpus)}
    with tempfile.TemporaryFile("w+") as said:
        ended = wait_for([
            subprocess.Popen(command, stdout=said if rank == 0 else subprocess.DEVNULL,
                             env={**around, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(arguments.gpus)])
        said.seek(0)
        results = [line for line in said if line.startswith("{")]
    return json.loads(results[0]) if ended and results else None


def main():
    arguments = parse_arguments()
    if "LOCAL_RANK" in os.environ:
        work(arguments)
        return 0
    if arguments.output == "table":
        print("| " + " | ".join(title for _, title in COLUMNS) + " | losses |\n" + "|---:" * len(COLUMNS) + "|---|", flush=True)
    failed = False
    for ep in arguments.ep:
        result = start(arguments, ep, arguments.compile)
        if result is None and arguments.compile and arguments.device == "cuda":
            print(f"speed_moe.py: --ep {ep} failed (see above): once more without compilation", file=sys.stderr)
            result = start(arguments, ep, False)
        if result is None:
            print(f"speed_moe.py: --ep {ep} failed (see above)", file=sys.stderr)
            failed = True
        elif arguments.output == "json":
            print(json.dumps(result), flush=True)
        else:
            cells = [str(result.get(key, "")) for key, _ in COLUMNS]
            cells.append(", ".join(f"{step}: {loss:.4f}" for step, loss in result["losses"].items()))
            print("| " + " | ".join(cells) + " |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
