"""The results in a campaign's folder, as Markdown: measured beside predicted, further runs, and the goals that hold."""

import calendar
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpu_lab.campaign.rows import ROWS, WAYS
from gpu_lab.pairing import error_of, judge_classes, mean_of
from gpu_lab.results import (Bits, Figures, bits_of, figures_of, late_of, measured_figures, read_json, read_lines,
                             read_stamped)

# For the whole Llama-3-8B on H200s. `rate`: TFLOP/s a GPU at 8192; `best`: of any way; `ratio`: to FSDP2 compiled with the
# wire named second; `pools`: GiB of the plain way of a wire.


@dataclass(frozen=True)
class Goals:
    """Goals of one number of GPUs, by wire."""

    rate: dict[str, float]
    best: float
    ratio: dict[str, tuple[float, str]]
    pools: dict[str, float] = field(default_factory=dict)


GOALS = {
    2: Goals({"fp32": 550, "bf16": 565}, 580, {"fp32": (1.13, "fp32"), "bf16": (1.16, "fp32")}, {"fp32": 97, "bf16": 94}),
    4: Goals({"fp32": 560, "bf16": 575}, 590, {"fp32": (1.14, "fp32"), "bf16": (1.14, "bf16")}),
    8: Goals({"fp32": 565, "bf16": 580}, 597, {"fp32": (1.14, "fp32"), "bf16": (1.14, "bf16")}, {"fp32": 48, "bf16": 48}),
}
# To FSDP2 compiled with the same wire, by the fastest way of each wire; the lesser of both wires counts.
ROW_RATIOS = {"s4096": 1.2, "s2048": 1.35, "b2": 1.12, "full": 1.15, "l1b": 1.12}
STEP_ERROR = 0.025  # of a prediction


# ---- one run ------------------------------------------------------------------------------------


@dataclass
class WayResult:
    """A row in one way. `power`: medians of clock (MHz), power and limit (W) of the run's GPUs in timed steps."""

    name: str
    call: str | None = None  # runs of one call of `campaign run` had the same conditions
    cards: str | None = None
    predicted: Figures | None = None
    measured: Figures | None = None
    failed: str | None = None
    power: list[float] | None = None
    recorded: bool = False
    verified: bool = False
    cost_model: int | None = None

    @property
    def ours(self) -> bool:
        """Whether it is mfsdp-exec."""
        return WAYS[self.name].ours

    @property
    def error(self) -> float | None:
        """The predicted step's."""
        if not (self.predicted and self.measured):
            return None
        return error_of(self.predicted.step, self.measured.step)


@dataclass
class RowResult:
    """A row: how many layers of how many its model has, and its ways by name."""

    name: str
    layers: int
    of: int
    ways: dict[str, WayResult]


@dataclass
class Results:
    """All of a campaign."""

    folder: pathlib.Path
    gpus: int
    card: str
    cards: list[str]
    rows: list[RowResult]

    def row(self, name: str) -> RowResult | None:
        """The row of that name."""
        return next((row for row in self.rows if row.name == name), None)


def measured_ours(folder: pathlib.Path, skip: int) -> Figures | None:
    """A run of mfsdp-exec."""
    stamped = read_stamped(folder / "steps")
    figures = measured_figures([line for _, line in stamped], skip)
    if figures is None:
        return None
    times = [at for at, line in stamped if line.get("event") == "step"]
    figures.late = late_of(folder / "db.sqlite")
    figures.window = (times[max(skip - 1, 0)], times[-1])
    return figures


def measured_fsdp2(folder: pathlib.Path) -> Figures | None:
    """A run of `pytorch fsdp2-speed`."""
    result = read_json(folder / "result.json")
    if result is None:
        return None
    return Figures(step=result["step_ms"], tflops=result["tflops_per_gpu"], allocated=result["allocated_gib"],
                   reserved=result["reserved_gib"], window=(result["timed_from"], result["timed_to"]))


def seconds_of(stamp: str) -> float:
    """Seconds since 1970 of nvidia-smi's "2026/11/25 14:33:08.123", which a campaign has it write in UTC."""
    whole, _, part = stamp.strip().partition(".")
    return calendar.timegm(time.strptime(whole, "%Y/%m/%d %H:%M:%S")) + float("0." + (part or "0"))


def power_of(path: pathlib.Path, window: tuple[float, float], gpus: int) -> list[float] | None:
    """Medians of clock, power and limit while the timed steps ran."""
    samples = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        fields = line.split(",")
        try:
            if int(fields[1]) < gpus and window[0] <= seconds_of(fields[0]) <= window[1]:
                samples.append([float(value) for value in fields[2:5]])
        except (ValueError, IndexError):  # a line cut off, or [N/A]
            continue
    return [statistics.median(column) for column in zip(*samples)] if samples else None


