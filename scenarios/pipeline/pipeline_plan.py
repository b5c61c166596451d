"""The frame of a plan of several stages, and its file, for all makers of pipelines."""
import json
import math
import re
import subprocess


def body_of(op):
    return next(iter(op["body"].items()))


def job_of(base, stages, turns, meta):
    """A plan without classes. `turns`: the instances of each event, by name."""
    plan = {key: base[key] for key in ("schema", "streams", "units", "groups")}
    data = base["config"]["mesh"]["dense"]  # ranks that have other samples; often none
    mesh = [{"axis": "pp", "size": stages}, *data]
    plan["config"] = dict(base["config"], mesh={"dense": mesh})
    plan["communicators"] = [{"id": 0, "axes": ["pp"], "purpose": "pipeline", "size": stages}]
    if data:
        plan["communicators"].append({"id": 1, "axes": [on["axis"] for on in data],
                                      "purpose": "data", "size": data_ranks(base)})
    plan["events"] = [{"id": id, "name": n, **({"instances": turns[n]} if turns[n] > 1 else {})}
                      for id, n in enumerate(turns)]
    plan["meta"] = meta
    plan["buffers"], plan["plans"], plan["pools"], plan["classes"] = [], [], [], []
    return plan


def data_ranks(base):
    return math.prod(on["size"] for on in base["config"]["mesh"]["dense"])


def class_of(stage, pools, buffers, lists, ranks=1):
    """The class of one stage, whose plan has these segments and passes. Plans leave out defaults."""
    for segment in lists["segments"]:
        for key in ("live_in", "live_out"):
            if not segment.get(key):
                segment.pop(key, None)
    return {"role": f"stage_{stage}", "ranks": ranks, "at": [{"axis": "pp", "index": stage}],
            "pools": pools, "buffers": buffers, "plans": [{"name": "train", **lists}]}


def lines(value, indent=""):
    """Readable JSON: a line for each op, buffer, pool, segment with calls, ..."""
    inner = indent + " "
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + lines(v, inner) for v in value) + f"\n{indent}]"
    if isinstance(value, dict) and value.keys() & {"classes", "plans", "segments", "ops"}:
        entries = (f'{inner}"{key}": {lines(v, inner)}' for key, v in sorted(value.items()))
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    return json.dumps(value, sort_keys=True)


def write(plan, path):
    with open(path, "w") as file:
        file.write(lines(plan) + "\n")


def state_bounds(plan, path, verify):
    """Pools state the bounds that are proved."""
    found = subprocess.run([verify, "--plan", path, "--output", "json"], capture_output=True,
                           text=True, check=False).stdout
    for finding in json.loads(found)["findings"]:
        told = re.search(r"(\w+): pool '(\w+)' states a lower bound .* up to (\d+) bytes live",
                         finding.get("message", ""))
        for c in plan["classes"] if told else []:
            for pool in c["pools"]:
                if (c["role"], pool["name"]) == (told[1], told[2]):
                    pool["lower_bound"] = int(told[3])


def save(plan, path, verify):
    """With the path of mfsdp-verify, pools state the lower bounds that it finds."""
    write(plan, path)
    if verify:
        state_bounds(plan, path, verify[0])
        write(plan, path)
