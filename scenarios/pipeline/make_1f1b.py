#!/usr/bin/env python3
"""Makes a 1F1B plan: the step of one GPU, as the planner has it, divided into pipeline stages.

  mfsdp-sim --model scenarios/pipeline/model.json --gpus 1 --strategy no_shard --global-batch 4 \\
    --seq-len 8 --recompute none --no-save --plan-out one_gpu.json
  scenarios/pipeline/make_1f1b.py one_gpu.json 2 scenarios/pipeline/1f1b_2x4.json

Stage s of S has w = S - 1 - s forwards ahead of its backwards. These are its passes; a pair of
braces is one launch on the stream of the transfers to the neighbours:

  receive           {recv activations}             send           {send activations}
  exchange          {send gradient, recv activations}             of microbatches w + 1 apart
  exchange_output   {send activations, recv gradient}             of microbatches w apart
  receive_gradient  {recv gradient}                send_gradient  {send gradient}
  forward, first_backward, backward                the planner's kernels

The number in brackets is the lag of a call; first and last stage lack the calls that need another
neighbour:

  warm_up x w   receive  forward  send
  first         receive  forward  exchange_output  first_backward [w]
  steady x rest exchange  forward  exchange_output  backward [w]
  drain x w     send_gradient [w]  receive_gradient [w - 1]  backward [w - 1], each time one less
  last_gradient send_gradient [0]
  optimizer     all send their parts of the norm to the last stage, which finishes loss and norm and
                sends 1/T and the clip factor back from stage to stage; all update

Forward results that backward reads have w + 1 instances. The last tensor that a stage sends has two
instances, and so has the event of its sending. So a forward need not wait for the send before it.
A step of several ranks without sharding (--gpus 2) gives a plan in which each stage has as many: they
sum each gradient before its part of the norm, and the last stage gathers losses and parts of the norm.
Places are allocated consecutively. With the path of mfsdp-verify as a fourth argument, pools state
the lower bounds that it finds.
"""
import json
import sys

from pipeline_plan import body_of, class_of, data_ranks, job_of, save

