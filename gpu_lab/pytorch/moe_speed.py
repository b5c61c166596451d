"""How fast PyTorch trains a model with experts (Qwen3-MoE): FSDP2, grouped GEMMs, expert parallelism."""

import argparse
import contextlib
import json
import os
import pathlib
import sys
from typing import Any

from gpu_lab.command_line import Flags
from gpu_lab.launch import Launcher, is_rank, ranks_command
from gpu_lab.machine import WrongFlag, gpu_count, model_path, text
from gpu_lab.pytorch.moe_model import Config, angles_of, compile_parts, loss_of, make_model
from gpu_lab.pytorch.timing import Clock, print_facts, step_facts, train_flops
from gpu_lab.results import Json, parse_lines

COLUMNS = (("gpus", "GPUs"), ("ep", "EP"), ("layers", "layers"), ("sequence", "sequence"), ("compile", "compiled"),
           ("step_ms", "step ms"), ("tokens_per_s", "tokens/s"), ("tokens_per_s_per_gpu", "and GPU"),
           ("tflops_per_gpu", "TFLOP/s, GPU"), ("allocated_gib", "allocated GiB"), ("reserved_gib", "reserved GiB"))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `pytorch moe-speed`."""
    parser.add_argument("--model", default="qwen3_30b_a3b", help="config.json of Qwen3-MoE, or a name of scenarios/models")
    parser.add_argument("--data", default=text(), help="file whose bytes are tokens")
    parser.add_argument("--layers", type=int, default=4, help="of the model's")
    parser.add_argument("--seq", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a GPU and step")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--timed", type=int, help="last steps that the median is of (four of five)")
    parser.add_argument("--ep", default="1", help="ranks over which experts are sharded: numbers, one run each")
    parser.add_argument("--gpus", type=int, help="processes (all GPUs; 2 on the CPU)")
    parser.add_argument("--reduce", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--output", default="table", choices=["table", "json"])


def check_flags(flags: Flags) -> None:
    """Fills in defaults; raises WrongFlag."""
    for name in ("layers", "seq", "micro_batch", "steps"):
        if getattr(flags, name) < 1:
            raise WrongFlag(f"--{name.replace('_', '-')}: expected at least 1")
    if flags.timed is None:
        flags.timed = max(1, flags.steps * 4 // 5)
    if not 1 <= flags.timed <= flags.steps:
        raise WrongFlag("--timed: expected 1 to --steps")
    try:
        flags.ep = [int(part) for part in flags.ep.split(",")]
    except ValueError as error:
        raise WrongFlag("--ep: expected numbers separated by commas") from error
    if flags.gpus is None:
        flags.gpus = gpu_count() if flags.device == "cuda" else 2
    world = int(os.environ.get("WORLD_SIZE", flags.gpus))
    if world < 1:
        raise WrongFlag("--device: expected a GPU, there is none")
    experts = read_config(flags).num_experts
    for ep in flags.ep:
        if ep < 1 or world % ep or experts % ep:
            raise WrongFlag(f"--ep: expected a divisor of {world} ranks and of {experts} experts, got {ep}")


def read_config(flags: Flags) -> Config:
    """The model's configuration, with --layers blocks."""
    config = json.loads(model_path(str(flags.model)).read_text())
    if config.get("model_type") != "qwen3_moe" or config.get("mlp_only_layers") or config.get("tie_word_embeddings"):
        raise WrongFlag("--model: expected qwen3_moe with experts in every block and a head of its own")
    config["num_hidden_layers"] = flags.layers
    return Config(**config)


# ---- over ranks ---------------------------------------------------------------------------------


def is_expert(name: str) -> bool:
    """Whether a parameter is sharded by expert."""
    return ".experts." in name


