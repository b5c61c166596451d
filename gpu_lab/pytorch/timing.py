"""Times of PyTorch: of calls by CUDA events, of steps, and what both are worth in FLOP."""

import json
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

from gpu_lab.machine import GIB
from gpu_lab.results import Json


def timed(call: Callable[[], Any], times: int = 1) -> tuple[Any, Any]:
    """Events before and after `calls` calls. Read them after a synchronisation."""
    import torch
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        call()
    end.record()
    return begin, end


def median_ms(call: Callable[[], Any], warm: int = 3, count: int = 10) -> float:
    """The median of single calls."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(count):
        begin, end = timed(call)
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


class Clock:
    """Milliseconds of each step: by the GPU's events or, on the CPU, by the host's clock."""

    def __init__(self, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.marks: list[Any] = []

    def mark(self) -> None:
        """Between two steps."""
        if not self.on_gpu:
            self.marks.append(time.perf_counter() * 1000)
            return
        import torch
        self.marks.append(torch.cuda.Event(enable_timing=True))
        self.marks[-1].record()

    def steps(self) -> list[float]:
        """The time of each step; waits for the GPU."""
        if self.on_gpu:
            import torch
            torch.cuda.synchronize()
        return [a.elapsed_time(b) if self.on_gpu else b - a for a, b in zip(self.marks, self.marks[1:])]


def train_flops(layers: int, block_parameters: int, head_parameters: int, attention_width: int, sequence: int) -> int:
    """FLOP of a token forward and backward, as mfsdp counts them.

    6 FLOP for each parameter of a matrix, head included, embedding not, and half of attention, which is causal.
    """
    return 6 * (layers * block_parameters + head_parameters) + 6 * layers * attention_width * sequence


def step_facts(times: list[float], timed_steps: int, tokens: int, flops: int, on_gpu: bool = True) -> Json:
    """The median of the last steps (ms), tokens of a GPU and second, TFLOP/s of a GPU, memory, and when they ran.

    `tokens`: of one GPU and step; `flops`: of a token. Times of day are seconds since 1970.
    """
    import torch
    ended, last = time.time(), times[-timed_steps:]
    step = statistics.median(last)
    rate = tokens / step * 1000
    facts = {"torch": torch.__version__, "timed": timed_steps, "timed_from": round(ended - sum(last) / 1000, 3),
             "timed_to": round(ended, 3), "step_ms": round(step, 2), "slowest_ms": round(max(last), 2),
             "tokens_per_s_per_gpu": round(rate, 1), "tflops_per_gpu": round(rate * flops / 1e12, 1)}
    if on_gpu:
        facts.update(device=torch.cuda.get_device_name(), allocated_gib=round(torch.cuda.max_memory_allocated() / GIB, 2),
                     reserved_gib=round(torch.cuda.max_memory_reserved() / GIB, 2))
    return facts


def write_snapshot(path: str | pathlib.Path) -> None:
    """Every allocation since the process began to record them."""
    import torch
    torch.cuda.memory._dump_snapshot(str(path))


def print_facts(facts: Json) -> None:
    """One JSON object on a line."""
    print(json.dumps(facts), flush=True)