COMPUTE, OUTER, H2D, D2H = 0, 3, 4, 5


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
        self.passes, self.segments, self.ops = {}, [], []
        self.used, self.next_op = set(), 0
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
        self.ops.append(op)
        for operand in [*body.get("operands", []), body.get("input"), body.get("output")]:
            if operand:
                self.used.add(operand["buffer"])
        if kind in ("acquire", "release"):
            self.used.add(body["buffer"])

    def copy_op(self, op):
        kind, body = body_of(op)
        self.add(op["stream"], op["phase"], op["name"], kind, body, op.get("unit"), op.get("group"))

    def over_data(self, stream, name):
        """The collective of that name, if ranks have other samples."""
        for op in (o for s in self.base["plans"][0]["segments"] for o in s["ops"]):
            if op["name"] == name and body_of(op)[0] == "collective":
                body = dict(body_of(op)[1], communicator=1)
                self.copy_op(dict(op, stream=stream, body={"collective": body}))

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

    # ---- passes -----------------------------------------------------------------------------

    def begin(self, name):
        """A pass, to which ops are added from here on."""
        self.ops = []
        self.passes[name] = {"id": len(self.passes), "name": name, "ops": self.ops}

    def exchange(self, name, *parts):
        """A pass with one launch; each part is (what moves, lag)."""
        self.begin(name)
        buffers = {"inputs": self.received, "outputs": self.sent}
        for what, self.lag in parts:
            if what == "gradient":
                self.wait(OUTER, "backward", "gradient_made")
            if what == "next_gradient":  # the first stage releases it where it reads it
                if self.is_first:
                    self.wait(OUTER, "backward", "gradient_read")
                self.life(OUTER, "backward", "acquire", "d_residual")
            if what == "inputs":
                self.wait(OUTER, "forward", "input_read")
                for buffer in self.received:
                    self.life(OUTER, "forward", "acquire", buffer)
        launch = [(*MOVES[what], buffer, lag) for what, lag in parts
                  for buffer in buffers.get(what, ["d_residual"])]
        self.lag = 0
        if len(launch) > 1:
            self.add(OUTER, launch[0][2], name, "group_begin", {"communicator": 0})
        for kind, step, phase, buffer, self.lag in launch:
            self.transfer(kind, buffer, step, phase)
        self.lag = 0
        if len(launch) > 1:
            self.add(OUTER, launch[0][2], name, "group_end", {"communicator": 0})
        for what, self.lag in parts:
            phase, event, released = AFTER[what]
            if what == "outputs":
                released = self.sent[1]
            if released:
                self.life(OUTER, phase, "release", released)
            self.record(OUTER, phase, event)
        self.lag = 0

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

    def forward(self):
        """From the tensors of the stage before to the tensors for the next one."""
        self.begin("forward")
        self.tokens()
        if not self.is_first:
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

    def backward(self, name, ops):
        self.begin(name)
        self.wait(COMPUTE, "backward", "gradient_sent" if self.is_last else "gradient_received")
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

    def make_passes(self):
        w = self.ahead
        self.forward()
        self.backward("first_backward", self.first_backward)
        self.backward("backward", self.backward_ops)
        if not self.is_first:
            self.exchange("receive", ("inputs", 0))
            self.exchange("exchange", ("gradient", w + 1), ("inputs", 0))
            self.exchange("send_gradient", ("gradient", 0))
        if not self.is_last:
            self.exchange("send", ("outputs", 0))
            self.exchange("exchange_output", ("outputs", 0), ("next_gradient", w))
            self.exchange("receive_gradient", ("next_gradient", 0))

    def optimizer(self):
        ops = self.base["plans"][0]["segments"][-1]["ops"]
        finish = next(op for s in self.base["plans"][0]["segments"] for op in s["ops"]
                      if op["name"] == "loss.finish")
        self.ops = []
        self.segments.append({"name": "optimizer", "repeat": 1, "microbatches": 0, "ops": self.ops})
        for op in (o for s in self.base["plans"][0]["segments"] for o in s["ops"]):
            if op["name"].endswith(".norm_partial") and op["unit"] in self.units:
                self.over_data(COMPUTE, op["name"].replace("norm_partial", "all_reduce"))
                self.copy_op(dict(op, stream=COMPUTE))
        self.record(COMPUTE, "optimizer", "sums_made")
        self.wait(OUTER, "optimizer", "sums_made")
        if self.is_last:
            for other in range(self.stage):
                units = Stage(self.base, other, self.stages).units
                self.transfer("recv", "norm_partials", other - self.stage, "optimizer",
                              (min(units), len(units)))
            self.over_data(OUTER, "loss.all_gather")
            self.over_data(OUTER, "norm.all_gather")
            self.wait(OUTER, "output", "readback")
            self.copy_op(finish)
            self.copy_op(next(op for op in ops if op["name"] == "norm.finish"))
        else:
            self.transfer("send", "norm_partials", self.ahead, "optimizer",
                          (min(self.units), len(self.units)))
            self.wait(OUTER, "output", "step_block_read")
            self.transfer("recv", "report", 1, "output")
        self.record(OUTER, "output", "loss_ready")
        if not self.is_first:
            self.transfer("send", "report", -1, "output")
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

    def segment(self, name, repeat, microbatches, *calls):
        """Each call is (pass, lag, lag_step); those of passes that the stage lacks are left out."""
        made = [{"pass": self.passes[p]["id"], **({"lag": lag} if lag else {}),
                 **({"lag_step": step} if step else {})}
                for p, lag, step in calls if p in self.passes]
        if repeat > 0 and made:
            self.segments.append({"name": name, "repeat": repeat, "microbatches": microbatches,
                                  "calls": made})

    def schedule(self, microbatches):
        w = self.ahead
        self.make_passes()
        self.segment("warm_up", w, 1, ("receive", 0, 0), ("forward", 0, 0), ("send", 0, 0))
        self.segment("first", 1, 1, ("receive", 0, 0), ("forward", 0, 0),
                     ("exchange_output", 0, 0), ("first_backward", w, 0))
        self.segment("steady", microbatches - w - 1, 1, ("exchange", 0, 0), ("forward", 0, 0),
                     ("exchange_output", 0, 0), ("backward", w, 0))
        self.segment("drain", w, 0, ("send_gradient", w, -1), ("receive_gradient", w - 1, -1),
                     ("backward", w - 1, -1))
        self.segment("last_gradient", 1, 0, ("send_gradient", 0, 0))
        self.optimizer()
        called = {call["pass"] for s in self.segments for call in s.get("calls", [])}
        self.passes = {n: p for n, p in self.passes.items() if p["id"] in called}

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

    def runs(self):
        """The lists of ops of a step, in host order: (segment, repetition, begun, lag, list)."""
        by_id = {p["id"]: p["ops"] for p in self.passes.values()}
        begun = 0
        for segment in self.segments:
            for r in range(segment["repeat"]):
                begun += segment["microbatches"]
                calls = segment.get("calls")
                if calls is None:
                    yield segment, r, begun, 0, segment["ops"]
                for call in calls or []:
                    lag = call.get("lag", 0) + r * call.get("lag_step", 0)
                    yield segment, r, begun, lag, by_id[call["pass"]]

    def lists(self):
        return [p["ops"] for p in self.passes.values()] + [self.segments[-1]["ops"]]

    def bind(self, events):
        """Bindings of waits and what is live at boundaries, from three steps in host order."""
        number, latest, bindings, live = {}, {}, {}, []  # number: runs of each list so far
        for step in range(3):
            entered, seen = [], set()
            for segment, r, begun, lag, ops in self.runs():
                if not any(s is segment for s in entered):
                    entered.append(segment)
                    segment["live_in"] = sorted(live)
                number[id(ops)] = number.get(id(ops), 0) + 1
                seen.add(id(ops))
                for op in ops:
                    kind, body = body_of(op)
                    if kind == "acquire":
                        live.append(body["buffer"])
                    if kind == "release":
                        live.remove(body["buffer"])
                    if "event" not in body:
                        continue
                    turn = (begun - 1 - lag - op.get("lag", 0)) % events[body["event"]]
                    key = (body["event"], turn)
                    if kind == "record":
                        latest[key] = (op["id"], id(ops), number[id(ops)])
                    elif key in latest:
                        record, there, run = latest[key]
                        distance = number[there] - run + (there not in seen)
                        found = bindings.setdefault(op["id"], [])
                        if (record, distance) not in found:
                            found.append((record, distance))
                segment["live_out"] = sorted(live)
        for op in (op for ops in self.lists() for op in ops):
            kind, body = body_of(op)
            if kind in ("wait", "host_wait"):
                body["bindings"] = [{"record": r, "distance": d}
                                    for r, d in sorted(bindings[op["id"]])]


