#!/usr/bin/env python3
"""Whether two saves (gpu_backend/checkpoint/README.md) hold the same state, bit for bit.

    gpu_backend/compare/states.py SAVE OTHER

Each is step-NNNNNNNN or a folder of such (then the newest). Whichever ranks hold which elements:
weights, first and second moments of every parameter, the position, optimizer and data are compared.
Exit code 0: equal; 1: not, and a line says where; 2: no save.
"""

import json
import pathlib
import struct
import sys

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
SAME = ["step", "samples", "tokens", "seed", "data", "model", "optimizer"]


class Save:
    def __init__(self, path):
        folder = pathlib.Path(path)
        if not (folder / "manifest.json").is_file():
            folder = folder / "latest"
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.entries = {}  # of a parameter and kind: (begin, end, dtype, file, place in it)
        for name in (file["name"] for file in self.manifest["files"]):
            with open(folder / name, "rb") as file:
                magic, length = struct.unpack("<8sQ", file.read(16))
                if magic != b"mfsdp.st":
                    raise ValueError(f"{folder / name}: expected mfsdp.st at the beginning")
                header = json.loads(file.read(length))
            for e in header["entries"]:
                place = (e["begin"], e["end"], e["dtype"], folder / name, 16 + length + e["offset"])
                self.entries.setdefault((e["parameter"], e["kind"]), []).append(place)

    def values(self, key):
        """The dtype and all bytes of a parameter, which its entries hold once and without a gap."""
        entries = sorted(self.entries[key], key=lambda entry: entry[0])
        data, at = bytearray(), 0
        for begin, end, dtype, path, place in entries:
            if begin != at or dtype != entries[0][2]:
                raise ValueError(f"{path}: {key}: expected {entries[0][2]} from element {at} on, "
                                 f"got {dtype} from {begin}")
            with open(path, "rb") as file:
                file.seek(place)
                data += file.read((end - begin) * BYTES[dtype])
            at = end
        if len(data) != at * BYTES[entries[0][2]]:
            raise ValueError(f"{key}: expected {at} elements, got {len(data)} bytes")
        return entries[0][2], data


def differences(a, b):
    for field in SAME:
        if a.manifest[field] != b.manifest[field]:
            yield f"{field}: {a.manifest[field]} and {b.manifest[field]}"
    for key in sorted(a.entries.keys() ^ b.entries.keys()):
        yield f"{' '.join(key)}: only in one of them"
    for key in sorted(a.entries.keys() & b.entries.keys()):
        (dtype, first), (other_dtype, second) = a.values(key), b.values(key)
        if dtype != other_dtype or len(first) != len(second):
            yield f"{' '.join(key)}: {len(first)} bytes of {dtype}, {len(second)} of {other_dtype}"
        elif first != second:
            at = next(i for i, (x, y) in enumerate(zip(first, second)) if x != y)
            yield f"{' '.join(key)}: different from element {at // BYTES[dtype]} on"


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        a, b = Save(sys.argv[1]), Save(sys.argv[2])
        wrong = list(differences(a, b))
    except (OSError, ValueError, KeyError, struct.error) as error:
        print(f"states.py: {error}", file=sys.stderr)
        return 2
    for line in wrong[:10]:
        print(line)
    kinds = sorted({kind for _, kind in a.entries})
    print(f"{sys.argv[1]} and {sys.argv[2]}: after step {a.manifest['step']}, {len(a.entries)} "
          f"tensors ({', '.join(kinds)}), {len(wrong)} differences")
    return 1 if wrong or not a.entries else 0


if __name__ == "__main__":
    sys.exit(main())
