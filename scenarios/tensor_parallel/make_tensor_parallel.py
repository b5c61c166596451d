#!/usr/bin/env python3
"""Makes a tensor-parallel plan: the plan of a model that has half the heads and half the MLP's features, as each of two ranks has them.

  mfsdp-sim --model scenarios/tensor_parallel/model_of_rank.json --gpus 2 --strategy optim --recompute none \\
    --global-batch 2 --seq-len 16 --no-save --plan-out rank.json
  scenarios/tensor_parallel/make_tensor_parallel.py rank.json scenarios/tensor_parallel/llama_tp2.json

Kernels with their shapes are the planner's. This is what changes:

  weights      qkv and gate_up are cut at their outputs, attention_out and down at their inputs, and the embedding in
               rows of the vocabulary, from another id on by rank (vocab_begin). Norms and the head are whole
  activations  what is partial is summed by an all_reduce: the embedding's rows, attention_out and mlp_out, and
               backward the gradients of both normed inputs
  gradients    ranks have the same tokens, so none is summed. Each rank updates its half of what is whole, and gathers
               the other half; norms of all parts are gathered
  loss         is whole on each rank
"""
import copy
import json
import sys

RANKS = 2
ACTIVATIONS = 1  # the communicator that summed gradients
ALIGNMENT = 256
CHUNK = 64  # elements
CUTS = {"outputs": (0, ["qkv", "gate_up"]), "inputs": (1, ["attention_out", "down"]),
        "norms": (None, ["input_norm", "post_norm"])}
KEPT = ("model_weight", "main_weight", "main_grad", "exp_avg", "exp_avg_sq")
SIZE = {"bf16": 2, "fp32": 4}
PARTIAL = ("embedding.lookup", ".attention_out", ".down", ".gate_up.dgrad", ".qkv.dgrad")


