#!/usr/bin/env python3
"""What gpu_backend/compare/many_judge.py makes of results: of made-up ones, without GPUs."""

import json
import pathlib
import sqlite3
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "gpu_backend/compare"))
sys.dont_write_bytecode = True
from many_judge import (  # pylint: disable=wrong-import-position
    GIB, error_of, judge_classes, judge_goals, late_of, other_parts, ratio_of, read_all, report, speed_table)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def made_result(step, rate, pools):
    return {"schema": "mfsdp.result/1", "cost_model_version": 3,
            "time": {"median_step_ns": step, "compute_ns": step - 4_500_000, "exposed_communication_ns": 4_000_000,
                     "idle_ns": 500_000, "tflops_per_gpu": rate},
            "memory": {"allocated_bytes": pools + 3 * GIB, "categories": {"runtime": 3 * GIB, "activation": pools}}}


def made_run(folder, steps, rate, predicted_step, pools=40 * GIB, call="a"):
    """Twelve steps of which two are warm-up; step k ends at second 1000 + k."""
    write(folder / "run.json", json.dumps({"call": call, "cards": "x y", "gpus": 2, "skip": 2}))
    write(folder / "predicted.json", json.dumps(made_result(predicted_step, rate, pools)))
    lines = [{"event": "step", "step": k + 1, "step_ns": steps[k], "tflops_per_gpu": rate} for k in range(12)]
    text = "".join(f"{1000 + k} {json.dumps(one)}\n" for k, one in enumerate([*lines, made_result(steps[-1], rate, pools)]))
    write(folder / "steps", "1000 talk\n" + text)
    # Index 2 is no GPU of the run, and 14:00 no second of its timed steps.
    samples = [("1970/01/01 00:16:45.500", 0, 1400, 690), ("1970/01/01 00:16:46.500", 1, 1500, 700),
               ("1970/01/01 00:16:46.500", 2, 9, 9), ("1970/01/01 14:00:00.000", 0, 9, 9)]
    write(folder / "power.csv", "".join(f"{at}, {i}, {mhz}, {watt}, 700.00, 50\n" for at, i, mhz, watt in samples) + "cut")
    write(folder / "done", "")


def made_launches(path, late_ms):
    """Two steps of three kernels of 1 ms, with 0.5 ms between; the last of each is issued late, of another stream always."""
    with sqlite3.connect(path) as store:
        store.execute("create table launches (rank, step, stream, issued_ns, begin_ns, end_ns)")
        for step in range(2):
            for k in range(3):
                begin = int(1e6 * (10 * step + 1.5 * k))
                issued = begin - int(1e6 * (0.5 - late_ms)) if k == 2 else 0
                store.execute("insert into launches values (0, ?, 0, ?, ?, ?)", (step, issued, begin, begin + 1_000_000))
            store.execute("insert into launches values (0, ?, 1, ?, ?, ?)", (step, begin, begin, begin + 1))


def made_fsdp2(folder, rate, call="a"):
    write(folder / "run.json", json.dumps({"call": call, "cards": "x y", "gpus": 2, "skip": 2}))
    write(folder / "result.json", json.dumps({
        "step_ms": 900.0, "tflops_per_gpu": rate, "timed": 10, "allocated_gib": 95.7, "reserved_gib": 116.9,
        "timed_from": 1001.0, "timed_to": 1011.0}))
    write(folder / "done", "")


def made_class(folder, number, name, losses, done=True):
    write(folder / str(number) / "run", f"{name}|--strategy {number}")
    write(folder / str(number) / "steps.jsonl",
          "".join(json.dumps({"event": "step", "loss": loss, "grad_norm": 1.5}) + "\n" for loss in losses))
    write(folder / str(number) / ("done" if done else "failed"), "" if done else "exit code 3: stood still")


SLOW, FAST = [900_000_000] * 2 + [750_000_000] * 10, [900_000_000] * 2 + [730_000_000] * 10


