"""Predictions of other engines, made now by mfsdp-sim or read from a list that was made before."""

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_lab.launch import Launcher
from gpu_lab.results import Json
from gpu_lab.runs import Run, read_rows, read_runs

# Times of one launch by the host, microseconds, at which timed runs are predicted.
LAUNCHES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20)
TIMED = ("step_ms", "compute_ms", "exposed_ms", "issue_ms", "host_bound_ms", "allocated", "reserved", "device")
CHECKED = ("allocated", "reserved", "device", "step_ms", "exposed_ms", "host_bound_ms", "retries", "fits", "certain")


def engine_figures(result: Json) -> dict[str, Any]:
    """Figures of a prediction: times in ms, memory in bytes."""
    memory, time = result["memory"], result["time"]
    ms = lambda key: round(time.get(key, 0) / 1e6, 2)
    return {"step_ms": ms("step_ns"), "compute_ms": ms("compute_ns"), "exposed_ms": ms("exposed_communication_ns"),
            "issue_ms": ms("host_issue_ns"), "host_bound_ms": ms("host_bound_ns"), "allocated": memory["allocated_bytes"],
            "reserved": memory["reserved_bytes"], "device": memory["device_bytes"], "retries": memory["alloc_retries"],
            "fits": memory["fits"], "certain": memory["verdict_certain"]}


class Predictions(Protocol):
    """Figures of a run where the host takes `launch` microseconds for a launch."""

    def of(self, run: Run, launch: float) -> dict[str, float]:
        """TIMED figures."""


@dataclass
class Today:
    """Predictions of a simulator as it is."""

    launcher: Launcher
    sim: str
    gpu: str

    def of(self, run: Run, launch: float) -> dict[str, float]:
        """Asks mfsdp-sim."""
        figures = engine_figures(run.predict(self.launcher, self.sim, self.gpu, "--host-launch-us", f"{launch:g}"))
        return {name: figures[name] for name in TIMED}


class Committed:
    """Predictions that were made before, by number of the run and launch. Between launches they are interpolated."""

    def __init__(self, path: str) -> None:
        self.rows: dict[int, dict[float, dict[str, float]]] = {}
        for row in read_rows(path):
            at = self.rows.setdefault(int(row["number"]), {})
            at[float(row["launch_us"])] = {figure: float(row[figure]) for figure in TIMED}

    def of(self, run: Run, launch: float) -> dict[str, float]:
        """Looks it up."""
        rows = self.rows[run.number]
        below = max((one for one in rows if one <= launch), default=min(rows))
        above = min((one for one in rows if one >= launch), default=max(rows))
        part = 0 if above == below else (launch - below) / (above - below)
        return {figure: rows[below][figure] + part * (rows[above][figure] - rows[below][figure]) for figure in TIMED}


def _write(columns: Iterable[str], rows: Iterable[dict[str, Any]], dry_run: bool) -> None:
    if dry_run:
        for _ in rows:
            pass
        return
    writer = csv.DictWriter(sys.stdout, list(columns))
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
        sys.stdout.flush()


def print_launches(launcher: Launcher, sim: str, gpu: str, runs: str) -> None:
    """Each run of a list at each of LAUNCHES, as CSV."""
    listed = read_runs(runs)

    def rows() -> Iterable[dict[str, Any]]:
        for run in listed:
            for launch in LAUNCHES:
                result = run.predict(launcher, sim, gpu, "--host-launch-us", f"{launch:g}")
                figures = engine_figures(result) if result else {}
                yield {"number": run.number, **run.row, "gpu": gpu, "launch_us": launch,
                       **{name: figures.get(name) for name in TIMED}}

    _write(["number", *listed[0].row, "gpu", "launch_us", *TIMED], rows(), launcher.dry_run)


def print_memory(launcher: Launcher, sim: str, gpu: str, runs: str, launch_us: str | None) -> None:
    """Each run of a list, as CSV. A run with a limit is predicted twice: the limit is a share of what it would reserve."""
    listed = read_runs(runs)
    more = ["--host-launch-us", launch_us] if launch_us else []

    def rows() -> Iterable[dict[str, Any]]:
        for run in listed:
            result, limit = run.predict(launcher, sim, gpu, *more), ""
            if run.limit and result:
                limit = str(int(run.limit * result["memory"]["reserved_bytes"]))
                result = run.predict(launcher, sim, gpu, *more, "--memory-limit", f"{limit}B")
            figures = engine_figures(result) if result else {}
            yield {**run.row, "limit_bytes": limit, **{f"predicted_{name}": figures.get(name) for name in CHECKED}}

    _write([*listed[0].row, "limit_bytes", *(f"predicted_{name}" for name in CHECKED)], rows(), launcher.dry_run)