# Transfers: kind of op, steps along pp, phase. After each: phase, the event that is recorded, and
# the buffer that is released; of the outputs it is the last tensor.
MOVES = {"inputs": ("recv", -1, "forward"), "outputs": ("send", 1, "forward"),
         "gradient": ("send", -1, "backward"), "next_gradient": ("recv", 1, "backward")}
AFTER = {"inputs": ("forward", "input_received", None), "outputs": ("forward", "output_sent", None),
         "gradient": ("backward", "gradient_sent", "d_residual"),
         "next_gradient": ("backward", "gradient_received", None)}
EVENTS = ["tokens_consumed", "tokens_staged", "input_read", "input_received", "output_made",
          "output_sent", "gradient_read", "gradient_received", "gradient_made", "gradient_sent",
          "sums_made", "loss_ready", "step_block_read", "step_block_ready", "readback"]


def make(base, stages):
    microbatches = base["config"]["microbatches"]
    turns = {name: 2 if name == "output_sent" else 1 for name in EVENTS}
    ids = {name: id for id, name in enumerate(turns)}
    meta = {"hash": "", "model_name": "two_layers", "tool_version": ""}
    plan = job_of(base, stages, turns, meta)
    for s in range(stages):
        stage = Stage(json.loads(json.dumps(base)), s, stages)
        stage.schedule(microbatches)
        for ops in stage.lists():  # bodies of one template are shared until here
            ops[:] = json.loads(json.dumps(ops))
        stage.bind(turns)
        for body in (body_of(op)[1] for ops in stage.lists() for op in ops):
            if "event" in body:
                body["event"] = ids[body["event"]]
        pools, buffers = stage.buffers()
        plan["classes"].append(class_of(s, pools, buffers, {
            "segments": stage.segments, "passes": list(stage.passes.values())}, data_ranks(base)))
    return plan


def main():
    base, stages, path, *verify = sys.argv[1:]
    with open(base) as file:
        save(make(json.load(file), int(stages)), path, verify)


if __name__ == "__main__":
    main()
