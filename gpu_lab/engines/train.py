"""Trains a plain Llama with another engine, and measures time and memory."""

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpu_lab.engines.engine_models import ENGINES, Options
from gpu_lab.engines.llama import angles
from gpu_lab.engines.model_code import CODES
from gpu_lab.engines.traces import communication_of, kernels_of, trace_step
from gpu_lab.results import Json
from gpu_lab.runs import FAMILIES


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of `engines train`."""
    parser.add_argument("--engine", choices=list(FAMILIES), required=True)
    parser.add_argument("--model", required=True, help="config.json of Hugging Face")
    parser.add_argument("--layers", type=int, help="instead of the configuration's")
    parser.add_argument("--untied", action="store_true", help="a head of its own, whatever the configuration has")
    parser.add_argument("--sequence", type=int, required=True, help="tokens")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a GPU and forward")
    parser.add_argument("--microbatches", type=int, default=1, help="of a step")
    parser.add_argument("--ranks", type=int, default=1, help="with --fake")
    parser.add_argument("--alone", action="store_true", help="each of several processes is the only rank of its run (fsdp2)")
    parser.add_argument("--fake", action="store_true", help="this process is rank 0 of --ranks; collectives move nothing")
    parser.add_argument("--compile", action="store_true", help="compiles every block")
    parser.add_argument("--fuse", action="store_true", help="compiles the element-wise functions alone")
    parser.add_argument("--recompute", action="store_true", help="every block's forward again in backward")
    parser.add_argument("--reduce", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--double-buffer", action="store_true", help="of megatron-fsdp-v1")
    parser.add_argument("--strategy", choices=["no_shard", "optim", "optim_grads", "optim_grads_params"],
                        default="optim_grads_params",
                        help="optim_grads is ZeRO-2 (fsdp2: reshard_after_forward=False, fsdp1: SHARD_GRAD_OP); optim, ZeRO-1, is "
                             "not of fsdp2; no_shard is ddp's alone")
    parser.add_argument("--modules", choices=list(CODES), default="fused",
                        help="of fsdp2, whose code the model has: a plain Llama (fused), transformers, or torchtitan's Llama")
    parser.add_argument("--fsdp-unit", choices=["block", "block,ends"], default="block",
                        help="of fsdp2: one unit for both ends, or the embedding and norm with head apart")
    parser.add_argument("--selective-ac", choices=["op"], help="of fsdp2: torchtitan's recomputation by operator")
    parser.add_argument("--accumulate-unsharded", action="store_true", help="of fsdp2: only the last microbatch reduces")
    parser.add_argument("--compile-loss", action="store_true", help="compiles the loss of --modules")
    parser.add_argument("--engine-option", action="append", default=[], metavar="NAME=X",
                        help="of fsdp1: limit_all_gathers, forward_prefetch, no_sync; of ddp: bucket_cap_mb, "
                             "gradient_as_bucket_view, no_sync; of DeepSpeed: its names of zero_optimization")
    parser.add_argument("--outer", type=int, default=1, help="HSDP: copies of the weights")
    parser.add_argument("--clip", type=float, help="the norm that gradients are clipped to")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--snapshot", help="every allocation of rank 0, for mfsdp-sim --replay")
    parser.add_argument("--memory-part", type=float, help="share of the GPU's memory that PyTorch may reserve")
    parser.add_argument("--trace", help="Kineto's trace of one more step")
    parser.add_argument("--exposed", action="store_true", help="communication of one more step, and what of it is exposed")
    parser.add_argument("--kernels", help="with --exposed: times of that step's kernels by name, as JSON")


def parse(words: Sequence[str]) -> Options:
    """Flags of a run, without a process of its own."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(words)


def join(options: Options) -> Any:
    """This process's device, as one rank of several."""
    import torch
    import torch.distributed as dist
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if options.fake:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=options.ranks, store=FakeStore())
    else:
        dist.init_process_group("nccl", device_id=device)
    return device


def of_all_ranks(options: Options, value: Any) -> list[Any]:
    """Gathers a value of every rank. All ranks must call this."""
    import torch.distributed as dist
    if options.fake or dist.get_world_size() == 1:
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def operator_us(device: Any) -> float:
    """Microseconds of the host for one small operator, its kernel's launch included."""
    import torch
    one, times = torch.zeros(16, device=device), []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(400):
            one.add_(1.0)
        times.append((time.perf_counter() - begin) / 400 * 1e6)
        torch.cuda.synchronize()
    return round(statistics.median(times), 3)


class Training:
    """A model that trains on the same random tokens in every step."""

    def __init__(self, options: Options, device: Any) -> None:
        import torch
        self.options = options
        self.config: Json = json.loads(pathlib.Path(options.model).read_text())
        if options.layers:
            self.config["num_hidden_layers"] = options.layers
        torch.manual_seed(1234)
        make = ENGINES[FAMILIES[options.engine]]
        self.model, self.optimizer, self.microbatch = make(options, self.config, device, getattr(torch, options.reduce))
        self.parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        self.angles = angles(options.sequence, self.config, device)
        self.tokens = torch.randint(0, self.config["vocab_size"], (options.micro_batch, options.sequence + 1), device=device)
        self.times: list[float] = []  # seconds of each step
        self.issues: list[list[float]] = []  # ms at which the host had issued each forward, backward and the optimizer

    def step(self) -> list[float]:
        """One step; the seconds at which the host had issued each part."""
        import torch
        ends = []
        for number in range(self.options.microbatches):
            with self.microbatch(number + 1 == self.options.microbatches):
                loss = self.model(self.tokens[:, :-1], self.tokens[:, 1:], *self.angles)
                ends.append(time.perf_counter())
                loss.backward()
                ends.append(time.perf_counter())
        if self.options.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.options.clip, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        ends.append(time.perf_counter())
        return ends

    def run(self) -> None:
        """All steps, each of which the host waits for."""
        import torch
        for _ in range(self.options.steps):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            ends = self.step()
            self.issues.append([round((end - begin) * 1e3, 2) for end in ends])
            torch.cuda.synchronize()
            self.times.append(time.perf_counter() - begin)


