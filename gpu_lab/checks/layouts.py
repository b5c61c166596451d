"""Ways to lay out one training: those of one name have the same losses and norms, bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """A class of layouts and the flags of one of them."""

    name: str
    flags: tuple[str, ...]

    @property
    def uses_windows(self) -> bool:
        """Whether its collectives use registered memory, whose GPU no other run may share."""
        return "copy_engine" in self.flags or "symmetric" in self.flags


def _all(name: str, common: str, *endings: str) -> Iterator[Layout]:
    for ending in endings:
        yield Layout(name, tuple(f"{common} {ending}".split()))


# Layouts of four ranks on two hosts. With --exact-sums all layouts of a batch have one norm; losses are summed by rank.
HOST_LAYOUTS = [
    *_all("flat, all-reduce", "--global-batch 4 --strategy 0", "", "--recompute full --allocator trace_pool"),
    *_all("flat, reduce-scatter", "--global-batch 4 --strategy", "1", "2", "3",
          "3 --recompute full --prefetch 2 --grad-slots 3 --allocator trace_pool"),
    *_all("flat, 3 microbatches", "--global-batch 12 --strategy", "2",
          "3 --recompute none --prefetch 0 --allocator double_buffer"),
    *_all("HSDP", "--global-batch 4 --outer-dp 2 --strategy", "2", "3 --allocator temporary"),
    *_all("HSDP, 3 microbatches", "--global-batch 12 --outer-dp 2 --strategy", "2", "3 --recompute full"),
    *_all("HFSDP", "--global-batch 4 --outer-dp 2 --outer-strategy optim --strategy 3", "", "--prefetch 0 --grad-slots 3"),
    *_all("exact sums", "--global-batch 12 --exact-sums --strategy", "0", "1 --micro-batch 3", "2", "3 --micro-batch 3",
          "3 --layout megatron_fsdp", "3 --outer-dp 2", "3 --outer-dp 2 --outer-strategy optim --micro-batch 3"),
]


def class_layouts(gpus: int) -> Iterator[Layout]:
    """Every strategy on all GPUs of a host. Batches divide by ranks, and by three for --micro-batch 3."""
    if gpus == 1:
        yield from _all("one rank", "--global-batch 1 --strategy", "0", "1", "2", "3", "3 --recompute full",
                        "3 --placement attention")
        yield from _all("one rank, 3 microbatches", "--global-batch 3 --strategy", "2", "3", "3 --recompute none --prefetch 0")
        yield from _all("exact sums", "--exact-sums --global-batch 12 --strategy", "0", "3", "3 --micro-batch 3")
        return
    one, three = f"--global-batch {gpus}", f"--global-batch {3 * gpus}"
    yield from _all("flat, all-reduce", f"{one} --strategy 0", "", "--recompute full --allocator trace_pool")
    yield from _all("flat, reduce-scatter", f"{one} --strategy", "1", "2", "3",
                    "3 --recompute full --prefetch 2 --grad-slots 3", "3 --keep-gathered 1", "3 --placement attention",
                    "3 --gather copy_engine", "3 --gather symmetric")
    yield from _all("flat, 3 microbatches", f"{three} --strategy", "2", "3", "3 --recompute none --prefetch 0",
                    "3 --placement attention")
    yield from _all("rank order", f"{one} --reduce copy_engine --strategy", "2", "3",
                    "3 --gather copy_engine --placement attention")
    yield from _all("rank order, 3 microbatches", f"{three} --reduce copy_engine --strategy", "2", "3 --gather copy_engine")
    yield from _all("symmetric", f"{one} --reduce symmetric --strategy", "2", "3",
                    "3 --gather copy_engine --placement attention")
    for outer in (2, 4):
        if outer > 2 and outer >= gpus:
            continue
        mesh = f"--outer-dp {outer}"
        yield from _all(f"HSDP, {outer} groups", f"{one} {mesh} --strategy", "2", "3 --allocator temporary")
        yield from _all(f"HSDP, {outer} groups, 3 microbatches", f"{three} {mesh} --strategy", "2", "3 --recompute full")
        yield from _all(f"HFSDP, {outer} groups", f"{one} {mesh} --outer-strategy optim --strategy 3", "",
                        "--prefetch 0 --grad-slots 3")
        yield from _all("exact sums", f"--exact-sums {three} {mesh} --strategy 3", "", "--outer-strategy optim")
    yield from _all("exact sums", f"--exact-sums {three} --strategy", "0", "1 --micro-batch 3", "2", "3 --micro-batch 3",
                    "3 --layout megatron_fsdp", "3 --gather copy_engine --reduce copy_engine",
                    "3 --gather copy_engine --reduce symmetric")


def expert_layouts(gpus: int) -> Iterator[Layout]:
    """A mixture of experts, sharded as all parameters are, or by expert (--ep)."""
    two = f"--exact-sums --global-batch {2 * gpus} --strategy"
    yield from _all("experts", f"--global-batch {gpus} --strategy", "2", "3", "3 --recompute full")
    yield from _all("experts, exact sums", two, "0", "3", "3 --micro-batch 2")
    if gpus >= 2:
        yield from _all("experts, exact sums", f"{two} 3 --ep", *sorted({"2", str(gpus)}))
