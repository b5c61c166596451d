"""`own predict` and `own score`, from made-up runs. MFSDP_SIM: a real mfsdp-sim, which every run of the first list needs."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

import gpu_lab
from gpu_lab.command_line import main
from gpu_lab.machine import GIB

RUNS = pathlib.Path(gpu_lab.__file__).parent / "runs"


def made_run(folder, steps_ms, exposed_ms, pools_gib):
    """Sixteen steps, of which the first four are slow, and the result."""
    lines = [{"event": "step", "step_ns": 9_000_000_000}] * 4 + [{"event": "step", "step_ns": ms * 1_000_000} for ms in steps_ms]
    time = {"median_step_ns": 0, "compute_ns": 90_000_000, "exposed_communication_ns": exposed_ms * 1_000_000,
            "idle_ns": 0, "tflops_per_gpu": 1}
    memory = {"allocated_bytes": pools_gib * GIB + 7, "categories": {"runtime": 7}}
    lines.append({"schema": "mfsdp.result/1", "time": time, "memory": memory})
    folder.mkdir()
    (folder / "done").write_text("no JSON\n" + "".join(json.dumps(line) + "\n" for line in lines))


def own(*words):
    """Exit code and output of a command."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        return main(["own", *map(str, words)]), out.getvalue()


class OwnRuns(unittest.TestCase):
    """Predictions and runs in a folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_scores(self):
        predicted, out = self.folder / "predicted.csv", self.folder / "out"
        score = lambda: own("score", "--predicted", predicted, out)
        predicted.write_text("run,step,compute,exposed,pools\na,102.0,90.0,1.0,40.0\nb,196.0,90.0,2.0,20.0\n")
        out.mkdir()
        self.assertEqual(score()[0], 1, "nothing is run")
        made_run(out / "a", [100] * 12, 2, 40)
        code, text = score()
        self.assertEqual((code, "| b | not run |" in text), (1, True), text)
        made_run(out / "b", [200] * 11 + [900], 2, 20)
        code, text = score()
        self.assertEqual(code, 0, text)
        self.assertIn("| a | 100.0 | 102.0 | +2.0% | 90.0 | 90.0 | 2.0 | 1.0 | -1.0% | 40.00 | 40.00 |", text)
        self.assertIn("2 of 2 runs: step 2.00 % on average, 2.00 % at worst; exposed communication, of the step, "
                      "0.50 % on average, 1.00 % at worst; pools equal in 2", text)
        for wrong in ("a,93.9,90.0,1.0,40.0", "a,102.0,90.0,4.0,40.0", "a,102.0,90.0,1.0,41.0"):
            predicted.write_text(f"run,step,compute,exposed,pools\n{wrong}\n")
            self.assertEqual(score()[0], 1, wrong)

    @unittest.skipUnless("MFSDP_SIM" in os.environ, "MFSDP_SIM names no mfsdp-sim")
    def test_every_run_of_the_first_list_can_be_predicted(self):
        code, text = own("predict", "--bin", pathlib.Path(os.environ["MFSDP_SIM"]).parent, "--gpu", "h200", RUNS / "own.csv")
        self.assertEqual((code, len(text.splitlines())), (0, len((RUNS / "own.csv").read_text().splitlines())), text)


if __name__ == "__main__":
    unittest.main()
