"""Edits of plans that measurements need."""

import json
import pathlib
from typing import Any

from gpu_lab.command_line import Flags, add_command
from gpu_lab.machine import WrongFlag


def ops_of_a_step(plan_file: pathlib.Path) -> int:
    """How many ops the training plan of a program has."""
    return sum(len(segment["ops"]) for segment in training_plan(plan_file)["segments"])


def training_plan(plan_file: pathlib.Path) -> dict[str, Any]:
    """The plan named train of a program's file."""
    plans = json.loads(plan_file.read_text())["plans"]
    return next(plan for plan in plans if plan["name"] == "train")


def exchanges_in_line(flags: Flags) -> None:
    """Moves a plan's exchanges of expert rows back to the compute stream, where nothing hides them.

        mfsdp-sim --model deepseek_v2_lite --gpus 2 --ep 2 --plan-out beside.json --no-save
        python3 -m gpu_lab exchanges-in-line beside.json in_line.json

    The time of the new plan, less that of the old one, is what the overlap hides. Every tool takes the new plan:
    mfsdp-verify --plan in_line.json proves it, mfsdp-sim prices it, mfsdp-exec runs it. Ops keep their order and their
    buffers, and waits for the events between the two streams stay where they are.
    """
    program = json.loads(flags.plan.read_text())
    streams = {stream["role"]: stream["id"] for stream in program["streams"]}
    if "exchange" not in streams:
        raise WrongFlag(f"{flags.plan}: expected a stream of role exchange: nothing hides this plan's exchanges")
    moved = 0
    for op in (op for plan in program["plans"] for segment in plan["segments"] for op in segment["ops"]):
        if op.get("stream") == streams["exchange"]:
            op["stream"] = streams["compute"]
            moved += 1
    program["streams"] = [stream for stream in program["streams"] if stream["role"] != "exchange"]
    flags.out.write_text(json.dumps(program))
    print(f"{moved} ops moved")


def add_to(commands: Any) -> None:
    """Adds `exchanges-in-line`."""
    parser = add_command(commands, "exchanges-in-line", exchanges_in_line, exchanges_in_line.__doc__, "no GPU")
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
