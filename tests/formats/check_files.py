#!/usr/bin/env python3
"""Reads the files of make_files with Python's standard library, as their own tools would, and compares
them with the plan. Shares no code with the writers.
    check_files.py FOLDER
"""
import collections
import gzip
import io
import json
import pickle
import pickletools
import struct
import sys
import unittest
from decimal import Decimal
from pathlib import Path

FOLDER = Path(sys.argv.pop(1))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def nanoseconds(microseconds):
    """Exact: the JSON reader keeps decimals."""
    value = microseconds * 1000
    assert value == int(value), f"{microseconds} us is no whole number of ns"
    return int(value)


class Trace:
    """A Chrome trace by the rules that Perfetto states for JSON."""

    def __init__(self, name):
        self.whole = json.loads(gzip.open(FOLDER / (name + ".json.gz")).read(), parse_float=Decimal)
        self.events = self.whole["traceEvents"]
        self.tracks = collections.defaultdict(list)
        for event in self.of("X"):
            start = nanoseconds(event["ts"])
            self.tracks[event["pid"], event["tid"]].append((start, start + nanoseconds(event["dur"]), event))
        for slices in self.tracks.values():
            slices.sort(key=lambda one: one[:2])

    def of(self, phase):
        return [event for event in self.events if event["ph"] == phase]


class ChromeTrace(unittest.TestCase):
    def check_rules(self, trace):
        for event in trace.events:
            if "ts" in event:
                self.assertGreaterEqual(event["ts"], 0, event)
            self.assertIn(event["ph"], "MXCisf")
        for slices in trace.tracks.values():
            for (_, end, before), (start, _, after) in zip(slices, slices[1:]):
                self.assertLessEqual(end, start, f"{before} and {after}")
        named = {(event["pid"], event["tid"]) for event in trace.of("M") if event["name"] == "thread_name"}
        self.assertEqual(named, set(trace.tracks))

    def check_step(self, name):
        trace, expected = Trace(name), EXPECTED[name]
        self.check_rules(trace)
        seen = collections.Counter()
        instances = set()
        for event in trace.of("X"):
            args = event["args"]
            op = expected["ops"][str(args["op"])]
            self.assertEqual((event["name"], args["bytes"], args["flops"]), (op["name"], op["bytes"], op["flops"]))
            self.assertNotIn((args["op"], args["instance"]), instances)
            instances.add((args["op"], args["instance"]))
            seen[str(args["op"])] += 1
        # Every op as often as the plan runs it: no microbatch is missing.
        self.assertEqual(dict(seen), {op: one["times"] for op, one in expected["ops"].items()})
        instants = {event["name"]: nanoseconds(event["ts"]) for event in trace.of("i")}
        self.assertEqual(instants["step begins"], trace.whole["otherData"]["step_begin_ns"])
        self.assertEqual(instants["step ends"] - instants["step begins"], expected["step_ns"])
        self.check_arrows(trace, expected["arrows"])
        totals = [event["args"]["total"] for event in trace.of("C") if event["name"] == "live bytes, total"]
        self.assertEqual(max(totals), expected["live_peak"])
        return trace

    def check_arrows(self, trace, count):
        begins = {event["id"]: event for event in trace.of("s")}
        ends = {event["id"]: event for event in trace.of("f")}
        if count is not None:
            self.assertEqual(len(begins), count)
        self.assertGreater(len(begins), 40)
        self.assertEqual(set(begins), set(ends))
        starts = {key: {start for start, _, _ in slices} for key, slices in trace.tracks.items()}
        covered = {key: [(start, end) for start, end, _ in slices] for key, slices in trace.tracks.items()}
        for number, begin in begins.items():
            end = ends[number]
            self.assertEqual(end["bp"], "e")
            self.assertEqual(begin["pid"], end["pid"])
            self.assertLessEqual(begin["ts"], end["ts"])
            self.assertIn(nanoseconds(end["ts"]), starts[end["pid"], end["tid"]])
            at = nanoseconds(begin["ts"])
            slices = covered[begin["pid"], begin["tid"]]
            low, high = 0, len(slices)
            while low < high:
                middle = (low + high) // 2
                if slices[middle][0] <= at:
                    low = middle + 1
                else:
                    high = middle
            start, stop = slices[low - 1]
            self.assertTrue(start <= at < stop or start == at == stop, begin)
            self.assertNotEqual(begin["tid"], end["tid"])

    def test_a_step_of_eight_microbatches(self):
        trace = self.check_step("step")
        self.assertFalse([event for event in trace.of("X") if "omitted" in event["args"]])

    def test_a_step_too_long_to_be_kept_whole(self):
        trace = self.check_step("long")
        omitted = [event for event in trace.of("X") if event["args"].get("omitted")]
        self.assertGreater(len(omitted), 1500)

    def test_a_process_for_each_rank(self):
        trace = Trace("ranks")
        self.check_rules(trace)
        self.check_arrows(trace, None)
        self.assertEqual({event["pid"] for event in trace.of("s")}, {1, 4})
        processes = {event["pid"]: event["args"]["name"] for event in trace.of("M") if event["name"] == "process_name"}
        self.assertEqual(processes, {1: "rank 0", 4: "rank 3"})
        counts = collections.Counter(event["pid"] for event in trace.of("X"))
        self.assertEqual(counts[1], counts[4] + 1)  # one was launched twice at a time
        names = [event["args"]["name"] for event in trace.of("M") if event["name"] == "thread_name" and event["pid"] == 1]
        self.assertEqual(sum(", overlapping 1" in name for name in names), 1)


