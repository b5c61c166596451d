"""Many timed runs of other engines, each in processes of its own, which begin as copies of one that has loaded PyTorch."""

import os
import pathlib
import signal
import socket
import sys
import time
import traceback

from gpu_lab.engines import session, train
from gpu_lab.engines.recordings import pack
from gpu_lab.results import read_lines
from gpu_lab.runs import Run, read_runs

LONGEST = 150.0  # seconds of a run
LATER = 10.0  # seconds that other ranks have to end after one that failed


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _be_rank(run: Run, rank: int, port: int, out: pathlib.Path, steps: str, start: float) -> None:
    """One rank of a run, in a process that is about to end."""
    import torch.distributed as dist
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(run.ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    log = os.open(out / f"run_{run.number}_{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    words = session.words_of(run, out, steps)
    snapshot = out / f"run_{run.number}.pickle"
    words += ["--snapshot", str(snapshot)] if run.snapshot else []
    options = train.parse(words)
    begun = time.time()
    device = train.join(options)
    if run.snapshot and rank == 0:
        train.record_history()
    facts = train.record_or_fail(options, device)
    if rank == 0:
        pack(snapshot)
        session.write_row(run, facts, out, begun - start, time.time() - begun)
    if "out_of_memory" not in facts:
        dist.destroy_process_group()


def _start(run: Run, rank: int, port: int, out: pathlib.Path, steps: str, start: float) -> int:
    """The process number of a rank."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _be_rank(run, rank, port, out, steps, start)
        code = 0
    except BaseException:  # a rank never returns to its caller's code
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(children: list[int], seconds: float) -> bool:
    """Whether all end well within the time. Ends those that do not."""
    left, ends, good = set(children), time.time() + seconds, True
    while left and time.time() < ends:
        for child in list(left):
            done, status = os.waitpid(child, os.WNOHANG)
            if not done:
                continue
            left.discard(child)
            if status:
                good, ends = False, min(ends, time.time() + LATER)
        time.sleep(0.02)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return good and not left


def run_fresh(path: str, out: pathlib.Path, steps: str, seconds: float) -> int:
    """Runs a list, the runs that `out` has left out. No run begins after `seconds`. 1: some runs are not done."""
    start = time.time()
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a process that has used CUDA cannot be copied
    import torch.distributed.fsdp  # noqa: F401  # loaded once for all ranks
    out.mkdir(parents=True, exist_ok=True)
    measured = out / "measured.jsonl"
    done = {int(row["run"]["number"]) for row in read_lines(measured)} if measured.exists() else set()
    left = [run for run in read_runs(path) if run.number not in done]
    if any("transformers" in run.flags for run in left):
        import transformers.models.llama.modeling_llama  # noqa: F401
    if torch.cuda.is_initialized():
        raise RuntimeError("loading PyTorch initialized CUDA: leave out --fresh")
    failed = 0
    for count, run in enumerate(left):
        if time.time() - start > seconds:
            print("not done: call again for the rest", file=sys.stderr)
            return 1
        port = _free_port()
        children = [_start(run, rank, port, out, steps, start) for rank in range(run.ranks)]
        if not _wait(children, LONGEST):
            failed += 1
            print(f"{run.number} {run.engine} {run.title}: failed ({out}/run_{run.number}_0.log)", file=sys.stderr, flush=True)
            if failed == 2 and count == 1 and not done:
                print("the first two runs failed: no other is begun", file=sys.stderr)
                return 1
    return 1 if failed else 0