def read_way(folder: pathlib.Path) -> WayResult | None:
    """None: nothing is there."""
    if not folder.is_dir():
        return None
    run = read_json(folder / "run.json") or {}
    way = WayResult(folder.name, run.get("call"), run.get("cards"), verified=(folder / "verified").exists())
    way.recorded = way.verified or (folder / "db.sqlite").exists()
    if predicted := read_json(folder / "predicted.json"):
        way.predicted, way.cost_model = figures_of(predicted), predicted.get("cost_model_version")
    if (folder / "failed").exists():
        way.failed = (folder / "failed").read_text().strip()
    elif (folder / "done").exists():
        way.measured = measured_ours(folder, run.get("skip", 10)) if way.ours else measured_fsdp2(folder)
        if way.measured is None or way.measured.window is None:
            way.failed = "its output has no result"
        else:
            way.power = power_of(folder / "power.csv", way.measured.window, run.get("gpus", 8))
    return way


def read_row(folder: pathlib.Path) -> RowResult | None:
    """None: the row was not begun."""
    shape = read_json(folder / "row.json")
    if shape is None:
        return None
    ways = {name: way for name in WAYS if (way := read_way(folder / name))}
    return RowResult(folder.name, shape["layers"], shape.get("of", 32), ways)


def read_all(folder: pathlib.Path) -> Results:
    """The --out of `campaign run`."""
    gpus, card = (folder / "machine").read_text().split()
    cards = (folder / "cards").read_text().splitlines() if (folder / "cards").exists() else []
    rows = [row for name in ROWS if (row := read_row(folder / "speed" / name))]
    return Results(folder, int(gpus), card, cards, rows)


# ---- tables -------------------------------------------------------------------------------------


def ratio_of(row: RowResult | None, way: WayResult | None, wire: str, other: str = "fsdp2") -> tuple[float, str] | None:
    """How many times as fast as FSDP2 compiled with this wire, and a remark; None where one is missing."""
    against = row.ways.get(f"{other}_{wire}") if row else None
    if not (way and way.measured and against and against.measured):
        return None
    remark = "other GPUs" if way.cards != against.cards else "" if way.call == against.call else "another call"
    return way.measured.tflops / against.measured.tflops, remark


def _pair(way: WayResult, name: str, digits: int) -> str:
    """Predicted and measured."""
    values = (getattr(figures, name) if figures else None for figures in (way.predicted, way.measured))
    return ", ".join("-" if value is None else f"{value:.{digits}f}" for value in values)


def _ratios(row: RowResult, way: WayResult) -> str:
    if not way.ours:
        return "-"
    found = ((mark, ratio_of(row, way, WAYS[way.name].wire, other)) for other, mark in (("fsdp2", ""), ("fsdp2_kept", "kept")))
    return ", ".join(" ".join(f"{ratio[0]:.3f} {mark} {ratio[1]}".split()) for mark, ratio in found if ratio) or "-"


def _cells(row: RowResult, way: WayResult) -> list[str]:
    if way.failed:
        return [f"failed: {way.failed.replace('|', '/')}", *[""] * 10]
    memory = [_pair(way, "pools", 2), _pair(way, "runtime", 2)]
    if not way.ours:
        memory = [f"{_pair(way, 'allocated', 2)} allocated", f"{_pair(way, 'reserved', 2)} reserved"]
    clocks = ["{:.0f}".format(way.power[0]), "{:.0f} of {:.0f}".format(*way.power[1:])] if way.power else ["-", "-"]
    return [f"{way.measured.tflops:.1f}" if way.measured else "not run", _pair(way, "step", 1),
            "-" if way.error is None else f"{100 * way.error:+.1f} %", _pair(way, "compute", 1), _pair(way, "exposed", 1),
            _pair(way, "idle", 2), *memory, *clocks, _ratios(row, way)]


def speed_table(results: Results) -> list[str]:
    """Lines of the table of timed runs."""
    lines = ["| row | layers | way | TFLOP/s | step ms | error | compute ms | exposed ms | idle ms | pools GiB | runtime GiB | MHz"
             " | W | x FSDP2, same wire |", "|---|---:|---|---:|---|---:|---|---|---|---|---|---:|---:|---:|"]
    for row in results.rows:
        for name, way in row.ways.items():
            cells = [ROWS[row.name].title, f"{row.layers} of {row.of}", name, *_cells(row, way)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def judge_layouts(folder: pathlib.Path) -> tuple[list[str], list[str]]:
    """Lines about the classes in a folder, and what is wrong. With exact sums the norms alone agree."""
    runs: list[tuple[str, Bits]] = []
    wrong = []
    for place in sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name)):
        if not (place / "run").exists():  # the call ended before it
            continue
        name, _, flags = (place / "run").read_text().strip().partition("|")
        bits = bits_of(read_lines(place / "steps.jsonl"), norms_alone="exact sums" in name)
        if not (place / "done").exists() or len(bits) != 6:
            why = (place / "failed").read_text().strip() if (place / "failed").exists() else "not done"
            wrong.append(f"{name} ({flags}): {why}")
        else:
            runs.append((name, bits))
    lines, differ = judge_classes(runs)
    return lines, wrong + differ


