#!/usr/bin/env python3
"""What many.sh left in a folder, as Markdown: measured beside predicted, what else was run, which goals hold.

    many_judge.py FOLDER              the tables; for docs/lab
    many_judge.py --classes FOLDER    whether layouts of one class have one result

Exit code 0: all that was run is right and no goal is missed; 1: not; 2: a wrong flag.
"""

import calendar
import collections
import contextlib
import json
import pathlib
import sqlite3
import statistics
import sys
import time

ROWS = {"s8192": "8192 x 1", "s4096": "4096 x 1", "s2048": "2048 x 1", "b2": "8192 x 2", "m4": "4096 x 1, 4 microbatches",
        "full": "8192 x 1, full recomputation", "l1b": "1B, 8192 x 2", "l3b": "3B, 4096 x 1",
        "l3b_m4": "3B, 4096 x 1, 4 microbatches"}
WIRE = {"fp32": "fp32", "fp32_copy": "fp32", "fp32_symmetric": "fp32", "fp32_found": "fp32", "bf16": "bf16", "copy": "bf16",
        "symmetric": "bf16", "found": "bf16", "fsdp2_fp32": "fp32", "fsdp2_bf16": "bf16", "fsdp2_kept_fp32": "fp32",
        "fsdp2_kept_bf16": "bf16"}

# Of the whole Llama-3-8B on H200s. `rate`: TFLOP/s a GPU at 8192; `best`: of any way; `ratio`: to FSDP2 compiled with the
# wire named second; `pools`: GiB of the plain way of a wire.
GOALS = {
    2: {"rate": {"fp32": 550, "bf16": 565}, "best": 580, "ratio": {"fp32": (1.13, "fp32"), "bf16": (1.16, "fp32")},
        "pools": {"fp32": 97, "bf16": 94}},
    4: {"rate": {"fp32": 560, "bf16": 575}, "best": 590, "ratio": {"fp32": (1.14, "fp32"), "bf16": (1.14, "bf16")}, "pools": {}},
    8: {"rate": {"fp32": 565, "bf16": 580}, "best": 597, "ratio": {"fp32": (1.14, "fp32"), "bf16": (1.14, "bf16")},
        "pools": {"fp32": 48, "bf16": 48}},
}
# To FSDP2 compiled with the same wire, by the fastest way of each wire; the lesser of both wires counts.
ROW_RATIOS = {"s4096": 1.2, "s2048": 1.35, "b2": 1.12, "full": 1.15, "l1b": 1.12}
STEP_ERROR = 0.025  # of a prediction
GIB = 2**30


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


# ---- one run ------------------------------------------------------------------------------------


def stamped_lines(path):
    """[(seconds since 1970, object)] of the lines that are JSON."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        at, _, text = line.partition(" ")
        if text.startswith("{"):
            try:
                found.append((float(at), json.loads(text)))
            except ValueError:
                continue
    return found


def figures_of(result):
    """Of a result of mfsdp-sim or mfsdp-exec, in ms and GiB."""
    times, memory = result["time"], result["memory"]
    runtime = memory["categories"].get("runtime", 0)
    other = {}
    if "reserved_bytes" in memory:
        other = {"allocated": memory["allocated_bytes"] / GIB, "reserved": memory["reserved_bytes"] / GIB}
    return {**other, "step": times["median_step_ns"] / 1e6, "compute": times["compute_ns"] / 1e6,
            "exposed": times["exposed_communication_ns"] / 1e6, "idle": times["idle_ns"] / 1e6,
            "pools": (memory["allocated_bytes"] - runtime) / GIB, "runtime": runtime / GIB,
            "tflops": times["tflops_per_gpu"]}


def measured_ours(folder, skip):
    """The run's figures and between which seconds its timed steps ran."""
    lines = stamped_lines(folder / "steps")
    steps = [(at, line) for at, line in lines if line.get("event") == "step"]
    results = [line for _, line in lines if line.get("schema", "").startswith("mfsdp.result")]
    if not results or len(steps) <= skip:
        return None
    figures = figures_of(results[-1])
    figures["step"] = statistics.median(line["step_ns"] for _, line in steps[skip:]) / 1e6
    figures["tflops"] = statistics.median(line["tflops_per_gpu"] for _, line in steps[skip:])
    figures["steps"] = len(steps) - skip
    figures["late"] = late_of(folder / "db.sqlite")
    figures["window"] = (steps[max(skip - 1, 0)][0], steps[-1][0])
    return figures