def shard(model: Any, flags: Flags, ep: int) -> None:
    """FSDP2 over all ranks; experts over the ranks that have the same ones."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    world = dist.get_world_size()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, flags.reduce))
    everyone = init_device_mesh("cuda", (world,))
    copies = init_device_mesh("cuda", (world // ep, ep), mesh_dim_names=("copies", "ep"))["copies"]
    for block in model.blocks:
        if ep > 1:
            # Where one rank alone has its experts, backward has nothing to gather.
            fully_shard(block.experts, mesh=copies, mp_policy=policy, reshard_after_forward=world > ep)
            block.experts.set_gradient_divide_factor(world)  # their gradients sum over all ranks' tokens
        fully_shard(block, mesh=everyone, mp_policy=policy)
    fully_shard(model, mesh=everyone, mp_policy=policy)
    if ep > 1:  # the host waits for sizes, so it has to gather the next block before
        parts = [[block, block.experts] for block in model.blocks]
        for block, after in zip(model.blocks, parts[1:]):
            block.set_modules_to_forward_prefetch(after)
        for block, before in zip(model.blocks[1:], parts):
            block.set_modules_to_backward_prefetch(before)


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def set_weights(model: Any, on_gpu: bool, ep: int, rank: int) -> None:
    """Random weights. On the CPU, where nothing is sharded by FSDP2, each parameter is the same whatever --ep is."""
    import torch
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            if parameter.ndim < 2:
                _local(parameter).fill_(1)
            elif on_gpu:
                _local(parameter).normal_(std=0.02)
            else:
                parts = ep if is_expert(name) else 1
                whole = torch.empty(parameter.shape[0] * parts, *parameter.shape[1:])
                whole.normal_(std=0.02, generator=torch.Generator().manual_seed(number))
                parameter.copy_(whole.chunk(parts)[rank % parts])


def average_on_cpu(model: Any, world: int, copies: Any) -> None:
    """Runs FSDP2 on GPUs: means over ranks, for experts over the ranks that have the same ones."""
    import torch.distributed as dist
    for name, parameter in model.named_parameters():
        dist.all_reduce(parameter.grad, group=copies if is_expert(name) else None)
        parameter.grad /= world


def clip(parameters: list[list[Any]], limit: float, parts: tuple[float, float]) -> None:
    """Clips by the norm over all ranks. `parts`: the share of each group's squares that counts on a rank.

    On GPUs each rank has a shard of its own; on the CPU all ranks have the dense ones alike. torch's own function takes no
    mixture of meshes.
    """
    import torch
    import torch.distributed as dist
    squares = sum(part * torch.stack(torch._foreach_norm([_local(p.grad) for p in group])).square().sum()
                  for part, group in zip(parts, parameters))
    dist.all_reduce(squares)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([_local(p.grad) for group in parameters for p in group], factor.item() if factor.is_cpu else factor)


def make_groups(ep: int) -> tuple[Any, Any]:
    """This rank's groups: over which experts are sharded, and of the ranks that have the same ones."""
    import torch.distributed as dist
    world = dist.get_world_size()
    mine: list[Any] = [None, None]
    exchanges = [list(range(first, first + ep)) for first in range(0, world, ep)]
    copies = [list(range(first, world, ep)) for first in range(ep)]
    for kind, groups in enumerate((exchanges, copies)):
        for ranks in groups:
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine[kind] = group
    return mine[0], mine[1]


class Windows:
    """Random windows of a text's bytes, other ones on each rank."""

    def __init__(self, flags: Flags, device: Any, rank: int) -> None:
        import torch
        self.bytes = torch.tensor(list(pathlib.Path(flags.data).read_bytes()), device=device)
        self.shape, self.random = (flags.micro_batch, flags.seq + 1), torch.Generator().manual_seed(rank)
        if self.bytes.numel() <= flags.seq + 1:
            raise WrongFlag(f"--data: expected more than {flags.seq + 1} bytes, got {self.bytes.numel()}")

    def next(self) -> Any:
        """Tokens, [micro-batch, sequence + 1]."""
        import torch
        begins = torch.randint(self.bytes.numel() - self.shape[1], (self.shape[0], 1), generator=self.random)
        return self.bytes[begins.to(self.bytes.device) + torch.arange(self.shape[1], device=self.bytes.device)]


def prepare(flags: Flags, config: Config, ep: int, device: Any, group: Any, compiled: bool) -> Any:
    """The model with its weights, sharded on GPUs."""
    import torch
    import torch.distributed as dist
    on_gpu = device.type == "cuda"
    with torch.device("meta") if on_gpu else contextlib.nullcontext():
        model = make_model(config, ep, group)
    if compiled:
        compile_parts(model, ep)
    if on_gpu:
        shard(model, flags, ep)
        model.to_empty(device=device)
    set_weights(model, on_gpu, ep, dist.get_rank())
    angles = angles_of(config, flags.seq, device)
    for block in model.blocks:
        block.front.attention.angles = angles
    return model


