"""Many runs of other engines on one GPU, whose memory is held to predictions, and a few that are timed."""

import concurrent.futures
import csv
import sys
import threading
from collections.abc import Mapping
from typing import Any

from gpu_lab.launch import Launcher, own_command, ranks_command
from gpu_lab.machine import GIB, model_path
from gpu_lab.pairing import error_of, summary
from gpu_lab.results import Json, parse_lines
from gpu_lab.runs import MEGATRON, Run, family_of, read_rows, run_of

MEASURED = ("allocated", "reserved", "device", "step_ms", "compute_ms", "communication_ms", "exposed_ms", "traced_ms",
            "retries", "fits", "error")
LONGEST = 180.0  # seconds of a run


def kind_of(run: Run) -> str:
    """memory: rank 0 alone, whose collectives move nothing; one and several: timed, with one or more ranks."""
    return "memory" if not run.real else "one" if run.ranks == 1 else "several"


def is_asked(run: Run, only: str) -> bool:
    """`only`: "KIND", "KIND:ENGINE" (mfsdp: Megatron-FSDP), or empty."""
    kind, _, engine = only.partition(":")
    family, _ = family_of(run.engine)
    named = run.engine == engine or (engine == "mfsdp" and family in MEGATRON)
    return kind in ("", kind_of(run)) and (not engine or named)


def train_once(launcher: Launcher, ranks: int, words: list[str], environment: Mapping[str, str]) -> Json:
    """The output of `engines train` in processes of its own, or {"error": ...}. `ranks` 0: this process alone."""
    command = ranks_command(ranks, *words) if ranks else own_command(*words)
    done = launcher.run(command, seconds=LONGEST, environment=environment)
    facts = parse_lines(done.out.splitlines())
    return facts[-1] if facts else {"error": done.err[-2000:] or f"exit code {done.code}"}


def measure_one(run: Run, launcher: Launcher, limit: float | None, steps: str) -> Json:
    """One run. `limit`: share of the GPU's memory that PyTorch may reserve."""
    words = run.train_words(model_path(run.model))
    words += ["--memory-part", repr(limit)] if limit else []
    if not run.real:
        return train_once(launcher, 0, [*words, "--fake", "--ranks", str(run.ranks), "--steps", "4"], {})
    words += ["--steps", steps, "--exposed"]
    return train_once(launcher, run.ranks, words, {})


class MemoryRoom:
    """Lets several runs begin, as far as their memory fits the GPU together. Bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.free, self.changed = most, most, threading.Condition()

    def enter(self, wanted: int) -> int:
        """Waits until so much is free; the part that was taken."""
        need = min(wanted, self.most)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= need)
            self.free -= need
        return need

    def leave(self, taken: int) -> None:
        """Gives it back."""
        with self.changed:
            self.free += taken
            self.changed.notify_all()


def measure(launcher: Launcher, path: str, only: str, steps: str) -> None:
    """Runs a list with its predictions and prints it with what was measured, a line as each run ends.

    Runs whose memory alone is asked for run at the same time, as far as memory allows; then timed ones, one by one.
    """
    rows = [row for row in read_rows(path) if is_asked(run_of(row), only)]
    total = 80 * GIB
    if not launcher.dry_run:
        import torch
        total = torch.cuda.get_device_properties(0).total_memory
    room, lock = MemoryRoom(total - 6 * GIB), threading.Lock()
    columns = list(dict.fromkeys([*rows[0], *MEASURED])) if rows else list(MEASURED)
    writer = csv.DictWriter(sys.stdout, columns)
    if not launcher.dry_run:
        writer.writeheader()

    def take(row: dict[str, str]) -> None:
        limit = int(row["limit_bytes"]) / total if row.get("limit_bytes") else None
        facts = measure_one(run_of(row), launcher, limit, steps)
        if launcher.dry_run:
            return
        measured: dict[str, Any] = {name: facts.get(name, "") for name in MEASURED}
        measured["error"] = str(measured["error"])[-300:]
        measured["fits"] = "" if "error" in facts else "out_of_memory" not in facts
        with lock:
            writer.writerow({**row, **measured})
            sys.stdout.flush()

    def beside_others(row: dict[str, str]) -> None:
        taken = room.enter(int(row["predicted_reserved"]) + 2 * GIB)
        try:
            take(row)
        finally:
            room.leave(taken)

    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(beside_others, [row for row in rows if not run_of(row).real]))
    for row in rows:
        if run_of(row).real:
            take(row)


def check(path: str) -> None:
    """Prints measured rows beside their predictions, and the errors of each figure."""
    errors: dict[str, list[float]] = {"allocated": [], "reserved": [], "device": [], "step_ms": []}
    for row in read_rows(path):
        cells = [row[name] for name in ("engine", "model", "sequence", "micro_batch", "microbatches", "ranks", "wire")]
        cells += [row[name] for name in ("strategy", "outer", "clip") if row.get(name)]
        cells.append("recompute" if row["recompute"] == "yes" else "")
        if row["error"]:
            cells.append(f"error {row['error'].strip().splitlines()[-1]}")
        elif row["limit"]:
            doubt = "" if row["predicted_certain"] == "True" else " within error"
            cells += [row["limit"], f"fits {row['fits']}", f"predicted {row['predicted_fits']}{doubt}",
                      f"{row['retries']} retries, {row['predicted_retries']} predicted"]
        else:
            for figure, all_of in errors.items():
                if figure in ("device", "step_ms") and row["real"] != "yes":
                    continue
                predicted, measured = float(row["predicted_" + figure]), float(row[figure])
                all_of.append(error_of(predicted, measured))
                unit = GIB if figure != "step_ms" else 1
                cells += [f"{measured / unit:.2f}", f"{predicted / unit:.2f} ({100 * all_of[-1]:+.2f} %)"]
        print("|", " | ".join(cells), "|")
    for figure, all_of in errors.items():
        if all_of:
            print(f"{figure}: {len(all_of)} runs, {summary(all_of)}")


def issue_ns(launcher: Launcher, sim: str, facts: Json) -> int:
    """How long the host issues one step of small blocks, as predicted for launches of one microsecond."""
    variant = "-compile" if facts["compile"] else "-eager" if family_of(facts["engine"])[0] == MEGATRON[1] and not facts["fuse"] else ""
    run = Run("small_llama.json", 128, ranks=facts["ranks"], engine=facts["engine"] + variant, layers=facts["layers"],
              recompute=facts["recompute"], wire={"float32": "fp32", "bfloat16": "bf16"}[facts["reduce"]], clip=facts["clip"])
    result = run.predict(launcher, sim, "h200", "--host-launch-us", "1")
    return result["time"]["host_issue_ns"] if result else 0


def host_launch(launcher: Launcher, sim: str, recorded: list[Json]) -> None:
    """Prints microseconds of a launch: two runs' difference in time over their predicted difference in launches."""
    same = lambda run: tuple(run[name] for name in ("engine", "compile", "fuse", "recompute", "clip", "ranks"))
    runs = [facts for facts in recorded if "step_ms" in facts]
    for few in runs:
        for many in runs:
            if same(few) != same(many) or few["layers"] >= many["layers"]:
                continue
            measured = (many["step_ms"] - few["step_ms"]) * 1e6
            counted = issue_ns(launcher, sim, many) - issue_ns(launcher, sim, few)
            if launcher.dry_run:
                continue
            blocks = many["layers"] - few["layers"]
            print(f"{few['name']}, {many['name']}: {measured / 1e3 / blocks:.0f} us a block, "
                  f"{1e-3 * counted / blocks:.1f} launches: {measured / counted:.2f} us a launch")