def up(number, to):
    return -(-number // to) * to


def count(shape):
    return shape[0] * count(shape[1:]) if shape else 1


def rename(value):
    """The axis of the planner's ranks is tp."""
    if isinstance(value, dict):
        return {key: rename(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rename(v) for v in value]
    return "tp" if value == "dp_shard" else value


class TensorParallel:
    def __init__(self, base):
        self.plan = rename(base)
        self.groups, self.buffers = [], []
        self.places = {}  # by old buffer and element: new group, its buffer of that kind, and element
        self.parts = {}   # by old group: its new ones
        self.next_buffer = max(b["id"] for b in base["buffers"]) + 1
        self.next_op = max(op["id"] for p in base["plans"] for s in p["segments"] for op in s["ops"]) + 1

    # ---- groups and their buffers

    def part(self, group, name, parameters, dim):
        """A group of some of another's parameters, whole or cut along a dim."""
        made = {**group, "id": len(self.groups), "parameters": [], "reduce": []}
        end = 0
        for parameter in parameters:
            made["parameters"].append({**parameter, "offset": end})
            end += up(count(parameter["shape"]), CHUNK)
        made["elements"] = up(end, CHUNK * RANKS)
        if dim is not None:
            made.update(shard=[{"axis": "tp", "dim": dim, "kind": "shard"}], cut=[], state=[])
        self.groups.append(made)
        self.parts.setdefault(group["id"], []).append(made)
        kept = {}
        for kind in KEPT:
            old = next(b for b in self.plan["buffers"] if b["name"].endswith("." + kind)
                       and b["holds"]["groups"][0]["group"] == group["id"])
            holds = {**old["holds"], "groups": [{"group": made["id"], "offset": 0}]}
            elements = made["elements"]
            if "placement" in holds and dim is None:
                elements //= RANKS
            elif "placement" in holds:
                del holds["placement"]
            buffer = {**old, "id": self.next_buffer, "holds": holds, "name": old["name"].replace(kind, name + kind),
                      "size": elements * SIZE[old["dtype"]]}
            self.next_buffer += 1
            self.buffers.append(buffer)
            kept[kind] = buffer["id"]
            for parameter, placed in zip(parameters, made["parameters"]):
                self.places[old["id"], parameter["offset"]] = (buffer["id"], placed["offset"])
        made["_kept"] = kept

    def divide(self):
        for group in self.plan["groups"]:
            by_role = {p["role"]: p for p in group["parameters"]}
            if "embedding" in by_role:
                table = copy.deepcopy(by_role["embedding"])
                table["shape"][0] //= RANKS
                self.part(group, "", [table], 0)
            elif "head" in by_role:
                self.part(group, "", group["parameters"], None)
            else:
                for name, (dim, roles) in CUTS.items():
                    self.part(group, name + ".", [by_role[r] for r in roles], dim)

    # ---- ops

    def use_new_places(self, operand):
        """An operand that is one parameter."""
        size = SIZE.get(operand["dtype"], 1)
        place = self.places.get((operand["buffer"], operand["offset"] // size))
        if place is not None:
            operand["buffer"], operand["offset"] = place[0], place[1] * size

    def slice_of(self, group, kind, role, access, dtype):
        """The part that a rank updates."""
        whole = "shard" in group or kind not in ("model_weight", "main_grad")
        n = group["elements"] // (1 if "shard" in group else RANKS)
        operand = {"access": access, "buffer": group["_kept"][kind], "dtype": dtype, "offset": 0, "role": role,
                   "shape": [n]}
        if not whole:
            operand["rank_strides"] = [{"axis": "tp", "bytes": n * SIZE[dtype]}]
        return operand

    def of_groups(self, op, kernel):
        """A partial norm or an update for each new group."""
        for group in self.parts[op["group"]]:
            made = copy.deepcopy(op)
            made["id"] = self.new_op()
            made["group"] = group["id"]
            body = made["body"]["kernel"]
            of = {"grad": ("main_grad", "fp32"), "input": ("main_grad", "fp32"), "weight": ("model_weight", "bf16"),
                  "main_weight": ("main_weight", "fp32"), "exp_avg": ("exp_avg", "fp32"),
                  "exp_avg_sq": ("exp_avg_sq", "fp32")}
            body["operands"] = [self.slice_of(group, *of[o["role"]][:1], o["role"], o["access"], of[o["role"]][1])
                                if o["role"] in of else o for o in body["operands"]]
            for operand in body["operands"]:
                if operand["role"] == "output":
                    operand["offset"] = 4 * group["id"]
            for attribute in body["attributes"]:
                if attribute["name"] == "elements":
                    attribute["value"] = body["operands"][0]["shape"][0]
            yield made

    def new_op(self):
        self.next_op += 1
        return self.next_op - 1

    def refreshed(self, op):
        """Halves of weights that are whole are gathered."""
        for group in self.parts[op["group"]]:
            if "shard" in group:
                continue
            made = copy.deepcopy(op)
            made["id"], made["group"] = self.new_op(), group["id"]
            body = made["body"]["collective"]
            body["input"] = self.slice_of(group, "model_weight", "input", "read", "bf16")
            body["count"] = body["input"]["shape"][0]
            body["output"] = {"access": "write", "buffer": group["_kept"]["model_weight"], "dtype": "bf16", "offset": 0,
                              "role": "output", "shape": [group["elements"]]}
            yield made

    def summed(self, op, operand):
        """Sums what the kernel has written, in its place."""
        n = count(operand["shape"])
        side = {"buffer": operand["buffer"], "dtype": operand["dtype"], "offset": operand["offset"], "shape": [n]}
        body = {"communicator": ACTIVATIONS, "count": n, "dtype": operand["dtype"], "kind": "all_reduce",
                "input": {"access": "read", "role": "input", **side},
                "output": {"access": "write", "role": "output", **side}, "reduction": "sum"}
        return {"body": {"collective": body}, "id": self.new_op(), "name": op["name"] + ".all_reduce",
                "phase": op["phase"], "stream": op["stream"], "unit": op["unit"]}

    def look_up_part(self, kernel):
        rows = self.plan["config"]["model"]["vocab"] // RANKS
        kernel["attributes"].append({"name": "vocab_begin", "per": [{"axis": "tp", "step": rows}], "value": 0})
        for operand in kernel["operands"]:
            if operand["role"] in ("weight", "weight_grad"):
                operand["shape"][0] = rows

    def gathers_norms(self, body, groups):
        for side, n in (("input", groups), ("output", RANKS * groups)):
            body[side]["shape"] = [n]
        body["count"] = groups

    def ops_of(self, op):
        """The ops in place of one."""
        kind, body = next(iter(op["body"].items()))
        if kind == "collective":
            if op["name"].endswith(".refresh"):
                yield from self.refreshed(op)
            elif op["name"] == "norm.all_gather":
                self.gathers_norms(body, len(self.groups))
                yield op
            return  # gradients are not summed, and the loss is not gathered
        if kind != "kernel":
            yield op
            return
        if body["kind"] in ("norm_partial", "update"):
            yield from self.of_groups(op, body)
            return
        for operand in body["operands"]:
            self.use_new_places(operand)
        if body["kind"].startswith("embedding_"):
            self.look_up_part(body)
        if body["kind"] == "loss_finish":
            body["operands"][0].update(buffer=self.id_of("loss_sums"), shape=[2])
        if body["kind"] == "norm_finish":
            body["operands"][0]["shape"] = [RANKS * len(self.groups)]
            for attribute in body["attributes"]:
                if attribute["name"] == "groups":
                    attribute["value"] = len(self.groups)
        yield op
        if op["name"].removeprefix("eval.").endswith(PARTIAL):
            role = "d_input" if op["name"].endswith("dgrad") else "output"
            yield self.summed(op, next(o for o in body["operands"] if o["role"] == role))

    def id_of(self, name):
        return next(b["id"] for b in self.plan["buffers"] if b["name"] == name)

    # ---- the plan

    def lay_out(self):
        """Persistent buffers lie consecutively in their pools."""
        for pool in self.plan["pools"]:
            own = [b for b in self.plan["buffers"] if b["pool"] == pool["id"] and b.get("persistent")]
            if not own:
                continue
            end = 0
            for buffer in own:
                buffer["offset"] = end
                end += up(buffer["size"], ALIGNMENT)
            pool["height"] = pool["lower_bound"] = end

    def made(self):
        plan = self.plan
        for size in ("heads", "intermediate", "kv_heads"):
            plan["config"]["model"][size] *= RANKS
        self.divide()
        for p in plan["plans"]:
            for segment in p["segments"]:
                segment["ops"] = [made for op in segment["ops"] for made in self.ops_of(op)]
        plan["classes"] = [{"ranks": RANKS, "role": "tensor_parallel"}]
        plan["communicators"][ACTIVATIONS]["purpose"] = "activations.tp"
        old = {b["id"] for b in plan["buffers"] if b.get("holds", {}).get("groups") or b["name"] == "gathered_sums"}
        plan["buffers"] = self.buffers + [b for b in plan["buffers"] if b["id"] not in old]
        for buffer in plan["buffers"]:
            n = {"norm_partials": 1, "gathered_norms": RANKS}.get(buffer["name"])
            if n:
                buffer["size"] = 4 * n * len(self.groups)
        self.lay_out()
        plan["groups"] = [{k: v for k, v in g.items() if k != "_kept" and v != []} for g in self.groups]
        plan["meta"]["hash"] = ""
        return plan


def main(source, target):
    with open(source) as file:
        plan = TensorParallel(json.load(file)).made()
    with open(target, "w") as file:
        json.dump(plan, file, sort_keys=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
