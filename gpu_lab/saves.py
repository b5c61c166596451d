"""Reads saves of mfsdp-exec (gpu_backend/checkpoint/README.md has the format) and compares their states."""

import array
import json
import pathlib
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_lab.command_line import Flags, add_command

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
SAME = ("step", "samples", "tokens", "seed", "data", "model", "optimizer")
MAGIC = b"mfsdp.st"
Key = tuple[str, str]  # parameter, kind ("weight", "first_moment", "second_moment")


@dataclass(frozen=True)
class Entry:
    """Elements [begin, end) of one kind of a parameter's state: in which file and at which byte."""

    begin: int
    end: int
    dtype: str
    file: pathlib.Path
    place: int


class Save:
    """A save: a folder step-NNNNNNNN, or a folder of such (then the newest)."""

    def __init__(self, path: str | pathlib.Path) -> None:
        folder = pathlib.Path(path)
        if not (folder / "manifest.json").is_file():
            folder = folder / "latest"
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.entries: dict[Key, list[Entry]] = {}
        for name in (file["name"] for file in self.manifest["files"]):
            with open(folder / name, "rb") as file:
                magic, length = struct.unpack("<8sQ", file.read(16))
                if magic != MAGIC:
                    raise ValueError(f"{folder / name}: expected a file that begins with {MAGIC.decode()}")
                header = json.loads(file.read(length))
            for one in header["entries"]:
                entry = Entry(one["begin"], one["end"], one["dtype"], folder / name, 16 + length + one["offset"])
                self.entries.setdefault((one["parameter"], one["kind"]), []).append(entry)

    def values(self, key: Key) -> tuple[str, bytes]:
        """The dtype and all bytes of a parameter's state, which its entries hold once and without a gap."""
        entries = sorted(self.entries[key], key=lambda entry: entry.begin)
        data, at, dtype = bytearray(), 0, entries[0].dtype
        for entry in entries:
            if entry.begin != at or entry.dtype != dtype:
                raise ValueError(f"{entry.file}: {key}: expected {dtype} from element {at} on, "
                                 f"got {entry.dtype} from {entry.begin}")
            with open(entry.file, "rb") as file:
                file.seek(entry.place)
                data += file.read((entry.end - entry.begin) * BYTES[dtype])
            at = entry.end
        if len(data) != at * BYTES[dtype]:
            raise ValueError(f"{key}: expected {at} elements, got {len(data)} bytes")
        return dtype, bytes(data)

    def floats(self, kind: str) -> dict[str, "array.array[float]"]:
        """State of one kind by parameter, which has to be fp32."""
        found = {}
        for parameter, its_kind in self.entries:
            if its_kind != kind:
                continue
            dtype, data = self.values((parameter, kind))
            if dtype != "fp32":
                raise ValueError(f"{parameter}: expected fp32, got {dtype}")
            found[parameter] = array.array("f", data)
            if sys.byteorder != "little":
                found[parameter].byteswap()
        return found


def differences(a: Save, b: Save) -> Iterator[str]:
    """The differences between two saves: position, optimizer and data, and every element of the state."""
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


def compare_states(first: str | pathlib.Path, second: str | pathlib.Path) -> int:
    """Prints where two saves differ. 0: they are equal; 1: they are not; 2: one is no save."""
    try:
        a, b = Save(first), Save(second)
        wrong = list(differences(a, b))
    except (OSError, ValueError, KeyError, struct.error) as error:
        print(f"gpu_lab states: {error}", file=sys.stderr)
        return 2
    for line in wrong[:10]:
        print(line)
    kinds = sorted({kind for _, kind in a.entries})
    print(f"{first} and {second}: after step {a.manifest['step']}, {len(a.entries)} "
          f"tensors ({', '.join(kinds)}), {len(wrong)} differences")
    return 1 if wrong or not a.entries else 0


def states(flags: Flags) -> int:
    """Checks whether two saves hold the same state, bit for bit.

    SAVE and OTHER are each step-NNNNNNNN or a folder of such (then the newest). Weights, first and second moments of
    every parameter, the position, optimizer and data are compared, whichever ranks hold which elements. Exit code 0:
    equal; 1: not, and a line names the place; 2: no save.
    """
    return compare_states(flags.save, flags.other)


def add_to(commands: Any) -> None:
    """Adds `states`."""
    parser = add_command(commands, "states", states, states.__doc__, "no GPU")
    parser.add_argument("save")
    parser.add_argument("other")
