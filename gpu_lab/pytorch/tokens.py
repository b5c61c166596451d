"""Token files and the order of samples, as mfsdp-exec reads them."""

import array
import pathlib
import random
import struct
import sys
from collections.abc import Sequence

LLMC_MAGIC, LLMC_VERSION, LLMC_HEADER = 20240801, 7, 1024  # llm.c's files of uint32 tokens; the header in bytes
MASK = (1 << 64) - 1


def read_tokens(path: str | pathlib.Path) -> "array.array[int]":
    """The stream of a text (its bytes) or of an llm.c file of uint32 tokens."""
    data = pathlib.Path(path).read_bytes()
    if len(data) < LLMC_HEADER or struct.unpack_from("<i", data)[0] != LLMC_MAGIC:
        return array.array("q", iter(data))
    words = array.array("I", data[LLMC_HEADER:])
    if sys.byteorder != "little":
        words.byteswap()
    return array.array("q", words)


def write_tokens(path: str | pathlib.Path, tokens: Sequence[int]) -> None:
    """Writes an llm.c file."""
    head = struct.pack("<3i", LLMC_MAGIC, LLMC_VERSION, len(tokens)).ljust(LLMC_HEADER, b"\0")
    pathlib.Path(path).write_bytes(head + struct.pack(f"<{len(tokens)}I", *tokens))


def random_tokens(seed: int, vocabulary: int, count: int) -> list[int]:
    """Tokens below the vocabulary's size."""
    choose = random.Random(seed)
    return [choose.randrange(vocabulary) for _ in range(count)]


def read_sample(stream: Sequence[int], sequence: int, index: int) -> tuple[list[int], list[int]]:
    """Tokens and labels: the label of a token is the one after it."""
    first = index * sequence
    return list(stream[first:first + sequence]), list(stream[first + 1:first + sequence + 1])


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def shuffled_sample(seed: int, number: int, samples: int) -> int:
    """The index of the run's `number`-th sample in a dataset: gpu_backend/train/data/dataset.hpp."""
    key = _mix(_mix(seed) ^ number // samples)
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    place = number % samples
    while True:
        left, right = place >> half, place & (1 << half) - 1
        for turn in range(8):
            mixed = _mix(_mix((key + turn) & MASK) ^ right) & (1 << half) - 1
            left, right = right, left ^ mixed
        place = left << half | right
        if place < samples:
            return place
