#!/usr/bin/env python3
"""Makes a 1F1B plan: the step of one GPU, as the planner has it, divided into pipeline stages.

  mfsdp-sim --model scenarios/pipeline/model.json --gpus 1 --strategy no_shard --global-batch 4 \\
    --seq-len 8 --recompute none --no-save --plan-out one_gpu.json
  scenarios/pipeline/make_1f1b.py one_gpu.json 2 scenarios/pipeline/1f1b_2x4.json

Stage s of S has w = S - 1 - s forwards ahead of its backwards. F and B are the planner's kernels;
the ops between {} are one launch on the stream of the transfers to the neighbours:

  warm_up_0 ...  {recv activations} F {send activations}
  first          {recv activations} F {send activations, recv gradient} B
  steady x rest  {send gradient, recv activations} F {send activations, recv gradient} B
  drain          {send gradient}, then w times {recv gradient} B {send gradient}
  optimizer      all send their parts of the norm to the last stage, which finishes loss and norm and
                 sends 1/T and the clip factor back from stage to stage; all update

Forward results that backward reads have w + 1 instances. The last tensor that a stage sends has two
instances, and so has the event of its sending. So a forward need not wait for the send before it.
Places are allocated consecutively. With the path of mfsdp-verify as a fourth argument, pools state
the lower bounds that it finds.
"""
import json
import re
import subprocess
import sys

COMPUTE, OUTER, H2D, D2H = 0, 3, 4, 5


def body_of(op):
    return next(iter(op["body"].items()))


