#!/usr/bin/env python3
"""Makes a plan of a pipeline whose weight gradients wait for the bubble: ZB-H1.

  mfsdp-sim --model scenarios/pipeline/model.json --gpus 1 --strategy no_shard --global-batch 4 \\
    --seq-len 8 --recompute none --no-save --plan-out one_gpu.json
  scenarios/pipeline/make_zero_bubble.py one_gpu.json 2 scenarios/pipeline/zero_bubble_2x4.json

The order is that of 1F1B with backward in two parts: the first makes gradients of activations, the
second the weight gradients of the blocks' GEMMs, from what the first keeps. Stage s runs the
second part s microbatches later than the first. The gradient of the residual stream changes in
place, so the first part copies what the second one reads of it. Further arguments as in
make_interleaved.py.
"""
import json
import sys

from make_interleaved import COMPUTE, Stage, make
from pipeline_plan import body_of, save


def order_of(stage, stages, microbatches):
    """As in make_interleaved.py. The second part of a backward is an item (None, microbatch, 0)."""
    ahead = min(stages - 1 - stage, microbatches)
    units = [[(True, m, 0)] for m in range(ahead)]
    for m in range(microbatches):
        if m + ahead < microbatches:
            units.append([(True, m + ahead, 0)])
        units.append([(False, m, 0)])
        units.append([(None, m - stage, 0)] if m >= stage else [])
    units.append([(None, m, 0) for m in range(microbatches - stage, microbatches)])
    joined = []  # the second part runs after the launch that follows the first
    for unit in units:
        if joined and all(item[0] is None for item in joined[-1]):
            joined[-1] += unit
        else:
            joined.append(list(unit))
    return joined


class ZeroBubbleStage(Stage):
    def __init__(self, base, stage, stages):
        super().__init__(base, stage, stages, 1)
        self.order = order_of(stage, stages, self.microbatches)
        self.items = [i for items in self.order for i in items if i[0] is not None]
        residual = self.buffer_of["d_residual"]
        self.copies = {}  # by name of the GEMM
        for block in self.blocks(0):
            for product in ("down", "attention_out"):
                name = f"layers.{block}.{product}"
                copy = dict(residual, id=2000 + len(self.copies), name=f"{name}.d_output",
                            unit=block + 1)
                self.copies[name] = copy
                self.buffer_of[copy["name"]] = copy
                self.name_of[copy["id"]] = copy["name"]

    def is_late(self, op):
        return op["name"].startswith("layers.") and op["name"].endswith(".wgrad")

    def late_ops(self, microbatch):
        """The second part's kernels, with the buffers that they are the last to read."""
        ops = []
        for op in self.work(0, "backward", microbatch):
            if not self.is_late(op):
                continue
            op = json.loads(json.dumps(op))
            read = []
            for operand in body_of(op)[1]["operands"]:
                if operand["role"] not in ("d_output", "input"):
                    continue
                if self.name_of[operand["buffer"]] == "d_residual":
                    operand["buffer"] = self.copies[op["name"][:-len(".wgrad")]]["id"]
                read.append(operand["buffer"])
            ops.append((op, read))
        return ops

    def held(self):
        return {buffer for _, read in self.late_ops(0) for buffer in read}

    # ---- a microbatch -------------------------------------------------------------------------

    def needs(self, item):
        return [] if item[0] is None else super().needs(item)

    def makes(self, item):
        return [] if item[0] is None else super().makes(item)

    def backward_op(self, op, chunk):
        kind, body = body_of(op)
        if kind == "release" and body["buffer"] in self.held():
            return
        if not self.is_late(op):
            self.copy_op(op, chunk)
            return
        copy = self.copies.get(op["name"][:-len(".wgrad")])
        if copy is None:
            return
        operand = {"dtype": copy["dtype"], "offset": 0, "shape": [copy["size"] // 2]}
        self.life("acquire", COMPUTE, "backward", copy["name"])
        self.add(COMPUTE, "backward", copy["name"], "copy", {
            "kind": "d2d",
            "input": dict(operand, access="read", buffer=1000 + chunk, role="input"),
            "output": dict(operand, access="write", buffer=copy["id"], role="output")},
            unit=op["unit"])

    def run(self, item):
        if item[0] is not None:
            super().run(item)
            return
        self.at(item)
        ops = self.late_ops(item[1])
        for i, (op, read) in enumerate(ops):
            self.copy_op(op)
            for buffer in read:
                if all(buffer not in later for _, later in ops[i + 1:]):
                    self.life("release", COMPUTE, "backward", self.name_of[buffer])

    # ---- memory -------------------------------------------------------------------------------

    def most_kept(self, is_forward):
        """Microbatches between their forward, or the first part of backward, and the second."""
        live = most = 0
        for kind, _, _ in (item for items in self.order for item in items):
            live += 1 if kind is is_forward else -1 if kind is None else 0
            most = max(most, live)
        return most

    def kept(self):
        counts = super().kept()
        for buffer in self.held():
            counts[buffer] = self.most_kept(buffer in counts)
        return counts


def main():
    base, stages, path, *verify = sys.argv[1:]
    with open(base) as file:
        step = json.load(file)
    stages = int(stages)
    save(make(step, stages, 1, lambda s: ZeroBubbleStage(step, s, stages)), path, verify)


if __name__ == "__main__":
    main()