class NoClasses(pickle.Unpickler):
    def find_class(self, module, name):
        raise AssertionError(f"the pickle asks for {module}.{name}")


class MemorySnapshot(unittest.TestCase):
    # The opcodes that torch/utils/viz/MemoryViz.js decodes.
    KNOWN = set("""APPEND APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE
        PROTO SETITEM SETITEMS SHORT_BINUNICODE STOP TUPLE2 NEWFALSE NEWTRUE BINUNICODE EMPTY_TUPLE NONE BINFLOAT TUPLE
        TUPLE1 TUPLE3""".split())

    @classmethod
    def setUpClass(cls):
        cls.bytes = (FOLDER / "memory.pickle").read_bytes()
        cls.snapshot = NoClasses(io.BytesIO(cls.bytes)).load()

    def test_opcodes_are_those_of_the_viewer(self):
        used = {opcode.name for opcode, _, _ in pickletools.genops(self.bytes)}
        self.assertLessEqual(used, self.KNOWN)
        self.assertEqual(self.bytes[:2], b"\x80\x04")

    def test_the_origin_is_beside_what_viewers_read(self):
        self.assertEqual(set(self.snapshot), {"mfsdp_origin", "segments", "device_traces"})
        self.assertEqual(json.loads(self.snapshot["mfsdp_origin"])["source"], "simulated")

    def test_blocks_fill_their_segments(self):
        for segment in self.snapshot["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                self.assertIn(block["state"], ("active_allocated", "inactive"))
                at += block["size"]
            self.assertEqual(at, segment["address"] + segment["total_size"])
            live = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
            self.assertEqual(live, segment["active_size"])
        self.assertEqual(sorted(self.snapshot["segments"], key=lambda one: one["address"]), self.snapshot["segments"])

    def test_the_trace_leads_to_the_segments_and_never_over_another_block(self):
        (trace,) = self.snapshot["device_traces"]
        segments = [(one["address"], one["address"] + one["total_size"]) for one in self.snapshot["segments"]]
        live, requested, peak, time = {}, set(), 0, 0
        for event in trace:
            self.assertGreaterEqual(event["time_us"], time)
            time = event["time_us"]
            if event["action"] == "segment_alloc":
                self.assertIn((event["addr"], event["addr"] + event["size"]), segments)
            elif event["action"] == "alloc":
                begin, end = event["addr"], event["addr"] + event["size"]
                self.assertTrue(any(low <= begin and end <= high for low, high in segments))
                for other, (size, _) in live.items():
                    self.assertTrue(end <= other or other + size <= begin, event)
                (frame,) = event["frames"]
                self.assertTrue(frame["filename"] and frame["name"])
                live[begin] = (event["size"], frame["name"])
                peak = max(peak, sum(size for size, _ in live.values()))
            elif event["action"] == "free_requested":
                requested.add(event["addr"])
            else:
                self.assertEqual(event["action"], "free_completed")
                requested.remove(event["addr"])
                self.assertEqual(live.pop(event["addr"])[0], event["size"])
        self.assertFalse(requested)
        self.assertEqual(peak, EXPECTED["step"]["live_peak"])
        left = {block["address"]: (block["size"], block["frames"][0]["name"]) for segment in self.snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"}
        self.assertEqual(live, left)


def crc32c(data):
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def message(data):
    """The fields of a protocol buffer: [(number, value)]."""
    fields, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        elif kind == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        else:
            assert kind == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        fields.append((key >> 3, value))
    assert at == len(data)
    return fields


class TensorBoard(unittest.TestCase):
    def records(self):
        data = (FOLDER / EXPECTED["events"]["file"]).read_bytes()
        at = 0
        while at < len(data):
            head = data[at : at + 8]
            (size,) = struct.unpack("<Q", head)
            event = data[at + 12 : at + 12 + size]
            self.assertEqual(struct.unpack_from("<I", data, at + 8)[0], masked(crc32c(head)))
            self.assertEqual(struct.unpack_from("<I", data, at + 12 + size)[0], masked(crc32c(event)))
            yield message(event)
            at += 16 + size
        self.assertEqual(at, len(data))

    def test_the_checksum_of_this_reader(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)

    def test_the_name_is_safe_and_found(self):
        name = EXPECTED["events"]["file"]
        self.assertRegex(name, r"^events\.out\.tfevents\.\d{10}\.[A-Za-z0-9_-]+$")

    def check_origin(self, step, value):
        self.assertEqual((step, value[1]), (0, b"mfsdp/origin/text_summary"))
        self.assertEqual(message(dict(message(value[9]))[1]), [(1, b"text")])
        tensor = dict(message(value[8]))
        self.assertEqual(tensor[1], 7)
        self.assertEqual(json.loads(tensor[8])["source"], "measured")

    def test_every_scalar_is_there_once_and_nothing_else_of_its_tag(self):
        first, *events = self.records()
        self.assertEqual(dict(first)[3], b"brain.Event:2")
        self.assertAlmostEqual(dict(first)[1], EXPECTED["events"]["begin"], places=5)
        found, before = {}, 0
        for event in events:
            fields = dict(event)
            self.assertGreaterEqual(fields[1], before)
            before = fields[1]
            for number, value in message(fields[5]):
                self.assertEqual(number, 1)
                scalar = dict(message(value))
                if 8 in scalar:
                    self.check_origin(fields[2], scalar)
                    continue
                key = (fields[2], scalar[1].decode())
                self.assertNotIn(key, found)
                found[key] = scalar[2]
        expected = {(step, tag): value for step, tag, value in EXPECTED["events"]["scalars"]}
        tags = {tag for _, tag in expected}
        self.assertEqual({key for key in found if key[1] in tags}, set(expected))
        for key, value in expected.items():
            self.assertAlmostEqual(found[key] / value, 1, places=6)
        others = {tag for _, tag in found} - tags
        self.assertEqual(others, {"tflops", "mfu(%)"} | {f"memory/max_{kind}({unit})" for kind in ("active", "reserved") for unit in ("GiB", "%")})
        self.assertAlmostEqual(found[5, "memory/max_active(GiB)"], EXPECTED["events"]["active_gib"], places=5)


if __name__ == "__main__":
    unittest.main()