@dataclass(frozen=True)
class Part:
    """A part that has no speed: whether it is wrong, and how it went."""

    name: str
    how: str
    wrong: bool = False

    def __str__(self) -> str:
        return f"| {self.name} | {'WRONG: ' if self.wrong else ''}{self.how.replace('|', '/')} |"


def _layouts_part(name: str, folder: pathlib.Path) -> Part:
    if (folder / "skipped").exists():
        return Part(name, f"skipped: {(folder / 'skipped').read_text().strip()}")
    if not list(folder.glob("[0-9]*")):
        return Part(name, "not run")
    lines, wrong = judge_layouts(folder)
    return Part(name, "; ".join(wrong or lines), bool(wrong))


def other_parts(results: Results) -> list[Part]:
    """Classes, experts, checks, kills, and how many recorded runs are verified."""
    folder = results.folder
    parts = [_layouts_part(name, folder / name) for name in ("classes", "experts")]
    marks = [(f"check {stage}", folder / "check" / f"{stage}.passed", folder / "check" / f"{stage}.failed") for stage in "CDG"]
    marks += [(f"kills {name}", folder / "kills" / name / "done", folder / "kills" / name / "failed")
              for name in ("plain", "windows")]
    for name, good, bad in marks:
        if results.gpus < 2:
            parts.append(Part(name, "skipped: needs two GPUs"))
        elif good.exists():
            parts.append(Part(name, "passed"))
        else:
            parts.append(Part(name, "failed" if bad.exists() else "not run", bad.exists()))
    ways = [way for row in results.rows for way in row.ways.values() if way.recorded and way.measured]
    checked = sum(way.verified for way in ways)
    how = f"{checked} of {len(ways)} recorded runs" if ways else "not run"
    parts.append(Part("mfsdp-verify --run", how + ("" if checked == len(ways) else ", see verify.log"), checked != len(ways)))
    return parts


# ---- goals --------------------------------------------------------------------------------------

Line = tuple[str, str, str]  # goal, verdict, what was measured


def _rate(way: WayResult | None) -> float:
    return way.measured.tflops if way and way.measured else 0.0


def best_of(row: RowResult | None, wire: str | None = None) -> WayResult | None:
    """Our fastest way, of one wire or of all."""
    ways = list(row.ways.values()) if row else []
    return max((way for way in ways if way.ours and way.measured and wire in (None, WAYS[way.name].wire)), key=_rate, default=None)


def _line(goal: str, holds: bool | None, what: str) -> Line:
    """holds: None where it cannot be judged."""
    return goal, "open" if holds is None else "holds" if holds else "MISSED", what


def judge_rates(row: RowResult | None, goals: Goals) -> Iterator[Line]:
    """Goals of the whole Llama-3-8B at 8192."""
    ways = row.ways if row else {}
    for wire, least in goals.rate.items():
        best, goal = best_of(row, wire), f"{wire} wire, 8192: at least {least} TFLOP/s"
        plain = ways.get(wire)
        if best is None:
            yield _line(goal, None, "not run")
            continue
        what = f"{_rate(best):.1f} by {best.name}"
        if plain and plain.measured and plain is not best:
            what += f"; {_rate(plain):.1f} without options"
        yield _line(goal, _rate(best) >= least, what)
    best = best_of(row)
    if best is not None:  # to stay below it fails nothing
        reached = "holds" if _rate(best) >= goals.best else "not reached"
        yield f"aim, 8192: {goals.best} TFLOP/s", reached, f"{_rate(best):.1f} by {best.name}"
    for wire, (at_least, others) in goals.ratio.items():
        ratio = ratio_of(row, best_of(row, wire), others)
        yield _line(f"{wire} wire, 8192: {at_least} x FSDP2 compiled with {others} wire",
                    None if ratio is None or ratio[1] == "other GPUs" else ratio[0] >= at_least,
                    f"{ratio[0]:.3f} {ratio[1]}".strip() if ratio else "not run")
    for wire, most in goals.pools.items():
        known = ways.get(wire)
        pools = known.measured.pools if known and known.measured else None
        yield _line(f"{wire} wire, 8192: pools at most {most} GiB", None if pools is None else pools <= most,
                    "not run" if pools is None else f"{pools:.2f}")