def late_of(path):
    """ms of a step in which rank 0's stream of compute was empty as the host had not issued its next op; None: not stored.

    `launches` has the last steps of a run. The stream of compute is the one with the most launches.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            rows = store.execute("select stream, step, issued_ns, begin_ns, end_ns from launches where rank = 0"
                                 " order by begin_ns").fetchall()
    except sqlite3.Error:
        return None
    if not rows:
        return None
    stream = collections.Counter(row[0] for row in rows).most_common(1)[0][0]
    late, ended = 0, None
    for _, _, issued, begin, end in (row for row in rows if row[0] == stream):
        if ended is not None:
            late += max(0, min(begin, issued) - ended)
        ended = end if ended is None else max(ended, end)
    return late / 1e6 / len({row[1] for row in rows})


def measured_fsdp2(folder):
    result = read_json(folder / "result.json")
    if result is None:
        return None
    return {"step": result["step_ms"], "tflops": result["tflops_per_gpu"], "steps": result["timed"],
            "allocated": result["allocated_gib"], "reserved": result["reserved_gib"],
            "window": (result["timed_from"], result["timed_to"])}


def seconds_of(stamp):
    """nvidia-smi's "2026/11/25 14:33:08.123", which many.sh has it write in UTC."""
    whole, _, part = stamp.strip().partition(".")
    return calendar.timegm(time.strptime(whole, "%Y/%m/%d %H:%M:%S")) + float("0." + (part or "0"))


def power_of(path, window, gpus):
    """Medians of clock (MHz), power and limit (W) of the run's GPUs while its timed steps ran."""
    samples = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split(",")
        try:
            if int(fields[1]) < gpus and window[0] <= seconds_of(fields[0]) <= window[1]:
                samples.append([float(field) for field in fields[2:5]])
        except (ValueError, IndexError):  # a line cut off, or [N/A]
            continue
    return [statistics.median(column) for column in zip(*samples)] if samples else None


def read_way(folder):
    """None: nothing is there."""
    if not folder.is_dir():
        return None
    run = read_json(folder / "run.json") or {}
    way = {"name": folder.name, "call": run.get("call"), "cards": run.get("cards"), "measured": None, "failed": None,
           "predicted": None, "power": None, "verified": (folder / "verified").exists()}
    way["recorded"] = way["verified"] or (folder / "db.sqlite").exists()
    if predicted := read_json(folder / "predicted.json"):
        way["predicted"] = figures_of(predicted)
        way["cost_model"] = predicted.get("cost_model_version")
    if (folder / "failed").exists():
        way["failed"] = (folder / "failed").read_text().strip()
    elif (folder / "done").exists():
        is_other = folder.name.startswith("fsdp2")
        way["measured"] = measured_fsdp2(folder) if is_other else measured_ours(folder, run.get("skip", 10))
        if way["measured"] is None:
            way["failed"] = "its output has no result"
        else:
            way["power"] = power_of(folder / "power.csv", way["measured"]["window"], run.get("gpus", 8))
    return way


def read_row(folder):
    shape = read_json(folder / "row.json")
    if shape is None:
        return None
    ways = {name: way for name in WIRE if (way := read_way(folder / name))}
    return {"name": folder.name, "layers": shape["layers"], "of": shape.get("of", 32), "ways": ways}


def read_all(folder):
    gpus, card = (folder / "machine").read_text().split()
    cards = (folder / "cards").read_text().splitlines() if (folder / "cards").exists() else []
    rows = [row for name in ROWS if (row := read_row(folder / "speed" / name))]
    return {"folder": folder, "gpus": int(gpus), "card": card, "cards": cards, "rows": rows}


# ---- tables -------------------------------------------------------------------------------------


def ratio_of(row, way, wire, other="fsdp2"):
    """How many times as fast as FSDP2 compiled with this wire, and a remark; None where one is missing."""
    other = row["ways"].get(f"{other}_{wire}")
    if not (way and way["measured"] and other and other["measured"]):
        return None
    return way["measured"]["tflops"] / other["measured"]["tflops"], remark_of(way, other)