class Stage:
    def __init__(self, base, stage, stages):
        self.base, self.stage, self.stages = base, stage, stages
        self.ahead = stages - 1 - stage
        self.is_first, self.is_last = stage == 0, stage == stages - 1
        blocks = base["config"]["model"]["layers"] // stages
        self.blocks = range(stage * blocks + 1, (stage + 1) * blocks + 1)
        self.units = set(self.blocks)
        if self.is_first:
            self.units.add(0)
        if self.is_last:
            self.units.add(base["config"]["model"]["layers"] + 1)
        self.name_of = {b["id"]: b["name"] for b in base["buffers"]}
        self.id_of = {name: id for id, name in self.name_of.items()}
        self.segments, self.used, self.next_op = [], set(), 0
        self.lag = 0
        first, middle = base["plans"][0]["segments"][:2]
        self.forward_ops = self.work(first, "forward")
        self.first_backward = self.work(first, "backward")
        self.backward_ops = self.work(middle, "backward")
        before, last = self.blocks[0] - 2, self.blocks[-1] - 1
        # Tensors that cross the cuts: a block passes its output to the next one in two tensors.
        self.received = [f"layers.{before}.{t}" for t in ("mid", "mlp_out")]
        self.sent = [f"layers.{last}.{t}" for t in ("mid", "mlp_out")]

    def work(self, segment, phase):
        """The kernels of this stage, with acquires and releases."""
        return [op for op in segment["ops"]
                if op["phase"] == phase and op["stream"] == COMPUTE and
                op.get("unit") in self.units and
                body_of(op)[0] in ("kernel", "acquire", "release")]

    # ---- ops --------------------------------------------------------------------------------

    def add(self, stream, phase, name, kind, body, unit=None, group=None):
        op = {"id": self.next_op, "stream": stream, "phase": phase, "name": name,
              "body": {kind: body}}
        if unit is not None:
            op["unit"] = unit
        if group is not None:
            op["group"] = group
        if self.lag:
            op["lag"] = self.lag
        self.next_op += 1
        self.segments[-1]["ops"].append(op)
        for operand in [*body.get("operands", []), body.get("input"), body.get("output")]:
            if operand:
                self.used.add(operand["buffer"])
        if kind in ("acquire", "release"):
            self.used.add(body["buffer"])

    def copy_op(self, op):
        kind, body = body_of(op)
        self.add(op["stream"], op["phase"], op["name"], kind, body, op.get("unit"), op.get("group"))

    def record(self, stream, phase, event):
        self.add(stream, phase, event, "record", {"event": event})

    def wait(self, stream, phase, event, kind="wait"):
        self.add(stream, phase, event, kind, {"event": event})

    def life(self, stream, phase, kind, buffer):
        self.add(stream, phase, buffer, kind, {"buffer": self.id_of[buffer]})

    def transfer(self, kind, buffer, step, phase, part=None):
        whole = next(b for b in self.base["buffers"] if b["name"] == buffer)
        first, count = part or (0, whole["size"] // {"bf16": 2, "fp32": 4}[whole["dtype"]])
        operand = {"access": "read" if kind == "send" else "write", "buffer": whole["id"],
                   "dtype": whole["dtype"], "offset": 4 * first,
                   "role": "input" if kind == "send" else "output", "shape": [count]}
        self.add(OUTER, phase, f"{buffer}.{kind}", "collective",
                 {"kind": kind, "communicator": 0, "count": count, "dtype": whole["dtype"],
                  "reduction": "none", "peer": {"axis": "pp", "step": step},
                  "input" if kind == "send" else "output": operand})

    # ---- parts of a segment -----------------------------------------------------------------

    def segment(self, name, microbatches, repeat=1):
        self.segments.append({"name": name, "repeat": repeat, "microbatches": microbatches,
                              "ops": []})

    def exchange(self, parts):
        """One launch; each part is (kind, buffers, peer's step, phase, lag)."""
        parts = [p for p in parts if p[1]]
        if not parts:
            return
        group = sum(len(p[1]) for p in parts) > 1
        self.lag = 0
        if group:
            self.add(OUTER, parts[0][3], "exchange", "group_begin", {"communicator": 0})
        for kind, buffers, step, phase, lag in parts:
            self.lag = lag
            for buffer in buffers:
                self.transfer(kind, buffer, step, phase)
        self.lag = 0
        if group:
            self.add(OUTER, parts[0][3], "exchange", "group_end", {"communicator": 0})

    def tokens(self):
        if not (self.is_first or self.is_last):
            return
        ops = self.base["plans"][0]["segments"][0]["ops"][:6]
        self.wait(H2D, "input", "tokens_consumed")
        self.copy_op(ops[1])
        self.record(H2D, "input", "tokens_staged")
        self.wait(COMPUTE, "input", "tokens_staged")
        if self.is_first:
            self.life(COMPUTE, "input", "acquire", "tokens")
        self.copy_op(ops[4])
        self.record(COMPUTE, "input", "tokens_consumed")

    def forward(self, sends_gradient, gradient_lag):
        """Forward: from the tensors of the stage before to the tensors for the next one."""
        self.lag = 0
        self.tokens()
        if not self.is_first:
            if sends_gradient:
                self.wait(OUTER, "backward", "gradient_made")
            self.wait(OUTER, "forward", "input_read")
            for buffer in self.received:
                self.life(OUTER, "forward", "acquire", buffer)
            self.exchange([("send", ["d_residual"] if sends_gradient else [], -1, "backward",
                            gradient_lag),
                           ("recv", self.received, -1, "forward", 0)])
            if sends_gradient:
                self.lag = gradient_lag
                self.life(OUTER, "backward", "release", "d_residual")
                self.lag = 0
                self.record(OUTER, "backward", "gradient_sent")
            self.record(OUTER, "forward", "input_received")
            self.wait(COMPUTE, "forward", "input_received")
        for op in self.forward_ops:
            kind, body = body_of(op)
            if kind == "release" and self.name_of[body["buffer"]] in self.sent and not self.is_last:
                continue  # released when it was sent, or in backward
            if kind == "acquire" and self.name_of[body["buffer"]] == self.sent[1] and \
                    not self.is_last:
                self.wait(COMPUTE, "forward", "output_sent")
            self.copy_op(op)
            if op["name"] == f"layers.{self.blocks[0] - 1}.input_norm" and not self.is_first:
                for buffer in self.received:
                    self.life(COMPUTE, "forward", "release", buffer)
                self.record(COMPUTE, "forward", "input_read")
        if not self.is_last:
            self.record(COMPUTE, "forward", "output_made")
            self.wait(OUTER, "forward", "output_made")

    def wait_for_gradient_place(self):
        """The first stage releases it where it reads it, others where they send it on."""
        if self.is_first:
            self.wait(OUTER, "backward", "gradient_read")

    def send_output(self, gradient_lag=None):
        """The outputs go; the gradient of an earlier microbatch may come."""
        if self.is_last:
            return
        gets = gradient_lag is not None
        if gets:
            self.wait_for_gradient_place()
            self.lag = gradient_lag
            self.life(OUTER, "backward", "acquire", "d_residual")
        self.exchange([("send", self.sent, 1, "forward", 0),
                       ("recv", ["d_residual"] if gets else [], 1, "backward", gradient_lag)])
        self.life(OUTER, "forward", "release", self.sent[1])
        self.record(OUTER, "forward", "output_sent")
        if gets:
            self.record(OUTER, "backward", "gradient_received")

    def backward(self, ops, lag):
        self.lag = lag
        if self.is_last:
            self.wait(COMPUTE, "backward", "gradient_sent")
        else:
            self.wait(COMPUTE, "backward", "gradient_received")
        for op in ops:
            if self.is_last and op["name"] == "head.final_norm.backward":
                self.life(COMPUTE, "backward", "acquire", "d_residual")
            self.copy_op(op)
        if self.is_first:
            self.life(COMPUTE, "backward", "release", "d_residual")
            self.life(COMPUTE, "backward", "release", "tokens")
            self.record(COMPUTE, "backward", "gradient_read")
        else:
            self.record(COMPUTE, "backward", "gradient_made")
        self.lag = 0

    def send_gradient(self, lag):
        if self.is_first:
            return
        self.wait(OUTER, "backward", "gradient_made")
        self.exchange([("send", ["d_residual"], -1, "backward", lag)])
        self.lag = lag
        self.life(OUTER, "backward", "release", "d_residual")
        self.lag = 0
        self.record(OUTER, "backward", "gradient_sent")

    def optimizer(self):
        ops = self.base["plans"][0]["segments"][-1]["ops"]
        finish = next(op for s in self.base["plans"][0]["segments"] for op in s["ops"]
                      if op["name"] == "loss.finish")
        self.segment("optimizer", 0)
        for op in (o for s in self.base["plans"][0]["segments"] for o in s["ops"]):
            if op["name"].endswith(".norm_partial") and op["unit"] in self.units:
                self.copy_op(dict(op, stream=COMPUTE))
        self.record(COMPUTE, "optimizer", "sums_made")
        self.wait(OUTER, "optimizer", "sums_made")
        if self.is_last:
            for other in range(self.stage):
                units = Stage(self.base, other, self.stages).units
                self.transfer("recv", "norm_partials", other - self.stage, "optimizer",
                              (min(units), len(units)))
            self.wait(OUTER, "output", "readback")
            self.copy_op(finish)
            self.copy_op(next(op for op in ops if op["name"] == "norm.finish"))
        else:
            self.transfer("send", "norm_partials", self.ahead, "optimizer",
                          (min(self.units), len(self.units)))
            self.wait(OUTER, "output", "step_block_read")
            self.exchange([("recv", ["report"], 1, "output", 0)])
        self.record(OUTER, "output", "loss_ready")
        if not self.is_first:
            self.exchange([("send", ["report"], -1, "output", 0)])
        self.wait(H2D, "optimizer", "step_block_read")
        self.copy_op(next(op for op in ops if op["name"] == "step_block.h2d"))
        self.record(H2D, "optimizer", "step_block_ready")
        self.wait(COMPUTE, "optimizer", "loss_ready")
        self.wait(COMPUTE, "optimizer", "step_block_ready")
        for op in ops:
            if op["name"].endswith(".adamw") and op["unit"] in self.units:
                self.copy_op(op)
        self.record(COMPUTE, "optimizer", "step_block_read")
        if self.is_last:
            self.wait(D2H, "output", "readback", "host_wait")
            self.wait(D2H, "output", "loss_ready")
            self.copy_op(next(op for op in ops if op["name"] == "report.d2h"))
            self.record(D2H, "output", "readback")

    def schedule(self, microbatches):
        w = self.ahead
        for i in range(w):  # no repetitions: each leaves one more microbatch in flight
            self.segment(f"warm_up_{i}", 1)
            self.forward(False, None)
            self.send_output()
        self.segment("first", 1)
        self.forward(False, None)
        self.send_output(w)
        self.backward(self.first_backward, w)
        if microbatches > w + 1:
            self.segment("steady", 1, microbatches - w - 1)
            self.forward(True, w + 1)
            self.send_output(w)
            self.backward(self.backward_ops, w)
        self.segment("drain", 0)
        self.send_gradient(w)
        for lag in reversed(range(w)):
            self.wait_for_gradient_place()
            self.lag = lag
            self.life(OUTER, "backward", "acquire", "d_residual")
            self.exchange([("recv", ["d_residual"], 1, "backward", lag)])
            self.record(OUTER, "backward", "gradient_received")
            self.backward(self.backward_ops, lag)
            self.send_gradient(lag)
        if not self.segments[-1]["ops"]:
            self.segments.pop()
        self.optimizer()

    # ---- memory -----------------------------------------------------------------------------

    def buffers(self):
        kept = set()  # acquired in forward, released in backward
        for op in self.forward_ops:
            kind, body = body_of(op)
            if kind == "acquire" and not any(
                    body_of(o) == ("release", body) for o in self.forward_ops):
                kept.add(body["buffer"])
        persistent = [b for b in self.base["buffers"] if b.get("persistent") and
                      (b.get("unit") in self.units or "unit" not in b)]
        made, tops = [], {}
        for buffer in persistent + [b for b in self.base["buffers"] if not b.get("persistent")]:
            if buffer["id"] not in self.used:
                port = buffer.get("holds", {}).get("port")
                if port != "rope_table":
                    continue
            b = {k: v for k, v in buffer.items() if k != "slot_class"}
            name = b["name"]
            if name == "tokens" and self.is_first:
                b.pop("persistent")
                b["category"], b["pool"] = "activation", 4
                kept.add(b["id"])
            instances = self.ahead + 1 if b["id"] in kept else 1
            if name == self.sent[1] and not self.is_last:
                instances = 2
            if name in self.received and not self.is_first or \
                    name == "d_residual" and not self.is_last:
                b["pool"] = 7
            if instances > 1:
                b["instances"] = instances
            pitch = -(-b["size"] // 256) * 256
            b["offset"] = tops.get(b["pool"], 0)
            tops[b["pool"]] = b["offset"] + pitch * instances
            made.append(b)
        pools = [dict(p) for p in self.base["pools"]] + [
            {"id": 7, "name": "received", "alignment": 256, "space": "device"}]
        pools = [dict(p, height=tops[p["id"]], lower_bound=tops[p["id"]]) for p in pools
                 if p["id"] in tops]
        return pools, made

    # ---- what follows from the order of ops -------------------------------------------------

    def bind(self, events):
        """Bindings of waits and what is live at boundaries, from three steps in host order."""
        runs = [0] * len(self.segments)
        latest, bindings, live = {}, {}, []
        for step in range(3):
            begun = 0
            for s, segment in enumerate(self.segments):
                for _ in range(segment["repeat"]):
                    begun += segment["microbatches"]
                    runs[s] += 1
                    segment["live_in"] = sorted(live)
                    for op in segment["ops"]:
                        kind, body = body_of(op)
                        if kind == "acquire":
                            live.append(body["buffer"])
                        if kind == "release":
                            live.remove(body["buffer"])
                        if "event" not in body:
                            continue
                        turn = (begun - 1 - op.get("lag", 0)) % events[body["event"]]
                        key = (body["event"], turn)
                        if kind == "record":
                            latest[key] = (op["id"], s, runs[s])
                        elif key in latest:
                            record, there, run = latest[key]
                            distance = runs[there] - run + (1 if there > s else 0)
                            found = bindings.setdefault(op["id"], [])
                            if (record, distance) not in found:
                                found.append((record, distance))
                    segment["live_out"] = sorted(live)
        for segment in self.segments:
            for op in segment["ops"]:
                kind, body = body_of(op)
                if kind in ("wait", "host_wait"):
                    body["bindings"] = [{"record": r, "distance": d}
                                        for r, d in bindings[op["id"]]]


EVENTS = ["tokens_consumed", "tokens_staged", "input_read", "input_received", "output_made",
          "output_sent", "gradient_read", "gradient_received", "gradient_made", "gradient_sent",
          "sums_made", "loss_ready", "step_block_read", "step_block_ready", "readback"]


def make(base, stages):
    microbatches = base["config"]["microbatches"]
    turns = {name: 2 if name == "output_sent" else 1 for name in EVENTS}
    ids = {name: id for id, name in enumerate(EVENTS)}
    plan = {key: base[key] for key in ("schema", "streams", "units", "groups")}
    plan["config"] = dict(base["config"], mesh={"dense": [{"axis": "pp", "size": stages}]})
    plan["communicators"] = [{"id": 0, "axes": ["pp"], "purpose": "pipeline", "size": stages}]
    plan["events"] = [{"id": ids[n], "name": n, **({"instances": turns[n]} if turns[n] > 1 else {})}
                      for n in EVENTS]
    plan["meta"] = {"hash": "", "model_name": "two_layers", "tool_version": ""}
    plan["buffers"], plan["plans"], plan["pools"], plan["classes"] = [], [], [], []
    for s in range(stages):
        stage = Stage(json.loads(json.dumps(base)), s, stages)
        stage.schedule(microbatches)
        for segment in stage.segments:  # bodies of one template are shared until here
            segment["ops"] = json.loads(json.dumps(segment["ops"]))
        stage.bind(turns)
        for segment in stage.segments:
            for op in segment["ops"]:
                body = body_of(op)[1]
                if "event" in body:
                    body["event"] = ids[body["event"]]
        pools, buffers = stage.buffers()
        plan["classes"].append({"role": f"stage_{s}", "ranks": 1,
                                "at": [{"axis": "pp", "index": s}], "pools": pools,
                                "buffers": buffers,
                                "plans": [{"name": "train", "segments": stage.segments}]})
    return plan


def write(plan, path):
    """Readable: a line for each op, buffer, pool, ..."""
    def line(value):
        return json.dumps(value, sort_keys=True)

    def lines(value, indent, depth):
        if depth == 0 or not isinstance(value, (dict, list)) or not value:
            return line(value)
        inner = indent + " "
        if isinstance(value, dict):
            items = [f"{inner}{line(k)}: {lines(v, inner, depth - 1)}"
                     for k, v in sorted(value.items())]
            return "{\n" + ",\n".join(items) + "\n" + indent + "}"
        items = [inner + lines(v, inner, depth - 1) for v in value]
        return "[\n" + ",\n".join(items) + "\n" + indent + "]"

    parts = []
    for key, value in sorted(plan.items()):
        if key == "classes":
            entries = []
            for c in value:
                fields = []
                for name, field in sorted(c.items()):
                    depth = {"buffers": 1, "pools": 1, "plans": 5}.get(name, 0)
                    fields.append(f'  {line(name)}: {lines(field, "  ", depth)}')
                entries.append(" {\n" + ",\n".join(fields) + "\n }")
            parts.append('"classes": [\n' + ",\n".join(entries) + "\n]")
        else:
            parts.append(f"{line(key)}: {lines(value, '', 1 if isinstance(value, list) else 0)}")
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")


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


def main():
    with open(sys.argv[1]) as file:
        plan = make(json.load(file), int(sys.argv[2]))
    write(plan, sys.argv[3])
    if len(sys.argv) > 4:
        state_bounds(plan, sys.argv[3], sys.argv[4])
        write(plan, sys.argv[3])


if __name__ == "__main__":
    main()
