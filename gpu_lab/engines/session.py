"""Many timed runs of other engines in one set of processes: to start a run takes longer than the run itself."""

import gc
import json
import pathlib
import time
from typing import Any

from gpu_lab.engines import train
from gpu_lab.engines.recordings import pack
from gpu_lab.machine import model_path
from gpu_lab.results import Json
from gpu_lab.runs import Run, read_runs


def words_of(run: Run, out: pathlib.Path, steps: str) -> list[str]:
    """The run as flags of `engines train`."""
    words = run.train_words(model_path(run.model), "--steps", str(run.steps or steps))[2:]
    words += ["--alone"] if run.ranks == 1 else []
    words += ["--exposed", "--kernels", str(out / f"kernels_{run.number}.json")] if run.exposed else []
    words += ["--trace", str(out / f"run_{run.number}.trace.json")] if run.trace else []
    return words


def time_is_over(device: Any, spent: float, seconds: float) -> bool:
    """Whether rank 0's clock is past the limit; the same on every rank."""
    import torch
    import torch.distributed as dist
    value = torch.tensor([spent], device=device)
    dist.broadcast(value, 0)
    return value.item() > seconds


def write_row(run: Run, facts: Json, out: pathlib.Path, begun: float, took: float) -> None:
    """Appends a run to measured.jsonl and prints a line."""
    pack(out / f"run_{run.number}.trace.json")
    row: Json = {**run.row, "number": run.number, "begun_s": round(begun, 1), "took_s": round(took, 1)}
    with open(out / "measured.jsonl", "a") as file:
        file.write(json.dumps({"run": row, "facts": facts}) + "\n")
    print(run.number, run.engine, run.model, run.sequence, "x", run.micro_batch, "on", run.ranks, "ranks:",
          facts.get("step_ms", facts.get("out_of_memory")), "ms, exposed", facts.get("exposed_ms"), "operator",
          facts.get("operator_us"), f"us; {row['took_s']} s", flush=True)


def run_session(path: str, out: pathlib.Path, first: int, steps: str, seconds: float) -> None:
    """Runs a list from number `first` on; no run begins after `seconds`."""
    import torch
    import torch.distributed as dist
    start = time.time()
    runs = read_runs(path)
    out.mkdir(parents=True, exist_ok=True)
    device = train.join(train.parse(words_of(runs[0], out, steps)))
    for run in runs[first:]:
        if time_is_over(device, time.time() - start, seconds):
            break
        torch.cuda.reset_peak_memory_stats()
        begun = time.time() - start
        facts = train.record_or_fail(train.parse(words_of(run, out, steps)), device)
        if dist.get_rank() == 0:
            write_row(run, facts, out, begun, time.time() - start - begun)
        if "out_of_memory" in facts:
            break
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    dist.destroy_process_group()