def remark_of(way, other):
    if way["cards"] != other["cards"]:
        return "other GPUs"
    return "" if way["call"] == other["call"] else "another call"


def pair(way, key, digits):
    def text(figures):
        return f"{figures[key]:.{digits}f}" if figures and key in figures else "-"
    return f"{text(way['predicted'])}, {text(way['measured'])}"


def error_of(way):
    if not (way["predicted"] and way["measured"]):
        return None
    return way["predicted"]["step"] / way["measured"]["step"] - 1


def speed_table(all_):
    lines = ["| row | layers | way | TFLOP/s | step ms | error | compute ms | exposed ms | idle ms | pools GiB | runtime GiB | MHz | W | x FSDP2, same wire |",
             "|---|---:|---|---:|---|---:|---|---|---|---|---|---:|---:|---:|"]
    for row in all_["rows"]:
        for name, way in row["ways"].items():
            head = f"| {ROWS[row['name']]} | {row['layers']} of {row['of']} | {name} "
            if way["failed"]:
                lines.append(head + f"| failed: {way['failed'].replace('|', '/')} " + "| " * 10 + "|")
                continue
            error, ratios = error_of(way), []
            if not name.startswith("fsdp2"):
                ratios = [(mark, ratio) for other, mark in (("fsdp2", ""), ("fsdp2_kept", "kept"))
                          if (ratio := ratio_of(row, way, WIRE[name], other))]
            memory = f"{pair(way, 'pools', 2)} | {pair(way, 'runtime', 2)}"
            if name.startswith("fsdp2"):
                memory = f"{pair(way, 'allocated', 2)} allocated | {pair(way, 'reserved', 2)} reserved"
            rate = f"{way['measured']['tflops']:.1f}" if way["measured"] else "not run"
            clocks = "{:.0f} | {:.0f} of {:.0f}".format(*way["power"]) if way["power"] else "- | -"
            lines.append(
                head + f"| {rate} | {pair(way, 'step', 1)} | {'-' if error is None else f'{100 * error:+.1f} %'} "
                f"| {pair(way, 'compute', 1)} | {pair(way, 'exposed', 1)} | {pair(way, 'idle', 2)} | {memory} | {clocks} "
                f"| {', '.join(' '.join(f'{ratio[0]:.3f} {mark} {ratio[1]}'.split()) for mark, ratio in ratios) or '-'} |")
    return lines


def other_parts(all_):
    """[(part, how it went)] of all that is no speed; the words "WRONG" and "not run" are looked for."""
    folder, parts = all_["folder"], []
    for name in ("classes", "experts"):
        if (folder / name / "skipped").exists():
            parts.append((name, "skipped: " + (folder / name / "skipped").read_text().strip()))
        elif not list((folder / name).glob("[0-9]*")):
            parts.append((name, "not run"))
        else:
            lines, wrong = judge_classes(folder / name)
            parts.append((name, ("WRONG: " if wrong else "") + "; ".join(wrong or lines)))
    for what, title in (("check", "check.sh"), ("kills", "kills")):
        for name in ("CDG" if what == "check" else ("plain", "windows")):
            place = folder / what / name if what == "kills" else None
            good = (place / "done").exists() if place else (folder / what / f"{name}.passed").exists()
            bad = (place / "failed").exists() if place else (folder / what / f"{name}.failed").exists()
            how = "passed" if good else "WRONG: failed" if bad else "not run"
            if all_["gpus"] < 2:
                how = "skipped: needs two GPUs"
            parts.append((f"{title} {name}", how))
    ways = [way for row in all_["rows"] for way in row["ways"].values() if way["recorded"] and way["measured"]]
    checked = sum(way["verified"] for way in ways)
    parts.append(("mfsdp-verify --run", "not run" if not ways else
                  f"{checked} of {len(ways)} recorded runs" + ("" if checked == len(ways) else ": not run or WRONG, see verify.log")))
    return parts


# ---- classes ------------------------------------------------------------------------------------


def steps_of(path, norms_alone):
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            step = json.loads(line)
        except ValueError:  # talk, or cut off
            continue
        if step.get("event") == "step":
            found.append((step["grad_norm"],) if norms_alone else (step["loss"], step["grad_norm"]))
    return tuple(found)


