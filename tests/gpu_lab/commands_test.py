"""Commands of gpu_lab from end to end, with stand-ins for the tools and for nvidia-smi."""

import contextlib
import io
import json
import os
import pathlib
import pkgutil
import shlex
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import gpu_lab
from gpu_lab.checks.layouts import HOST_LAYOUTS, class_layouts
from gpu_lab.checks.meshes import LOSS_BOUND, fault_of_run, mesh_trainings
from gpu_lab.command_line import build_parser, main
from tests.gpu_lab import fake_tools


def run(*words):
    """Exit code and output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue()


class WithFakes(unittest.TestCase):
    """A folder with stand-ins, first on PATH."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        fake_tools.install(self.bin)
        self.set_environment(PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}")

    def set_environment(self, **values):
        """Until the end of the test."""
        patch = unittest.mock.patch.dict(os.environ, values)
        patch.start()
        self.addCleanup(patch.stop)


class Check(WithFakes):
    """`check`, stage by stage."""

    def check(self, stage, *words):
        """Runs stages on the stand-ins."""
        return run("check", "--bin", self.bin, "--out", self.folder / "out", "--stage", stage, *words)

    def test_a_stage_that_passed_is_not_run_again(self):
        few = unittest.mock.patch("gpu_lab.checks.device.STRATEGIES", (3,))
        few.start()
        self.addCleanup(few.stop)
        self.set_environment(FAKE_WRONG="--chaos")
        code, out = self.check("C", "--flags", "--gather symmetric")
        self.assertEqual(code, 1, out)
        self.assertIn("different at [1, 2, 3]", out)
        self.assertIn("stage C  FAILED", out)
        self.set_environment(FAKE_WRONG="")
        code, out = self.check("C", "--flags", "--gather symmetric")
        self.assertEqual(code, 0, out)
        self.assertIn("strategy 3: 3 ops in a step", out)
        code, out = self.check("C", "--flags", "--gather symmetric")
        self.assertEqual((code, out.count("passed before")), (0, 1), out)

    def test_layouts_on_two_hosts_have_one_result_in_each_class(self):
        few = [one for one in HOST_LAYOUTS if one.name in ("flat, all-reduce", "HFSDP")]
        with unittest.mock.patch("gpu_lab.checks.device.HOST_LAYOUTS", few):
            self.set_environment(FAKE_WRONG="--recompute")
            code, out = self.check("G")
            self.assertEqual(code, 1, out)
            self.assertIn("HFSDP: 2 layouts, 1 results\nWRONG: flat, all-reduce: results differ", out)
            (self.folder / "out/hosts/plain1/code").write_text("1 0")  # failed, so it is made again
            self.set_environment(FAKE_WRONG="")
            code, out = self.check("G")
            self.assertEqual(code, 0, out)
            self.assertIn("one result in each class", out)

    def test_layouts_that_refuse_the_flags_are_left_out(self):
        self.set_environment(FAKE_REFUSES="--gather")
        with unittest.mock.patch("gpu_lab.checks.device.HOST_LAYOUTS", HOST_LAYOUTS[:1]):
            code, out = self.check("G", "--flags", "--gather symmetric")
        self.assertEqual(code, 1, out)
        self.assertIn("no layout takes the flags", out)

    def test_meshes_are_held_to_one_rank(self):
        few = [one for one in mesh_trainings() if one.name in ("1f1b_2x4", "2 x 1", "experts on 2 ranks, --ep 2", "cp 2 on 2 ranks")]
        with unittest.mock.patch("gpu_lab.checks.meshes.mesh_trainings", lambda: few):
            self.set_environment(FAKE_WRONG="--ep")
            code, out = self.check("J")
            self.assertEqual(code, 1, out)
            self.assertIn("1f1b_2x4: as one rank\n2 x 1: as one rank\n", out)
            self.assertIn("experts on 2 ranks, --ep 2: step 1: loss 4.499", out)
            self.assertIn("cp 2 on 2 ranks: as one rank", out)
            (self.folder / "out/meshes/experts_on_2_ranks_ep_2/code").write_text("0 1")  # failed, so it is made again
            self.set_environment(FAKE_WRONG="")
            code, out = self.check("J")
            self.assertEqual(code, 0, out)
            (self.folder / "out/J.passed").unlink()
            printed = (self.folder / "out/meshes/2_x_1/host0.jsonl").read_text()
            (self.folder / "out/meshes/2_x_1/host1.jsonl").write_text(printed)
            code, out = self.check("J")
            self.assertEqual(code, 1, out)
            self.assertIn("2 x 1: 2 of 2 ranks have printed steps, expected one", out)

    def test_losses_of_meshes_are_sums_in_another_order(self):
        trainings = {one.name: one for one in mesh_trainings()}
        pipeline, mesh, blocks = (trainings[name] for name in ("1f1b_2x4", "2 x 4", "tp 2 on 4 ranks"))
        expected = ((4.0, 1.5),) * 3
        near, far = ((4.0 * (1 + LOSS_BOUND / 2), 1.5),) * 3, ((4.0 * (1 + LOSS_BOUND * 2), 1.5),) * 3
        self.assertEqual(fault_of_run(mesh, near, expected), "")
        self.assertIn("step 1: loss", fault_of_run(mesh, far, expected))
        self.assertIn("step 1: loss", fault_of_run(pipeline, near, expected))
        self.assertIn("step 1: norm 1.25", fault_of_run(mesh, ((4.0, 1.25),) * 3, expected))
        self.assertIn("2 steps, 3 on one rank", fault_of_run(mesh, expected[:2], expected))
        expected = ((4.0, 1.5),) * blocks.steps
        self.assertEqual(fault_of_run(blocks, ((4.04, 1.25),) * blocks.steps, expected), "")
        self.assertIn("step 1: loss", fault_of_run(blocks, ((4.06, 1.5),) * blocks.steps, expected))

    def test_every_mesh_of_up_to_eight_ranks_is_trained(self):
        names = [one.name for one in mesh_trainings()]
        self.assertEqual(len(names), len(set(names)))
        meshes = [(outer, ranks // outer) for ranks in range(2, 9) for outer in range(1, ranks + 1) if ranks % outer == 0]
        self.assertLess({f"{outer} x {shard}" for outer, shard in meshes}, set(names))

    def test_what_cannot_run_is_skipped(self):
        self.set_environment(FAKE_GPUS="1")
        code, out = self.check("A,C,G")
        self.assertEqual(code, 0, out)
        self.assertIn("stage A  skipped: gpu_backend_cuda_device_tests is not built", out)
        self.assertIn("stage G  skipped: needs 2 GPUs", out)

    def test_wrong_flags(self):
        self.assertEqual(self.check("X")[0], 2)
        (self.folder / "none").mkdir()
        code, out = run("check", "--bin", self.folder / "none", "--stage", "C")
        self.assertEqual(code, 2, out)
        self.assertIn("--bin: expected a folder with mfsdp-exec", out)


class OtherCommands(WithFakes):
    """Own runs, a campaign, saves."""

    def test_own_runs_are_predicted_run_and_scored(self):
        runs = self.folder / "runs.csv"
        runs.write_text("model,layers,sequence,micro_batch,microbatches,ranks,flags\n"
                        "llama3_8b,8,6144,1,1,2,--strategy optim_grads\nllama3_1b,,1024,1,1,1,\n")
        code, predicted = run("own", "predict", "--gpu", "h200", runs)
        self.assertEqual(code, 0, predicted)
        (self.folder / "predicted.csv").write_text(predicted)
        out = self.folder / "own"
        code, text = run("own", "run", "--gpu", "h200", "--out", out, runs)
        self.assertEqual(code, 0, text)
        self.assertEqual(json.loads((out / "00_llama3_8b_6144/config.json").read_text())["num_hidden_layers"], 8)
        code, text = run("own", "score", "--predicted", self.folder / "predicted.csv", out)
        self.assertEqual(code, 0, text)
        self.assertIn("2 of 2 runs: step 1.00 % on average, 1.00 % at worst", text)

    def test_a_campaign_goes_on_where_it_ended(self):
        out = self.folder / "many"
        words = ("campaign", "run", "--gpus", "1", "--out", out, "--rows", "s8192", "--ways", "fp32,copy",
                 "--stage", "speed,classes,verify,kills")
        with unittest.mock.patch("gpu_lab.campaign.stages.class_layouts", lambda gpus: list(class_layouts(gpus))[-3:]), \
                unittest.mock.patch("gpu_lab.campaign.stages.FITTING", ("fp32", "copy")):
            code, text = run(*words)
            self.assertEqual(code, 0, text)
            with unittest.mock.patch("gpu_lab.launch.Launcher.run", side_effect=AssertionError("started again")):
                self.assertEqual(run(*words)[0], 0)
        self.assertIn("s8192: 32 of 32 layers", text)
        self.assertIn("exact sums: 3 layouts, 1 results", text)
        self.assertIn("| 8192 x 1 | 32 of 32 | fp32 | 500.0 | 101.0, 100.0 | +1.0 % |", text)
        self.assertIn("| mfsdp-verify --run | 1 of 1 recorded runs |", text)
        self.assertIn("stage kills  skipped: needs two GPUs", text)
        self.assertEqual(run(*words[:3], "2", *words[4:])[0], 2)

    def test_states(self):
        for name, steps in (("a", 3), ("b", 3), ("c", 4)):
            fake_tools.save(self.folder / name, steps)
        self.assertEqual(run("states", self.folder / "a", self.folder / "b")[0], 0)
        code, text = run("states", self.folder / "a", self.folder / "c")
        self.assertEqual(code, 1)
        self.assertIn("step: 3 and 4", text)
        self.assertEqual(run("states", self.folder / "a", self.folder)[0], 2)


class EveryCommand(unittest.TestCase):
    """Properties of all commands."""

    def test_all_modules_load_without_pytorch(self):
        names = [one.name for one in pkgutil.walk_packages(gpu_lab.__path__, "gpu_lab.") if not one.name.endswith("__main__")]
        code = f"import sys; sys.modules['torch'] = None; import {', '.join(names)}"
        done = subprocess.run([sys.executable, "-B", "-W", "error", "-c", code], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_help_of_each_says_what_it_needs(self):
        found = []

        def visit(parser, path):
            group = next((one for one in parser._actions if hasattr(one, "choices") and isinstance(one.choices, dict)), None)
            if group is None:
                found.append(path)
                self.assertIn("\nNeeds: ", parser.format_help(), path)
                return
            for name, child in group.choices.items():
                visit(child, f"{path} {name}")

        visit(build_parser(), "gpu_lab")
        self.assertEqual(len(found), len(set(found)))
        self.assertGreater(len(found), 30)

    def test_dry_runs_print_commands_and_start_none(self):
        listed = str(pathlib.Path(gpu_lab.__file__).parent / "runs")
        commands = {
            ("check", "--stage", "B,C,D,E,F,G,I"): "--delay-op each --poison",
            ("check", "--stage", "J"): "--nnodes 8 --master 127.0.0.1:",
            ("options", "--stage", "D,G"): "gpu_lab check",
            ("kills", "phases", "--", "mfsdp-exec", "--nproc", "2"): "--fault KIND:RANK:OP:STEP",
            ("kills", "saves", "--", "mfsdp-exec"): "--resume",
            ("own", "run", "--gpu", "h200", "--out", "own", f"{listed}/own_6.csv"): "--reduce symmetric --gather symmetric",
            ("own", "predict", "--gpu", "h200", f"{listed}/own_7.csv"): "--recompute full",
            ("engines", "predict", f"{listed}/engines_2.csv"): "--engine fsdp2",
            ("engines", "record", "host", "recorded", "--ranks", "2"): "gpu_lab ranks --gpus 2 -- ",
            ("engines", "record", "memory", "recorded"): "--fake --ranks 8",
            ("engines", "session", "--out", "timed", f"{listed}/engines_3.csv"): "engines session",
            ("pytorch", "compare"): "pytorch fsdp2-train",
            ("pytorch", "moe-speed", "--ep", "1,2", "--gpus", "2"): "--ep 2",
            ("campaign", "run", "--card", "h200", "--gpus", "4", "--ways", "fsdp2_kept_bf16"): "--keep-gathered",
        }
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), \
                unittest.mock.patch("subprocess.Popen", side_effect=FileNotFoundError("no process is to start")):
            for words, part in commands.items():
                split = words.index("--") if "--" in words else len(words)
                code, out = run(*words[:split], "--dry-run", *words[split:])
                self.assertEqual(code, 0, out)
                self.assertIn(part, out, shlex.join(words))
            self.assertEqual(os.listdir("."), [], "a dry run writes nothing")


if __name__ == "__main__":
    unittest.main()
