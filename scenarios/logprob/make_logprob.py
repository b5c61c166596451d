#!/usr/bin/env python3
"""Adds a plan of role logprob to a program: the plan for evaluation that also gives the host each label's log-probability.

  mfsdp-sim --model llama_nano --gpus 1 --global-batch 2 --seq-len 16 --no-save --plan-out one_gpu.json
  scenarios/logprob/make_logprob.py one_gpu.json scenarios/logprob/llama_nano.json

The kernels of the loss write the log-probabilities of their rows into a buffer of one number a token. It is copied to
the host before the report, so what the report waits for it waits for too. The first of these kernels waits until the
copy of the run before has ended.
"""
import copy
import json
import sys


def add_buffer(plan, name, pool_name, tokens, **more):
    """A persistent buffer at the end of a pool."""
    pool = next(p for p in plan["pools"] if p["name"] == pool_name)
    end = -(-pool["height"] // pool["alignment"]) * pool["alignment"]
    padded = -(-4 * tokens // pool["alignment"]) * pool["alignment"]
    pool["lower_bound"] += padded
    pool["height"] = end + padded
    made = {"category": "workspace", "dtype": "fp32", "id": max(b["id"] for b in plan["buffers"]) + 1, "name": name,
            "offset": end, "persistent": True, "pool": pool["id"], "size": 4 * tokens, **more}
    plan["buffers"].append(made)
    return made["id"]


def numbers(role, access, buffer, begin, count):
    return {"access": access, "buffer": buffer, "dtype": "fp32", "offset": 4 * begin, "role": role, "shape": [count]}


def add_logprob(plan):
    tokens = plan["config"]["micro_batch"] * plan["config"]["seq_len"]
    device = add_buffer(plan, "log_probs", "workspace", tokens)
    host = add_buffer(plan, "pinned_log_probs", "pinned", tokens, holds={"kind": "port", "port": "log_probs"})
    evaluates = next(p for p in plan["plans"] if p["name"] == "eval")
    made = copy.deepcopy(evaluates)
    made["name"], made["role"] = "log_probabilities", "logprob"
    ids = [op["id"] for p in plan["plans"] for s in p["segments"] for op in s["ops"]]
    first = max(ids) + 1
    new_ids = {op["id"]: first + i for i, op in enumerate(op for s in made["segments"] for op in s["ops"])}
    more = 0
    all_ops = [op for s in made["segments"] for op in s["ops"]]
    copied = next(i for i, op in enumerate(all_ops) if op["body"].get("copy", {}).get("kind") == "d2h")
    ended = next(op for op in all_ops[copied:] if "record" in op["body"] and op["stream"] == all_ops[copied]["stream"])
    after = {"bindings": [{"distance": 1, "record": new_ids[ended["id"]]}], "event": ended["body"]["record"]["event"]}
    has_waited = False
    for segment in made["segments"]:
        ops = []
        for op in segment["ops"]:
            op["id"] = new_ids[op["id"]]
            op["name"] = op["name"].replace("eval.", "log_probabilities.")
            kind, body = next(iter(op["body"].items()))
            for binding in body.get("bindings", []):
                binding["record"] = new_ids[binding["record"]]
            if body.get("kind") == "cross_entropy_loss":
                if not has_waited:
                    waits = {k: op[k] for k in ("phase", "stream")}
                    ops.append({**waits, "id": first + len(new_ids) + more, "name": "log_probs_copied", "body": {"wait": after}})
                    more += 1
                    has_waited = True
                labels = next(o for o in body["operands"] if o["role"] == "labels")
                place = labels["offset"] // 4 - tokens
                body["operands"].insert(-1, numbers("log_probs", "write", device, place, labels["shape"][0]))
            if kind == "copy" and body["kind"] == "d2h":
                moved = {"input": numbers("input", "read", device, 0, tokens), "kind": "d2h",
                         "output": numbers("output", "write", host, 0, tokens)}
                ops.append({**op, "id": first + len(new_ids) + more, "name": "log_probs.d2h", "body": {"copy": moved}})
                more += 1
            ops.append(op)
        segment["ops"] = ops
    plan["plans"].append(made)


def main(source, target):
    with open(source) as file:
        plan = json.load(file)
    add_logprob(plan)
    plan["meta"]["hash"] = ""
    with open(target, "w") as file:
        json.dump(plan, file, sort_keys=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