def judge_classes(folder):
    """Losses and norms of all layouts of a class agree; with exact sums the norms, as losses are summed by rank."""
    classes, wrong = {}, []
    for place in sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name)):
        if not (place / "run").exists():  # the call ended before it
            continue
        name, _, flags = (place / "run").read_text().strip().partition("|")
        steps = steps_of(place / "steps.jsonl", "exact sums" in name)
        if not (place / "done").exists() or len(steps) != 6:
            why = (place / "failed").read_text().strip() if (place / "failed").exists() else "not done"
            wrong.append(f"{name} ({flags}): {why}")
        else:
            classes.setdefault(name, []).append(steps)
    lines = [f"{name}: {len(runs)} layouts, {len(set(runs))} results" for name, runs in classes.items()]
    wrong += [f"{name}: results differ" for name, runs in classes.items() if len(set(runs)) != 1]
    return lines, wrong


# ---- goals --------------------------------------------------------------------------------------


def row_named(all_, name):
    return next((row for row in all_["rows"] if row["name"] == name), None)


def best_of(row, wire=None):
    ways = [way for name, way in (row["ways"] if row else {}).items()
            if not name.startswith("fsdp2") and way["measured"] and wire in (None, WIRE[name])]
    return max(ways, key=lambda way: way["measured"]["tflops"], default=None)


def line(goal, holds, what):
    """holds: None where it cannot be judged."""
    return (goal, "open" if holds is None else "holds" if holds else "MISSED", what)


def judge_rates(all_, row, goals):
    for wire, least in goals["rate"].items():
        best, plain = best_of(row, wire), (row or {"ways": {}})["ways"].get(wire)
        if best is None:
            yield line(f"{wire} wire, 8192: at least {least} TFLOP/s", None, "not run")
            continue
        what = f"{best['measured']['tflops']:.1f} by {best['name']}"
        if plain and plain["measured"] and plain is not best:
            what += f"; {plain['measured']['tflops']:.1f} without options"
        yield line(f"{wire} wire, 8192: at least {least} TFLOP/s", best["measured"]["tflops"] >= least, what)
    best = best_of(row)
    if best is not None:  # to aim at; to stay below it fails nothing
        reached = "holds" if best["measured"]["tflops"] >= goals["best"] else "not reached"
        yield f"aim, 8192: {goals['best']} TFLOP/s", reached, f"{best['measured']['tflops']:.1f} by {best['name']}"
    for wire, (least, others) in goals["ratio"].items():
        ratio = ratio_of(row, best_of(row, wire), others) if row else None
        yield line(f"{wire} wire, 8192: {least} x FSDP2 compiled with {others} wire",
                   None if ratio is None or ratio[1] == "other GPUs" else ratio[0] >= least,
                   f"{ratio[0]:.3f} {ratio[1]}".strip() if ratio else "not run")
    for wire, most in goals["pools"].items():
        way = row["ways"].get(wire) if row else None
        known = way["measured"] if way else None
        yield line(f"{wire} wire, 8192: pools at most {most} GiB", known["pools"] <= most if known else None,
                   f"{known['pools']:.2f}" if known else "not run")


def judge_others(all_):
    """Of whole or cut models: what is relative. Stated for several H200: elsewhere it is open."""
    is_stated = all_["gpus"] >= 2 and all_["card"] == "h200"
    for name, least in ROW_RATIOS.items():
        row = row_named(all_, name)
        ratios = [(wire, ratio) for wire in ("fp32", "bf16") if row and (ratio := ratio_of(row, best_of(row, wire), wire))]
        yield line(f"{ROWS[name]}: {least} x FSDP2 compiled, same wire",
                   min(ratio[0] for _, ratio in ratios) >= least if is_stated and len(ratios) == 2 else None,
                   ", ".join(f"{wire} {ratio[0]:.3f} {ratio[1]}".strip() for wire, ratio in ratios) or "not run")
    yield judge_microbatches("4 microbatches of 4096 at least as fast as one", row_named(all_, "m4"), row_named(all_, "s4096"))
    yield judge_microbatches("3B: likewise", row_named(all_, "l3b_m4"), row_named(all_, "l3b"))


