#!/usr/bin/env python3
"""Golden ids: what the package `tokenizers` makes of 10,000 lines of mixed scripts.

  golden_ids.py           writes golden_ids.bin beside this file; needs the package `tokenizers`
  golden_ids.py --check   compares instead, names the first line that differs, exit code 1
  golden_ids.py --lines   prints the lines, one JSON string each; needs no package

golden_ids.bin holds CRC-32 checksums of 4 bytes, little-endian: of the 10,000 lines as UTF-8, then of their ids as int32,
little-endian, by scenarios/tokenizers/gpt2_tiny, llama3_tiny and qwen3_tiny, without special tokens around them. The lines follow from
golden_lines.json by a counter; golden_ids_test.cpp makes the same ones.
"""
import json
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZERS = HERE.parents[3] / "scenarios" / "tokenizers"
NAMES = ["gpt2_tiny", "llama3_tiny", "qwen3_tiny"]
LINES = 10_000
MASK = (1 << 64) - 1


def mix_bits(value):
    """The finalizer of SplitMix64, as gpu_backend/train/data/random_bits.hpp has it."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def make_line(number, pieces):
    counter = number << 16

    def draw(below):
        nonlocal counter
        value = mix_bits(counter)
        counter += 1
        return value % below

    text = ""
    for _ in range(1 + draw(8)):
        piece = pieces[draw(len(pieces))]
        if isinstance(piece, list):
            text += piece[draw(len(piece))]
            continue
        count = piece["least"] + draw(piece["most"] - piece["least"] + 1)
        text += "".join(chr(piece["first"] + draw(piece["last"] - piece["first"] + 1)) for _ in range(count))
    return text


def lines():
    pieces = json.loads((HERE / "golden_lines.json").read_text())
    return [make_line(number, pieces) for number in range(LINES)]


def checksums(texts):
    """One list for the lines, one for each tokenizer."""
    from tokenizers import Tokenizer

    columns = [[zlib.crc32(text.encode()) for text in texts]]
    for name in NAMES:
        tokenizer = Tokenizer.from_file(str(TOKENIZERS / name / "tokenizer.json"))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        columns.append([zlib.crc32(struct.pack(f"<{len(line)}i", *line)) for line in ids])
    return columns


def main():
    texts = lines()
    if sys.argv[1:] == ["--lines"]:
        for text in texts:
            print(json.dumps(text))
        return 0
    columns = checksums(texts)
    golden = HERE / "golden_ids.bin"
    if sys.argv[1:] == ["--check"]:
        kept = struct.unpack(f"<{len(columns) * LINES}I", golden.read_bytes())
        for column, name in zip(range(len(columns)), ["the lines", *NAMES]):
            before = list(kept[column * LINES:(column + 1) * LINES])
            differ = [i for i in range(LINES) if before[i] != columns[column][i]]
            if differ:
                print(f"{name}: {len(differ)} lines differ, first line {differ[0]}: {texts[differ[0]]!r}")
                return 1
        print(f"{LINES} lines agree, by {', '.join(NAMES)}")
        return 0
    if sys.argv[1:]:
        sys.exit(__doc__)
    golden.write_bytes(b"".join(struct.pack(f"<{LINES}I", *column) for column in columns))
    print(f"wrote {golden}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
