"""Starts one process for each GPU of this host, as torchrun does. Needs no PyTorch itself, and works with any version."""

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from gpu_lab.command_line import Flags, add_command, add_dry_run
from gpu_lab.launch import describe


def free_port() -> int:
    """A TCP port of this host that no process listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def rank_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The variables from which PyTorch learns its rank and the others. As in torchrun, ranks share the cores: one thread each."""
    threads = {} if ranks == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    return {**threads, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def wait_for(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """The first exit code that is not 0, or 0. A process that fails ends the others, which would wait for it."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [code for code in codes if code not in (None, 0)]
        if failed or None not in codes:
            break
        time.sleep(0.1)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return (failed[0] or 0) if failed else 0


def ranks(flags: Flags) -> int:
    """Runs a command on N GPUs of this host, one process for each: `ranks --gpus N -- COMMAND...`.

    As torchrun, it sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. A process that fails ends the others.
    Commands with --gpus use it themselves; they also run under torchrun.
    """
    port = free_port()
    if flags.dry_run:
        print("\n".join(describe(flags.after, rank_environment(rank, flags.gpus, port)) for rank in range(flags.gpus)))
        return 0
    code = wait_for([subprocess.Popen(flags.after, env={**os.environ, **rank_environment(rank, flags.gpus, port)})
                     for rank in range(flags.gpus)])
    return code if code >= 0 else 128 - code


def add_to(commands: Any) -> None:
    """Adds `ranks`."""
    parser = add_command(commands, "ranks", ranks, ranks.__doc__, "what COMMAND needs", takes_command=True)
    parser.add_argument("--gpus", type=int, required=True)
    add_dry_run(parser)