def judge_microbatches(goal, four, single):
    if not (best_of(four) and best_of(single) and four["layers"] == single["layers"]):
        return line(goal, None, "not run, or of unlike layers")
    a, b = best_of(four, "fp32") or best_of(four), best_of(single, "fp32") or best_of(single)
    return line(goal, a["measured"]["tflops"] >= b["measured"]["tflops"],
                f"{a['measured']['tflops']:.1f} by {a['name']}, {b['measured']['tflops']:.1f} by {b['name']}")


def judge_predictions(all_):
    errors = [(row["name"], name, error) for row in all_["rows"] for name, way in row["ways"].items()
              if not name.startswith("fsdp2") and (error := error_of(way)) is not None]
    head = [error for error in errors if error[0] == "s8192"]
    for title, some in (("8192", head), ("all rows", errors)):
        worst = max(some, key=lambda error: abs(error[2]), default=None)
        yield line(f"step predicted within {100 * STEP_ERROR:.1f} %, {title}", abs(worst[2]) <= STEP_ERROR if worst else None,
                   f"worst {100 * worst[2]:+.1f} % ({worst[0]} {worst[1]}), "
                   f"mean {100 * statistics.mean(abs(error[2]) for error in some):.1f} % of {len(some)}" if worst else "not run")
    unlike = [f"{row['name']} {name}" for row in all_["rows"] for name, way in row["ways"].items()
              if not name.startswith("fsdp2") and way["predicted"] and way["measured"]
              and way["predicted"]["pools"] != way["measured"]["pools"]]
    yield line("pools as predicted, to the byte", not unlike if errors else None, ", ".join(unlike) or f"{len(errors)} runs")
    for title, key, holds in (("exposed at most 1 % of the step", "exposed", lambda f: f["exposed"] <= 0.01 * f["step"]),
                              ("idle for want of issued ops under 1 ms", "late", lambda f: f["late"] < 1)):
        best = best_of(row_named(all_, "s8192"))
        known = best and best["measured"][key] is not None
        yield line(f"8192, fastest way: {title}", holds(best["measured"]) if known else None,
                   f"{best['measured'][key]:.2f} ms by {best['name']}" if known else "not run")


def judge_goals(all_):
    lines, row = [], row_named(all_, "s8192")
    goals = GOALS.get(all_["gpus"])
    is_whole = row is None or row["layers"] == 32
    if goals is None or all_["card"] != "h200" or not is_whole:
        lines.append(("rates, pools and ratios of 8192", "open",
                      "stated for the whole model on 2, 4 and 8 H200; this is "
                      f"{all_['gpus']} {all_['card']}{'' if is_whole else ', a cut model'}"))
    else:
        lines += judge_rates(all_, row, goals)
    return [*lines, *judge_others(all_), *judge_predictions(all_)]


def report(all_):
    names = sorted(set(all_["cards"])) or ["no GPU was looked at"]
    versions = sorted({str(way["cost_model"]) for row in all_["rows"] for way in row["ways"].values() if way.get("cost_model")})
    print(f"{all_['gpus']} x {all_['card']} of one host ({'; '.join(names)}); cost model {', '.join(versions) or '-'}. Pairs are"
          " predicted, measured; `compute`, `exposed`, `idle` are of one step of the rank that the others wait for, step and"
          " TFLOP/s medians of the timed ones.\n")
    print("\n".join(speed_table(all_)))
    parts = other_parts(all_)
    print("\n| part | |\n|---|---|")
    for name, how in parts:
        print(f"| {name} | {how.replace('|', '/')} |")
    goals = judge_goals(all_)
    print("\n| goal | | |\n|---|---|---|")
    for goal, verdict, what in goals:
        print(f"| {goal} | {verdict} | {what} |")
    failed = any(way["failed"] for row in all_["rows"] for way in row["ways"].values())
    return not failed and not any("WRONG" in how for _, how in parts) and not any(v == "MISSED" for _, v, _ in goals)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--classes":
        lines, wrong = judge_classes(pathlib.Path(arguments[1]))
        print("\n".join([*lines, *(f"WRONG: {one}" for one in wrong)]))
        return 1 if wrong else 0
    if len(arguments) != 1 or not (pathlib.Path(arguments[0]) / "machine").is_file():
        print("many_judge.py: expected the --out of many.sh or --classes FOLDER", file=sys.stderr)
        return 2
    return 0 if report(read_all(pathlib.Path(arguments[0]))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
