#!/usr/bin/env python3
"""Makes a plan of an interleaved pipeline: each stage has several chunks of blocks, as in Megatron.

  mfsdp-sim --model MODEL --gpus 1 --strategy no_shard --global-batch 4 --seq-len 8 \\
    --recompute none --no-save --plan-out one_gpu.json
  scenarios/pipeline/make_interleaved.py one_gpu.json 2 2 scenarios/pipeline/interleaved_2x2x4.json

Arguments: the step of one GPU, stages p, chunks v of a stage, the plan; with the path of
mfsdp-verify as a fifth, pools state the lower bounds that it finds. Chunk c of stage s has the c p + s
-th part of the blocks. A segment goes from the first forward of a microbatch to the first of the next one.

A stage runs forwards, then pairs of a forward and a backward, then backwards. Between two of these
it has one launch: the sends of what was made, and the receives of what comes next. Two stages send
each other activations and gradients on one communicator, in the order in which both come to them.
"""
import json
import sys

from pipeline_plan import body_of, class_of, job_of, save

COMPUTE, OUTER, H2D, D2H = 0, 3, 4, 5
RECEIVED = 7  # pool
OF_CHUNK = {"input_received": 1, "input_read": 1, "output_made": 1, "output_sent": 2,
            "gradient_received": 1, "gradient_made": 1, "gradient_free": 2}  # instances
EVENTS = ["tokens_consumed", "tokens_staged", "sums_made", "loss_ready", "step_block_read",
          "step_block_ready", "readback"]


def order_of(stage, stages, chunks, microbatches):
    """Lists of what runs between two launches, in the order of Megatron. An item is (is it a
    forward, microbatch, chunk)."""
    table = [(m, c) for first in range(0, microbatches, stages) for c in range(chunks)
             for m in range(first, first + stages)]
    forwards = [(True, m, c) for m, c in table]
    backwards = [(False, m, chunks - 1 - c) for m, c in table]
    ahead = min(2 * (stages - stage - 1) + (chunks - 1) * stages, len(table))
    return [[item] for item in forwards[:ahead]] + \
        [list(pair) for pair in zip(forwards[ahead:], backwards)] + \
        [[item] for item in backwards[len(table) - ahead:]]