def expect(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, expected {wanted!r}")


def make_four(folder):
    write(folder / "machine", "4 h200\n")
    write(folder / "speed/s8192/row.json", json.dumps({"layers": 32}))
    made_run(folder / "speed/s8192/fp32", SLOW, 561, 757_500_000)  # 757.5 / 750: +1 %
    made_run(folder / "speed/s8192/bf16", FAST, 574, 751_900_000)  # 751.9 / 730: +3 %
    made_fsdp2(folder / "speed/s8192/fsdp2_fp32", 490)             # 561 / 490 = 1.145
    made_fsdp2(folder / "speed/s8192/fsdp2_bf16", 510, call="b")   # 574 / 510 = 1.125
    write(folder / "speed/s8192/copy/failed", "exit code 3: stood still")


def figures_are_medians_of_timed_steps(folder):
    make_four(folder)
    row = read_all(folder)["rows"][0]
    expect(row["ways"]["fp32"]["measured"]["step"], 750.0, "median without warm-up")
    expect(row["ways"]["fp32"]["power"], [1450.0, 695.0, 700.0], "clocks and power of the timed steps")
    expect(round(error_of(row["ways"]["fp32"]), 6), 0.01, "error of a prediction")
    expect(round(row["ways"]["fp32"]["measured"]["pools"], 6), 40.0, "pools")
    expect(ratio_of(row, row["ways"]["bf16"], "bf16"), (574 / 510, "another call"), "ratio and its remark")


def each_goal_has_its_verdict(folder):
    make_four(folder)
    all_ = read_all(folder)
    verdicts = {goal: verdict for goal, verdict, _ in judge_goals(all_)}
    expect(verdicts, {
        "fp32 wire, 8192: at least 560 TFLOP/s": "holds", "bf16 wire, 8192: at least 575 TFLOP/s": "MISSED",
        "aim, 8192: 590 TFLOP/s": "not reached", "fp32 wire, 8192: 1.14 x FSDP2 compiled with fp32 wire": "holds",
        "bf16 wire, 8192: 1.14 x FSDP2 compiled with bf16 wire": "MISSED",
        "8192 x 2: 1.12 x FSDP2 compiled, same wire": "open", "4096 x 1: 1.2 x FSDP2 compiled, same wire": "open",
        "2048 x 1: 1.35 x FSDP2 compiled, same wire": "open", "8192 x 1, full recomputation: 1.15 x FSDP2 compiled, same wire": "open",
        "1B, 8192 x 2: 1.12 x FSDP2 compiled, same wire": "open",
        "4 microbatches of 4096 at least as fast as one": "open", "3B: likewise": "open",
        "step predicted within 2.5 %, 8192": "MISSED", "step predicted within 2.5 %, all rows": "MISSED",
        "pools as predicted, to the byte": "holds", "8192, fastest way: exposed at most 1 % of the step": "holds",
        "8192, fastest way: idle for want of issued ops under 1 ms": "open"}, "verdicts on four")


def idle_is_told_from_late_ops(folder):
    expect(late_of(folder / "none.sqlite"), None, "no store")
    for late in (0.0, 0.25):
        made_launches(folder / f"{late}.sqlite", late)
        expect(round(late_of(folder / f"{late}.sqlite"), 6), late, "ms of a step")


def each_row_has_all_columns(folder):
    make_four(folder)
    all_ = read_all(folder)
    expect(sum("failed: exit code 3" in one for one in speed_table(all_)), 1, "a run that failed")
    columns = {one.count("|") for one in speed_table(all_)}
    expect(len(columns), 1, "columns of the table")


def pools_on_eight_and_a_cut_model(folder):
    make_four(folder)
    # A ninth of a GiB too much for 8 GPUs, and a cut model, which has no rate to reach.
    write(folder / "machine", "8 h200\n")
    made_run(folder / "speed/s8192/fp32", SLOW, 561, 757_500_000, pools=48 * GIB + GIB // 9)
    verdicts = {goal: verdict for goal, verdict, _ in judge_goals(read_all(folder))}
    expect(verdicts["fp32 wire, 8192: pools at most 48 GiB"], "MISSED", "pools on eight")
    expect(verdicts["bf16 wire, 8192: pools at most 48 GiB"], "holds", "pools on eight, bf16")
    write(folder / "speed/s8192/row.json", json.dumps({"layers": 11}))
    expect([v for _, v, _ in judge_goals(read_all(folder))][0], "open", "a cut model")


def layouts_of_a_class_have_one_result(folder):
    # One result, two results, a run that failed, norms alone with exact sums.
    made_class(folder / "classes", 0, "flat", [1.0] * 6)
    made_class(folder / "classes", 1, "flat", [1.0] * 6)
    made_class(folder / "classes", 2, "exact sums", [1.0] * 6)
    made_class(folder / "classes", 3, "exact sums", [2.0] * 6)
    lines, wrong = judge_classes(folder / "classes")
    expect((lines, wrong), (["flat: 2 layouts, 1 results", "exact sums: 2 layouts, 1 results"], []), "classes")
    made_class(folder / "classes", 4, "flat", [1.0] * 5 + [1.25])
    made_class(folder / "classes", 5, "HSDP", [1.0] * 6, done=False)
    _, wrong = judge_classes(folder / "classes")
    expect(wrong, ["HSDP (--strategy 5): exit code 3: stood still", "flat: results differ"], "classes that are wrong")
    write(folder / "machine", "4 h200")
    parts = dict(other_parts(read_all(folder)))
    expect((parts["experts"], parts["check.sh C"], "WRONG" in parts["classes"]), ("not run", "not run", True), "other parts")
    expect(report(read_all(folder)), False, "the verdict")


if __name__ == "__main__":
    for test in (figures_are_medians_of_timed_steps, each_goal_has_its_verdict, idle_is_told_from_late_ops, each_row_has_all_columns,
                 pools_on_eight_and_a_cut_model, layouts_of_a_class_have_one_result):
        with tempfile.TemporaryDirectory() as name:
            test(pathlib.Path(name))
        print(f"{test.__name__}: right")
