"""The report of a campaign, from made-up results, without GPUs."""

import contextlib
import io
import json
import pathlib
import sqlite3
import tempfile
import unittest

from gpu_lab.campaign.report import (judge_goals, judge_layouts, other_parts, print_report, ratio_of, read_all,
                                     speed_table)
from gpu_lab.machine import GIB
from gpu_lab.results import late_of


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
    write(folder / "steps", "1000 no JSON\n" + text)
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


def make_four(folder):
    write(folder / "machine", "4 h200\n")
    write(folder / "speed/s8192/row.json", json.dumps({"layers": 32}))
    made_run(folder / "speed/s8192/fp32", SLOW, 561, 757_500_000)  # 757.5 / 750: +1 %
    made_run(folder / "speed/s8192/bf16", FAST, 574, 751_900_000)  # 751.9 / 730: +3 %
    made_fsdp2(folder / "speed/s8192/fsdp2_fp32", 490)             # 561 / 490 = 1.145
    made_fsdp2(folder / "speed/s8192/fsdp2_bf16", 510, call="b")   # 574 / 510 = 1.125
    write(folder / "speed/s8192/copy/failed", "exit code 3: stood still")


class Report(unittest.TestCase):
    """One campaign in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_figures_are_medians_of_timed_steps(self):
        folder = self.folder
        make_four(folder)
        row = read_all(folder).rows[0]
        self.assertEqual(row.ways["fp32"].measured.step, 750.0, "median without warm-up")
        self.assertEqual(row.ways["fp32"].power, [1450.0, 695.0, 700.0], "clocks and power of the timed steps")
        self.assertEqual(round(row.ways["fp32"].error, 6), 0.01, "error of a prediction")
        self.assertEqual(round(row.ways["fp32"].measured.pools, 6), 40.0, "pools")
        self.assertEqual(ratio_of(row, row.ways["bf16"], "bf16"), (574 / 510, "another call"), "ratio and its remark")

    def test_each_goal_has_its_verdict(self):
        folder = self.folder
        make_four(folder)
        all_ = read_all(folder)
        verdicts = {goal: verdict for goal, verdict, _ in judge_goals(all_)}
        self.assertEqual(verdicts, {
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

    def test_idle_time_follows_from_late_ops(self):
        folder = self.folder
        self.assertEqual(late_of(folder / "none.sqlite"), None, "no store")
        for late in (0.0, 0.25):
            made_launches(folder / f"{late}.sqlite", late)
            self.assertEqual(round(late_of(folder / f"{late}.sqlite"), 6), late, "ms of a step")

    def test_each_row_has_all_columns(self):
        folder = self.folder
        make_four(folder)
        all_ = read_all(folder)
        self.assertEqual(sum("failed: exit code 3" in one for one in speed_table(all_)), 1, "a run that failed")
        columns = {one.count("|") for one in speed_table(all_)}
        self.assertEqual(len(columns), 1, "columns of the table")

    def test_pools_on_eight_and_a_cut_model(self):
        folder = self.folder
        make_four(folder)
        # A ninth of a GiB too much for 8 GPUs, and a cut model, which has no rate to reach.
        write(folder / "machine", "8 h200\n")
        made_run(folder / "speed/s8192/fp32", SLOW, 561, 757_500_000, pools=48 * GIB + GIB // 9)
        verdicts = {goal: verdict for goal, verdict, _ in judge_goals(read_all(folder))}
        self.assertEqual(verdicts["fp32 wire, 8192: pools at most 48 GiB"], "MISSED", "pools on eight")
        self.assertEqual(verdicts["bf16 wire, 8192: pools at most 48 GiB"], "holds", "pools on eight, bf16")
        write(folder / "speed/s8192/row.json", json.dumps({"layers": 11}))
        self.assertEqual([v for _, v, _ in judge_goals(read_all(folder))][0], "open", "a cut model")

    def test_layouts_of_a_class_have_one_result(self):
        folder = self.folder
        # One result, two results, a run that failed, norms alone with exact sums.
        made_class(folder / "classes", 0, "flat", [1.0] * 6)
        made_class(folder / "classes", 1, "flat", [1.0] * 6)
        made_class(folder / "classes", 2, "exact sums", [1.0] * 6)
        made_class(folder / "classes", 3, "exact sums", [2.0] * 6)
        lines, wrong = judge_layouts(folder / "classes")
        self.assertEqual((lines, wrong), (["flat: 2 layouts, 1 results", "exact sums: 2 layouts, 1 results"], []), "classes")
        made_class(folder / "classes", 4, "flat", [1.0] * 5 + [1.25])
        made_class(folder / "classes", 5, "HSDP", [1.0] * 6, done=False)
        _, wrong = judge_layouts(folder / "classes")
        self.assertEqual(wrong, ["HSDP (--strategy 5): exit code 3: stood still", "flat: results differ"], "classes that are wrong")
        write(folder / "machine", "4 h200")
        parts = {part.name: (part.how, part.wrong) for part in other_parts(read_all(folder))}
        self.assertEqual((parts["experts"], parts["check C"], parts["classes"][1]), (("not run", False),) * 2 + (True,), "other parts")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(print_report(read_all(folder)), False, "the verdict")
        self.assertIn("| classes | WRONG: HSDP (--strategy 5): exit code 3: stood still; flat: results differ |", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
