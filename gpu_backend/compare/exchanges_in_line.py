#!/usr/bin/env python3
"""Puts a plan's exchanges of experts' rows back into compute's stream: what hides them is measured against that.

    mfsdp-sim --model deepseek_v2_lite --gpus 2 --ep 2 --plan-out beside.json --no-save
    exchanges_in_line.py beside.json in_line.json

Every tool takes the plan that it writes: mfsdp-verify --plan in_line.json proves it, mfsdp-sim prices it, mfsdp-exec
runs it. Ops keep their order and their buffers; exchanges wait in compute's stream instead of their own, and the
events between the two are waited for where they were recorded.
"""

import json
import pathlib
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    plan = json.loads(pathlib.Path(sys.argv[1]).read_text())
    streams = {stream["role"]: stream["id"] for stream in plan["streams"]}
    if "exchange" not in streams:
        sys.exit(f"{sys.argv[1]}: expected a stream of role exchange: no kernel hides this plan's exchanges")
    moved = 0
    for op in (op for part in plan["plans"] for segment in part["segments"] for op in segment["ops"]):
        if op.get("stream") == streams["exchange"]:
            op["stream"] = streams["compute"]
            moved += 1
    plan["streams"] = [stream for stream in plan["streams"] if stream["role"] != "exchange"]
    pathlib.Path(sys.argv[2]).write_text(json.dumps(plan))
    print(f"{moved} ops moved")


if __name__ == "__main__":
    main()