class Stage:
    def __init__(self, base, stage, stages, chunks):
        self.base, self.stage, self.stages, self.chunks = base, stage, stages, chunks
        self.microbatches = base["config"]["microbatches"]
        self.layers = base["config"]["model"]["layers"]
        self.order = order_of(stage, stages, chunks, self.microbatches)
        self.items = [item for items in self.order for item in items]
        self.buffer_of = {b["name"]: b for b in base["buffers"]}
        self.name_of = {b["id"]: b["name"] for b in base["buffers"]}
        self.segments, self.used, self.ops = [], set(), 0
        self.begun, self.lag = 0, 0
        # The chunk whose backward is the last to read a microbatch's tokens: that of the embedding,
        # or that of the labels.
        self.last_reader = {0: 0, stages - 1: chunks - 1}.get(stage)
        self.received, self.sent = set(), set()
        for c in range(chunks):
            clone = dict(self.buffer_of["d_residual"], id=1000 + c, name=f"d_residual.{c}",
                         instances=2)
            self.buffer_of[clone["name"]] = clone
            self.name_of[clone["id"]] = clone["name"]

    # ---- parts of the model -------------------------------------------------------------------

    def part(self, chunk):
        return chunk * self.stages + self.stage

    def blocks(self, chunk):
        count = self.layers // (self.stages * self.chunks)
        return range(self.part(chunk) * count, (self.part(chunk) + 1) * count)

    def has_input(self, chunk):
        return self.part(chunk) > 0

    def has_output(self, chunk):
        return self.part(chunk) < self.stages * self.chunks - 1

    def units(self, chunk):
        ends = set() if self.has_input(chunk) else {0}
        ends |= set() if self.has_output(chunk) else {self.layers + 1}
        return ends | {block + 1 for block in self.blocks(chunk)}

    def work(self, chunk, phase, microbatch):
        """The kernels of a chunk with acquires and releases; those of microbatch 0 write gradients,
        the others add to them."""
        segment = self.base["plans"][0]["segments"][0 if microbatch == 0 else 1]
        return [op for op in segment["ops"]
                if op["phase"] == phase and op["stream"] == COMPUTE and
                op.get("unit") in self.units(chunk) and
                body_of(op)[0] in ("kernel", "acquire", "release")]

    def crossing(self, block):
        return [f"layers.{block}.{t}" for t in ("mid", "mlp_out")]

    # ---- ops ----------------------------------------------------------------------------------

    def add(self, stream, phase, name, kind, body, **fields):
        op = {"id": self.ops, "stream": stream, "phase": phase, "name": name, "body": {kind: body}}
        op.update({key: value for key, value in fields.items() if value is not None})
        if self.lag:
            op["lag"] = self.lag
        self.ops += 1
        self.segments[-1]["ops"].append(op)
        for operand in [*body.get("operands", []), body.get("input"), body.get("output")]:
            if operand:
                self.used.add(operand["buffer"])
        if kind in ("acquire", "release"):
            self.used.add(body["buffer"])

    def copy_op(self, op, chunk=None):
        kind, body = body_of(json.loads(json.dumps(op)))
        for operand in body.get("operands", []):
            if chunk is not None and self.name_of[operand["buffer"]] == "d_residual":
                operand["buffer"] = 1000 + chunk
        self.add(op["stream"], op["phase"], op["name"], kind, body, unit=op.get("unit"),
                 group=op.get("group"))

    def event(self, kind, stream, phase, name):
        self.add(stream, phase, name, kind, {"event": name})

    def life(self, kind, stream, phase, name):
        self.add(stream, phase, name, kind, {"buffer": self.buffer_of[name]["id"]})

    def transfer(self, kind, phase, step, name, first=0, count=None):
        """Elements of a buffer to or from the stage `step` further, or all of them."""
        buffer = self.buffer_of[name]
        size = {"bf16": 2, "fp32": 4}[buffer["dtype"]]
        count = count or buffer["size"] // size
        operand = {"access": "read" if kind == "send" else "write", "buffer": buffer["id"],
                   "dtype": buffer["dtype"], "offset": size * first,
                   "role": "input" if kind == "send" else "output", "shape": [count]}
        self.add(OUTER, phase, f"{name}.{kind}", "collective",
                 {"kind": kind, "communicator": 0, "count": count, "dtype": buffer["dtype"],
                  "reduction": "none", "peer": {"axis": "pp", "step": step},
                  "input" if kind == "send" else "output": operand})

    def group(self, kind, phase):
        self.add(OUTER, phase, "exchange", f"group_{kind}", {"communicator": 0})

    def step_to(self, parts):
        """Steps to the stage with the part of the model that is `parts` further."""
        return (self.stage + parts) % self.stages - self.stage

    # ---- a microbatch of a chunk --------------------------------------------------------------

    def tokens(self):
        """Those of the newest microbatch, for embedding or labels."""
        self.lag = 0
        ops = self.base["plans"][0]["segments"][0]["ops"][:6]
        self.event("wait", H2D, "input", "tokens_consumed")
        self.copy_op(ops[1])
        self.event("record", H2D, "input", "tokens_staged")
        self.event("wait", COMPUTE, "input", "tokens_staged")
        self.life("acquire", COMPUTE, "input", "tokens")
        self.copy_op(ops[4])
        self.event("record", COMPUTE, "input", "tokens_consumed")

    def needs(self, item):
        """The buffers that another stage has to send before it."""
        is_forward, _, chunk = item
        if is_forward:
            return self.crossing(self.blocks(chunk)[0] - 1) if self.has_input(chunk) else []
        return [f"d_residual.{chunk}"] if self.has_output(chunk) else []

    def makes(self, item):
        """The buffers that another stage waits for."""
        is_forward, _, chunk = item
        if is_forward:
            return self.crossing(self.blocks(chunk)[-1]) if self.has_output(chunk) else []
        return [f"d_residual.{chunk}"] if self.has_input(chunk) else []

    def at(self, item):
        """Ops from here on work on the item's microbatch."""
        self.lag = self.begun - 1 - item[1]
        return "forward" if item[0] else "backward", item[2]

    def exchange(self, done, coming):
        """Sends what the items `done` made, and receives what the items `coming` need."""
        done = [item for item in done if self.makes(item)]
        coming = [item for item in coming if self.needs(item)]
        if not done and not coming:
            return
        for item in done:
            phase, chunk = self.at(item)
            self.event("wait", OUTER, phase, f"{'output' if item[0] else 'gradient'}_made.{chunk}")
        for item in coming:
            phase, chunk = self.at(item)
            if item[0]:
                self.event("wait", OUTER, phase, f"input_read.{chunk}")
            elif not self.has_input(chunk):
                self.event("wait", OUTER, phase, f"gradient_free.{chunk}")
            for name in self.needs(item):
                self.life("acquire", OUTER, phase, name)
        self.lag = 0
        self.group("begin", "forward")
        for kind, item, names in [("send", item, self.makes(item)) for item in done] + \
                [("recv", item, self.needs(item)) for item in coming]:
            phase, _ = self.at(item)
            for name in names:
                self.transfer(kind, phase, self.step_to(1 if item[0] == (kind == "send") else -1),
                              name)
        self.lag = 0
        self.group("end", "forward")
        for item in done:
            phase, chunk = self.at(item)
            self.life("release", OUTER, phase, self.makes(item)[-1])
            self.event("record", OUTER, phase,
                       f"{'output_sent' if item[0] else 'gradient_free'}.{chunk}")
        for item in coming:
            phase, chunk = self.at(item)
            self.event("record", OUTER, phase,
                       f"{'input' if item[0] else 'gradient'}_received.{chunk}")

    def forward(self, item):
        _, chunk = self.at(item)
        received, sent = self.needs(item), self.makes(item)
        self.received.update(received)
        self.sent.update(sent[1:])
        if received:
            self.event("wait", COMPUTE, "forward", f"input_received.{chunk}")
        for op in self.work(chunk, "forward", item[1]):
            kind, body = body_of(op)
            if sent and kind == "release" and self.name_of[body["buffer"]] in sent:
                continue  # when it was sent, or in backward
            if sent and kind == "acquire" and self.name_of[body["buffer"]] == sent[1]:
                self.event("wait", COMPUTE, "forward", f"output_sent.{chunk}")
            self.copy_op(op)
            if received and op["name"] == f"layers.{self.blocks(chunk)[0]}.input_norm":
                for name in received:
                    self.life("release", COMPUTE, "forward", name)
                self.event("record", COMPUTE, "forward", f"input_read.{chunk}")
        if sent:
            self.event("record", COMPUTE, "forward", f"output_made.{chunk}")

    def backward(self, item):
        _, chunk = self.at(item)
        receives, sends = self.needs(item), self.makes(item)
        gradient = f"d_residual.{chunk}"
        self.event("wait", COMPUTE, "backward",
                   f"gradient_{'received' if receives else 'free'}.{chunk}")
        for op in self.work(chunk, "backward", item[1]):
            if not receives and op["name"] == "head.final_norm.backward":
                self.life("acquire", COMPUTE, "backward", gradient)
            self.backward_op(op, chunk)
        if chunk == self.last_reader:
            self.life("release", COMPUTE, "backward", "tokens")
        if sends:
            self.event("record", COMPUTE, "backward", f"gradient_made.{chunk}")
        else:
            self.life("release", COMPUTE, "backward", gradient)
            self.event("record", COMPUTE, "backward", f"gradient_free.{chunk}")

    def backward_op(self, op, chunk):
        self.copy_op(op, chunk)

    def run(self, item):
        (self.forward if item[0] else self.backward)(item)

    # ---- the step -----------------------------------------------------------------------------

    def partials(self, kind, stage):
        """The parts of the norm that a stage computes go to the last one, in one launch."""
        of = Stage(self.base, stage, self.stages, self.chunks)
        self.group("begin", "optimizer")
        for unit in sorted(unit for c in range(self.chunks) for unit in of.units(c)):
            last = self.stages - 1
            step = last - self.stage if kind == "send" else stage - last
            self.transfer(kind, "optimizer", step, "norm_partials", unit, 1)
        self.group("end", "optimizer")

    def optimizer(self):
        every = [op for s in self.base["plans"][0]["segments"] for op in s["ops"]]
        ops = self.base["plans"][0]["segments"][-1]["ops"]
        units = {unit for c in range(self.chunks) for unit in self.units(c)}
        last = self.stages - 1
        for op in every:
            if op["name"].endswith(".norm_partial") and op["unit"] in units:
                self.copy_op(dict(op, stream=COMPUTE))
        self.event("record", COMPUTE, "optimizer", "sums_made")
        self.event("wait", OUTER, "optimizer", "sums_made")
        if self.stage == last:
            for other in range(last):
                self.partials("recv", other)
            self.event("wait", OUTER, "output", "readback")
            self.copy_op(next(op for op in every if op["name"] == "loss.finish"))
            self.copy_op(next(op for op in ops if op["name"] == "norm.finish"))
        else:
            self.partials("send", self.stage)
            self.event("wait", OUTER, "output", "step_block_read")
            self.transfer("recv", "output", 1, "report")
        self.event("record", OUTER, "output", "loss_ready")
        if self.stage > 0:
            self.transfer("send", "output", -1, "report")
        self.event("wait", H2D, "optimizer", "step_block_read")
        self.copy_op(next(op for op in ops if op["name"] == "step_block.h2d"))
        self.event("record", H2D, "optimizer", "step_block_ready")
        self.event("wait", COMPUTE, "optimizer", "loss_ready")
        self.event("wait", COMPUTE, "optimizer", "step_block_ready")
        for op in ops:
            if op["name"].endswith(".adamw") and op["unit"] in units:
                self.copy_op(op)
        self.event("record", COMPUTE, "optimizer", "step_block_read")
        if self.stage == last:
            self.event("host_wait", D2H, "output", "readback")
            self.event("wait", D2H, "output", "loss_ready")
            self.copy_op(next(op for op in ops if op["name"] == "report.d2h"))
            self.event("record", D2H, "output", "readback")

    def segment(self, name, microbatches):
        self.segments.append({"name": name, "repeat": 1, "microbatches": microbatches, "ops": []})

    def schedule(self):
        for done, items in zip([[]] + self.order, self.order):
            if any(is_forward and chunk == 0 for is_forward, _, chunk in items):
                self.segment(f"microbatch_{self.begun}", 1)
                self.begun += 1
                if self.last_reader is not None:
                    self.tokens()
            self.exchange(done, items)
            for item in items:
                self.run(item)
        self.exchange(self.order[-1], [])
        self.lag = 0
        self.segment("optimizer", 0)
        self.optimizer()

    # ---- memory -------------------------------------------------------------------------------

    def most_in_flight(self, first, last):
        """Microbatches between their forward of chunk `first` and their backward of chunk `last`."""
        live = most = 0
        for is_forward, _, chunk in self.items:
            live += chunk == first if is_forward else -(chunk == last)
            most = max(most, live)
        return most

    def kept(self):
        """Instances of buffers that forward acquires and backward releases."""
        counts = {}
        for c in range(self.chunks):
            lives = [body_of(op) for op in self.work(c, "forward", 0)]
            for kind, body in lives:
                if kind == "acquire" and ("release", body) not in lives:
                    counts[body["buffer"]] = self.most_in_flight(c, c)
        if self.last_reader is not None:
            counts[self.buffer_of["tokens"]["id"]] = self.most_in_flight(0, self.last_reader)
        for name in self.sent:
            counts[self.buffer_of[name]["id"]] = 2
        return counts

    def buffers(self):
        units = {unit for c in range(self.chunks) for unit in self.units(c)}
        kept, made, tops = self.kept(), [], {}
        for buffer in sorted(self.buffer_of.values(), key=lambda b: not b.get("persistent")):
            is_state = buffer.get("persistent") and buffer.get("unit") in units
            is_table = buffer.get("holds", {}).get("port") == "rope_table"
            if buffer["id"] not in self.used and not is_state and not is_table:
                continue
            b = {key: value for key, value in buffer.items() if key != "slot_class"}
            name = b["name"]
            if name == "tokens":
                b.pop("persistent")
                b["category"], b["pool"] = "activation", 4
            if kept.get(b["id"], 1) > 1:
                b["instances"] = kept[b["id"]]
            if name in self.received:
                b["pool"] = RECEIVED
                b.pop("instances", None)
            if name.startswith("d_residual.") and self.has_output(int(name[11:])):
                b["pool"] = RECEIVED
            b["offset"] = tops.get(b["pool"], 0)
            tops[b["pool"]] = b["offset"] + -(-b["size"] // 256) * 256 * b.get("instances", 1)
            made.append(b)
        pools = self.base["pools"] + [
            {"id": RECEIVED, "name": "received", "alignment": 256, "space": "device"}]
        return [dict(p, height=tops[p["id"]], lower_bound=tops[p["id"]]) for p in pools
                if p["id"] in tops], made

    def bind(self, events):
        """Bindings of waits and what is live at boundaries, from three steps in host order."""
        runs = [0] * len(self.segments)
        latest, bindings, live = {}, {}, []
        for _ in range(3):
            begun = 0
            for s, segment in enumerate(self.segments):
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
                    key = (body["event"], (begun - 1 - op.get("lag", 0)) % events[body["event"]])
                    if kind == "record":
                        latest[key] = (op["id"], s, runs[s])
                    elif key in latest:
                        record, there, run = latest[key]
                        binding = {"record": record,
                                   "distance": runs[there] - run + (1 if there > s else 0)}
                        found = bindings.setdefault(op["id"], [])
                        if binding not in found:
                            found.append(binding)
                segment["live_out"] = sorted(live)
        for segment in self.segments:
            for op in segment["ops"]:
                kind, body = body_of(op)
                if kind in ("wait", "host_wait"):
                    body["bindings"] = bindings[op["id"]]


def make(base, stages, chunks, make_stage):
    turns = {name: 1 for name in EVENTS}
    turns.update({f"{name}.{c}": n for c in range(chunks) for name, n in OF_CHUNK.items()})
    ids = {name: id for id, name in enumerate(turns)}
    plan = job_of(base, stages, turns, dict(base["meta"], hash="", tool_version=""))
    for s in range(stages):
        stage = make_stage(s)
        stage.schedule()
        stage.bind(turns)
        for op in (op for segment in stage.segments for op in segment["ops"]):
            body = body_of(op)[1]
            if "event" in body:
                body["event"] = ids[body["event"]]
        pools, buffers = stage.buffers()
        plan["classes"].append(class_of(s, pools, buffers, {"segments": stage.segments}))
    return plan


def main():
    base, stages, chunks, path, *verify = sys.argv[1:]
    with open(base) as file:
        step = json.load(file)
    stages, chunks = int(stages), int(chunks)
    save(make(step, stages, chunks, lambda s: Stage(step, s, stages, chunks)), path, verify)


if __name__ == "__main__":
    main()