def facts_of(training: Training) -> Json:
    """A description of the run, the times of its steps (ms), and its memory (bytes)."""
    import torch
    import torch.distributed as dist
    options, times = training.options, training.times
    free, total = torch.cuda.mem_get_info()
    copied = ("engine", "sequence", "micro_batch", "microbatches", "fake", "compile", "fuse", "recompute", "reduce",
              "double_buffer", "strategy", "outer", "modules", "fsdp_unit", "selective_ac", "accumulate_unsharded",
              "compile_loss", "engine_option")
    return {**{name: getattr(options, name) for name in copied}, "clip": options.clip or 0,
            "model": os.path.abspath(options.model).split(os.sep)[-2], "layers": training.config["num_hidden_layers"],
            "ranks": 1 if options.alone else dist.get_world_size(),
            "step_ms": round(statistics.median(times[len(times) // 2:]) * 1e3, 2),
            "steps_ms": [round(one * 1e3, 2) for one in times],
            "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
            "device": total - free, "reserved_now": torch.cuda.memory_reserved(),
            "retries": torch.cuda.memory_stats()["num_alloc_retries"], "torch": torch.__version__}


def add_exposed(facts: Json, options: Options, step: Callable[[], Any]) -> None:
    """Adds communication of one more step. A rank that is ahead waits in collectives, so the least exposed one counts."""
    import torch.distributed as dist
    trace = trace_step(step)
    if options.kernels and dist.get_rank() == 0:
        pathlib.Path(options.kernels).write_text(json.dumps(kernels_of(trace), indent=0))
    mine = {name: round(value, 3) for name, value in communication_of(trace).items()}
    facts["traced"] = of_all_ranks(options, mine)
    facts.update(min(facts["traced"], key=lambda one: one["exposed_ms"]))


def record_history() -> None:
    """Begins to record every allocation of this process. STACKS: "python" or "all"; CONTEXT: "alloc" records stacks."""
    import torch
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks=os.environ.get("STACKS", "python"),
                                             context=os.environ.get("CONTEXT") or None)


def record(options: Options, device: Any) -> Json:
    """Trains; what that took."""
    import torch
    import torch.distributed as dist
    training = Training(options, device)
    training.run()
    facts = facts_of(training)
    facts["issue_ms"] = of_all_ranks(options, training.issues[len(training.issues) // 2:])
    facts["memory_of_ranks"] = of_all_ranks(options, [facts["allocated"], facts["reserved"]])
    facts["operator_us"] = of_all_ranks(options, operator_us(device))
    facts["steps_of_ranks_ms"] = of_all_ranks(options, facts["step_ms"])
    if options.snapshot and dist.get_rank() == 0:
        torch.cuda.memory._dump_snapshot(options.snapshot)
    if options.exposed:
        add_exposed(facts, options, training.step)
    if options.trace:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], record_shapes=True) as profiler:
            training.step()
            torch.cuda.synchronize()
        if dist.get_rank() == 0:
            profiler.export_chrome_trace(options.trace)
    return facts


def record_or_fail(options: Options, device: Any) -> Json:
    """The same, or {"out_of_memory": ...}."""
    import torch
    try:
        return record(options, device)
    except torch.OutOfMemoryError as error:
        if options.snapshot:
            torch.cuda.memory._dump_snapshot(options.snapshot)
        return {"out_of_memory": str(error).splitlines()[0]}


def train(options: Options) -> int:
    """Trains a plain Llama with FSDP2, FSDP1, DDP, Megatron-FSDP or DeepSpeed on random tokens, and prints one JSON object.

        python3 -m gpu_lab engines train --engine fsdp2 --model config.json --sequence 8192 --ranks 8 --fake
        torchrun --nproc-per-node N -m gpu_lab engines train --engine megatron-fsdp-v2 ...

    --fake: this process alone is rank 0 of the given number. It allocates what rank 0 allocates in a real run, as no size
    depends on values; times and losses mean nothing then. AdamW (fused), bf16 computation, fp32 main weights. Megatron-FSDP: its
    folder megatron/core/distributed/fsdp/src on PYTHONPATH. Memory in bytes, times in ms.
    """
    import torch
    import torch.distributed as dist
    if options.snapshot:
        record_history()
    device = join(options)
    if options.memory_part:
        torch.cuda.set_per_process_memory_fraction(options.memory_part)
    facts = record_or_fail(options, device)
    if dist.get_rank() == 0:
        print(json.dumps(facts), flush=True)
    dist.destroy_process_group()
    return 1 if "out_of_memory" in facts else 0