def judge_others(results: Results) -> Iterator[Line]:
    """Relative results, for whole or cut models. Stated for several H200; open for other GPUs."""
    is_stated = results.gpus >= 2 and results.card == "h200"
    for name, least in ROW_RATIOS.items():
        row = results.row(name)
        ratios = [(wire, ratio) for wire in ("fp32", "bf16") if (ratio := ratio_of(row, best_of(row, wire), wire))]
        yield _line(f"{ROWS[name].title}: {least} x FSDP2 compiled, same wire",
                    min(ratio[0] for _, ratio in ratios) >= least if is_stated and len(ratios) == 2 else None,
                    ", ".join(f"{wire} {ratio[0]:.3f} {ratio[1]}".strip() for wire, ratio in ratios) or "not run")
    yield judge_microbatches("4 microbatches of 4096 at least as fast as one", results.row("m4"), results.row("s4096"))
    yield judge_microbatches("3B: likewise", results.row("l3b_m4"), results.row("l3b"))


def judge_microbatches(goal: str, four: RowResult | None, single: RowResult | None) -> Line:
    """Four microbatches beside one."""
    a, b = (best_of(row, "fp32") or best_of(row) for row in (four, single))
    if not (a and b and four and single and four.layers == single.layers):
        return _line(goal, None, "not run, or of unlike layers")
    return _line(goal, _rate(a) >= _rate(b), f"{_rate(a):.1f} by {a.name}, {_rate(b):.1f} by {b.name}")


def judge_predictions(results: Results) -> Iterator[Line]:
    """Steps, pools, and what of the fastest way at 8192 is exposed or idle."""
    ours = [(row, way) for row in results.rows for way in row.ways.values() if way.ours and way.error is not None]
    errors = [(row.name, way.name, way.error or 0.0) for row, way in ours]
    for title, some in (("8192", [error for error in errors if error[0] == "s8192"]), ("all rows", errors)):
        goal = f"step predicted within {100 * STEP_ERROR:.1f} %, {title}"
        if not some:
            yield _line(goal, None, "not run")
            continue
        worst = max(some, key=lambda error: abs(error[2]))
        yield _line(goal, abs(worst[2]) <= STEP_ERROR, f"worst {100 * worst[2]:+.1f} % ({worst[0]} {worst[1]}), "
                    f"mean {100 * mean_of([error[2] for error in some]):.1f} % of {len(some)}")
    unlike = [f"{row.name} {way.name}" for row, way in ours
              if way.predicted and way.measured and way.predicted.pools != way.measured.pools]
    yield _line("pools as predicted, to the byte", not unlike if errors else None, ", ".join(unlike) or f"{len(errors)} runs")
    fastest: list[tuple[str, str, Callable[[float, float], bool]]] = [
        ("exposed at most 1 % of the step", "exposed", lambda ms, step: ms <= 0.01 * step),
        ("idle for want of issued ops under 1 ms", "late", lambda ms, step: ms < 1)]
    for title, name, holds in fastest:
        best = best_of(results.row("s8192"))
        if best is None or best.measured is None or (value := getattr(best.measured, name)) is None:
            yield _line(f"8192, fastest way: {title}", None, "not run")
        else:
            yield _line(f"8192, fastest way: {title}", holds(value, best.measured.step), f"{value:.2f} ms by {best.name}")


def judge_goals(results: Results) -> list[Line]:
    """All goals."""
    row, goals = results.row("s8192"), GOALS.get(results.gpus)
    is_whole = row is None or row.layers == 32
    if goals is None or results.card != "h200" or not is_whole:
        lines = [("rates, pools and ratios of 8192", "open", "stated for the whole model on 2, 4 and 8 H200; this is "
                  f"{results.gpus} {results.card}{'' if is_whole else ', a cut model'}")]
    else:
        lines = list(judge_rates(row, goals))
    return [*lines, *judge_others(results), *judge_predictions(results)]


def print_report(results: Results) -> bool:
    """Prints all tables. Whether all that was run is right and no goal is missed."""
    names = sorted(set(results.cards)) or ["no GPU was looked at"]
    ways = [way for row in results.rows for way in row.ways.values()]
    versions = sorted({str(way.cost_model) for way in ways if way.cost_model})
    print(f"{results.gpus} x {results.card} of one host ({'; '.join(names)}); cost model {', '.join(versions) or '-'}. Pairs are"
          " predicted, measured; `compute`, `exposed`, `idle` are of one step of the rank that the others wait for, step and"
          " TFLOP/s medians of the timed ones.\n")
    print("\n".join(speed_table(results)))
    parts, goals = other_parts(results), judge_goals(results)
    print("\n| part | |\n|---|---|")
    print("\n".join(map(str, parts)))
    print("\n| goal | | |\n|---|---|---|")
    print("\n".join(f"| {goal} | {verdict} | {what} |" for goal, verdict, what in goals))
    return not (any(way.failed for way in ways) or any(part.wrong for part in parts)
                or any(verdict == "MISSED" for _, verdict, _ in goals))
