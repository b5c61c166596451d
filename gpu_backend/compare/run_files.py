"""What mfsdp-exec reads and leaves, for comparisons in Python: tokens, order of samples, saves."""

import json
import pathlib

import numpy

LLMC_MAGIC = 20240801  # of llm.c's files of uint32 tokens, version 7
MASK = (1 << 64) - 1


def read_tokens(path):
    """The stream of a text (its bytes) or of an llm.c file of uint32 tokens, as int64."""
    data = pathlib.Path(path).read_bytes()
    head = numpy.frombuffer(data[:12], "<i4")
    if len(data) >= 1024 and head[0] == LLMC_MAGIC:
        return numpy.frombuffer(data, "<u4", offset=1024).astype(numpy.int64)
    return numpy.frombuffer(data, numpy.uint8).astype(numpy.int64)


def write_tokens(path, tokens):
    head = numpy.zeros(256, "<i4")
    head[:3] = LLMC_MAGIC, 7, len(tokens)
    pathlib.Path(path).write_bytes(head.tobytes() + numpy.asarray(tokens, "<u4").tobytes())


def read_sample(stream, sequence, index):
    """Tokens and labels: the label of a token is the one after it."""
    first = index * sequence
    return stream[first:first + sequence], stream[first + 1:first + sequence + 1]


def mix_bits(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def shuffled_sample(seed, number, samples):
    """Which sample of a dataset is the run's `number`-th: gpu_backend/train/data/dataset.hpp."""
    key = mix_bits(mix_bits(seed) ^ number // samples)
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    place = number % samples
    while True:
        left, right = place >> half, place & (1 << half) - 1
        for round_number in range(8):
            mixed = mix_bits(mix_bits((key + round_number) & MASK) ^ right) & (1 << half) - 1
            left, right = right, left ^ mixed
        place = left << half | right
        if place < samples:
            return place


def read_state(folder, kind):
    """Parameters' values of one kind ("weight", "first_moment", "second_moment") in a save: flat
    fp32 arrays by name. gpu_backend/checkpoint/README.md has the format."""
    folder = pathlib.Path(folder)
    runs = {}
    for file in json.loads((folder / "manifest.json").read_text())["files"]:
        path = folder / file["name"]
        with path.open("rb") as opened:
            if opened.read(8) != b"mfsdp.st":
                raise SystemExit(f"{path}: expected a file that begins with \"mfsdp.st\"")
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
        for entry in header["entries"]:
            if entry["kind"] != kind:
                continue
            if entry["dtype"] != "fp32":
                raise SystemExit(f"{path}: {entry['parameter']}: expected fp32, got {entry['dtype']}")
            values = numpy.fromfile(path, "<f4", entry["end"] - entry["begin"],
                                    offset=16 + length + entry["offset"])
            runs.setdefault(entry["parameter"], []).append((entry["begin"], values))
    state = {}
    for name, found in runs.items():
        found.sort(key=lambda run: run[0])
        ends = [0] + [begin + len(values) for begin, values in found]
        if any(begin != end for (begin, _), end in zip(found, ends)):
            raise SystemExit(f"{folder}: {name}: elements are missing")
        state[name] = numpy.concatenate([values for _, values in found])
    return state


def parts_of(parameter):
    """Names, in Hugging Face's checkpoints, of the tensors that lie one behind the other in one of
    ours: gpu_backend/weights/hf_tensors.hpp."""
    for fused, parts in (("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                         ("gate_up_proj", ("gate_proj", "up_proj"))):
        if f".{fused}." in parameter:
            return [parameter.replace(fused, part) for part in parts]
    return [parameter]