def train(flags: Flags, config: Config, ep: int, device: Any, compiled: bool) -> tuple[list[float], list[float]]:
    """Milliseconds and mean losses of all steps."""
    import torch
    import torch.distributed as dist
    rank, world, on_gpu = dist.get_rank(), dist.get_world_size(), device.type == "cuda"
    torch.manual_seed(rank)
    group, copies = make_groups(ep)
    model = prepare(flags, config, ep, device, group, compiled)
    criterion = torch.compile(loss_of) if compiled else loss_of
    # One launch of the optimizer takes tensors of one mesh, so experts are a group of their own.
    named = list(model.named_parameters())
    parameters = [[p for name, p in named if is_expert(name) == kind] for kind in (False, True)]
    optimizer = torch.optim.AdamW([{"params": one} for one in parameters], lr=flags.lr, betas=(0.9, 0.95),
                                  **({"fused": True} if on_gpu else {}))
    windows, clock, losses = Windows(flags, device, rank), Clock(on_gpu), []
    for _ in range(flags.steps):
        clock.mark()
        tokens = windows.next()
        loss = criterion(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        if not on_gpu:
            average_on_cpu(model, world, copies)
        clip(parameters, 1.0, (1, 1) if on_gpu else (1 / world, ep / world))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    clock.mark()
    times, all_losses = clock.steps(), torch.stack(losses)
    dist.all_reduce(all_losses)
    return times, (all_losses / world).tolist()


def flops_of(config: Config, sequence: int) -> int:
    """FLOP of a token, which its own experts alone compute."""
    width = config.num_attention_heads * config.head_dim
    heads = 2 * width + 2 * config.num_key_value_heads * config.head_dim
    experts = 3 * config.num_experts_per_tok * config.moe_intermediate_size
    block = config.hidden_size * (heads + config.num_experts + experts)
    return train_flops(config.num_hidden_layers, block, config.vocab_size * config.hidden_size, width, sequence)


def work(flags: Flags) -> None:
    """One of the processes."""
    import torch
    import torch.distributed as dist
    ep, = flags.ep
    config, on_gpu = read_config(flags), flags.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    compiled = flags.compile and on_gpu
    times, losses = train(flags, config, ep, device, compiled)
    facts = step_facts(times, flags.timed, flags.seq * flags.micro_batch, flops_of(config, flags.seq), on_gpu)
    world = dist.get_world_size()
    if dist.get_rank() == 0:
        print_facts({**facts, "gpus": world, "ep": ep, "layers": flags.layers, "sequence": flags.seq,
                     "micro_batch": flags.micro_batch, "compile": compiled, "reduce": flags.reduce,
                     "tokens_per_s": round(facts["tokens_per_s_per_gpu"] * world, 1),
                     "first_loss": losses[0], "last_loss": losses[-1],
                     "losses": {str(step): round(losses[step - 1], 6) for step in range(1, len(losses) + 1)
                                if step % 10 == 0 or len(losses) <= 10}})
    dist.destroy_process_group()


# ---- the command that starts them ---------------------------------------------------------------


def start(flags: Flags, launcher: Launcher, ep: int, compiled: bool) -> Json | None:
    """The result of one run; None where it failed."""
    words = ["pytorch", "moe-speed", "--ep", str(ep)]
    for name in ("model", "data", "layers", "seq", "micro_batch", "steps", "timed", "reduce", "lr", "device"):
        words += [f"--{name.replace('_', '-')}", str(getattr(flags, name))]
    done = launcher.run(ranks_command(flags.gpus, *words, *([] if compiled else ["--no-compile"])))
    results = parse_lines(done.out.splitlines())
    if done.code != 0 or not results:
        print(done.err, end="", file=sys.stderr)
        return None
    return results[0]


def moe_speed(flags: Flags) -> int:
    """Measures how fast PyTorch trains a model with experts (Qwen3-MoE): FSDP2, grouped GEMMs, expert parallelism.

        python3 -m gpu_lab pytorch moe-speed --layers 4 --seq 4096 --steps 50 --ep 1,2 [--gpus N]

    Each number of --ep is a run of its own and a row of the table. Needs no transformers: the model is in
    gpu_lab/pytorch/moe_model.py; random weights, bytes of --data as tokens, fp32 main weights, bf16 computation, fused
    AdamW, the norm clipped at 1. Experts are torch._grouped_mm over rows in the order of experts. --ep 1: FSDP2 gathers
    them with their block. --ep N: each of N ranks has a part of the experts. all_to_all_single sends rows, and the host
    reads their numbers, as in torchtitan. FSDP2 shards experts over the ranks that have the same ones, if there are several.
    Modules that can be compiled are compiled; if compilation fails, the run is repeated without, and its row has it.

    --device cpu: no FSDP2 and no grouped GEMM but the same dispatch and exchange, in fp32, over gloo: losses of every --ep
    have to be alike. That works with PyTorch 1.13.
    """
    check_flags(flags)
    if is_rank():
        work(flags)
        return 0
    launcher = Launcher(flags.dry_run)
    if flags.output == "table" and not flags.dry_run:
        print("| " + " | ".join(title for _, title in COLUMNS) + " | losses |\n" + "|---:" * len(COLUMNS) + "|---|", flush=True)
    failed = False
    for ep in flags.ep:
        result = start(flags, launcher, ep, flags.compile)
        if flags.dry_run:
            continue
        if result is None and flags.compile and flags.device == "cuda":
            print(f"--ep {ep} failed (see above): once more without compilation", file=sys.stderr)
            result = start(flags, launcher, ep, False)
        if result is None:
            print(f"--ep {ep} failed (see above)", file=sys.stderr)
            failed = True
        elif flags.output == "json":
            print_facts(result)
        else:
            cells = [str(result.get(key, "")) for key, _ in COLUMNS]
            cells.append(", ".join(f"{step}: {loss:.4f}" for step, loss in result["losses"].items()))
            print("| " + " | ".join(cells) + " |", flush=True)
    return 1 if failed else 0
