"""Shared code of the gpu_lab commands: runs, launches, results, pairs, saves, tokens."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
import unittest.mock

from gpu_lab import messages, pairing
from gpu_lab.checks.device import near_losses, wrong_allocations
from gpu_lab.engines import fresh, train
from gpu_lab.engines.scores import workspaces_first
from gpu_lab.engines.session import words_of
from gpu_lab.engines.traces import communication_of
from gpu_lab.launch import TIMED_OUT, Launcher
from gpu_lab.machine import WrongFlag
from gpu_lab.pytorch.tokens import read_sample, read_tokens, shuffled_sample, write_tokens
from gpu_lab.results import parse_line, read_lines, read_stamped
from gpu_lab.runs import Run, choose, family_of, read_runs, run_of
from gpu_lab.saves import Save
from gpu_lab.stages import Failed
from tests.gpu_lab import fake_tools

RUNS = pathlib.Path(__file__).resolve().parents[2] / "gpu_lab" / "runs"


class WithFolder(unittest.TestCase):
    """A folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class FreshProcesses(unittest.TestCase):
    """Ranks that end, fail or hang."""

    def start(self, *codes: int) -> list[int]:
        children = []
        for code in codes:
            child = os.fork()
            if not child:
                time.sleep(60 if code < 0 else 0)
                os._exit(code)
            children.append(child)
        return children

    def test_a_run_is_good_if_all_ranks_are(self):
        self.assertTrue(fresh._wait(self.start(0, 0), 30))

    def test_ranks_end_soon_after_one_has_failed(self):
        begin = time.monotonic()
        with unittest.mock.patch.object(fresh, "LATER", 0.1):
            self.assertFalse(fresh._wait(self.start(3, -1), 30))
        self.assertLess(time.monotonic() - begin, 15)


class Runs(WithFolder):
    """Lists and commands."""

    def test_every_list_can_be_read(self):
        count = {path.stem: len(read_runs(path)) for path in sorted(RUNS.glob("*.csv"))}
        lines = {path.stem: len(path.read_text().splitlines()) - 1 for path in sorted(RUNS.glob("*.csv"))}
        self.assertEqual(count, lines)
        self.assertGreaterEqual(len(count), 16)

    def test_lists_of_other_engines_have_flags_of_both_sides(self):
        for number in (5, 6, 7, 8):
            for path in RUNS.glob(f"engines_{number}*.csv"):
                for run in read_runs(path):
                    options = train.parse(words_of(run, self.folder, "3"))
                    self.assertEqual((options.engine, options.compile), (family_of(run.engine)[0], "-compile" in run.engine))
                    self.assertEqual(options.compile_loss, run.engine.endswith("-loss"))
                    self.assertLess(set(run.flags), set(run.sim_command("sim", "h200", self.folder)))

    def test_engines_have_old_and_new_names(self):
        self.assertEqual(family_of("mfsdp2-eager"), ("megatron-fsdp-v2", "eager"))
        self.assertEqual(family_of("megatron-fsdp-v1"), ("megatron-fsdp-v1", ""))
        self.assertEqual(family_of("fsdp2-compile-loss"), ("fsdp2", "compile-loss"))
        with self.assertRaises(WrongFlag):
            family_of("mfsdp3")

    def test_a_row_is_a_command_of_either_side(self):
        row = {"engine": "mfsdp1", "model": "llama3_1b", "sequence": "1024", "micro_batch": "2", "microbatches": "3", "ranks": "4",
               "recompute": "yes", "wire": "bf16", "double_buffer": "yes", "clip": "1.0", "outer": ""}
        run = run_of(row, 5)
        self.assertEqual((run.global_batch, run.number, run.name), (24, 5, "05_llama3_1b_1024"))
        sim = " ".join(run.sim_command("sim", "h100", pathlib.Path("m.json")))
        for part in ("--global-batch 24", "--engine mfsdp1", "--clip 1.0", "--recompute full", "--outer-dp 1",
                     "--grad-dtype bf16 --allocator double_buffer"):
            self.assertIn(part, sim)
        torch = " ".join(run.train_words(pathlib.Path("m.json")))
        for part in ("--engine megatron-fsdp-v1", "--reduce bfloat16", "--double-buffer", "--recompute", "--microbatches 3"):
            self.assertIn(part, torch)
        ours = Run("m", 8, ranks=1, flags=("--strategy", "0"))
        self.assertIn("--strategy 0 --gpus-per-node 8", " ".join(ours.sim_command("sim", "h100", pathlib.Path("m.json"))))

    def test_wrong_rows_and_names(self):
        for row in ({"model": "x"}, {"model": "x", "sequence": "long"}):
            with self.assertRaises(WrongFlag):
                run_of(row)
        with self.assertRaisesRegex(WrongFlag, "--rows: there is no row c: expected some of a,b"):
            choose("a,c", ["a", "b"], "--rows", "row")


class Launches(WithFolder):
    """Processes."""

    def test_output_goes_to_files_and_back(self):
        code = "import os, sys; print('one'); print(os.environ['WORD'], file=sys.stderr); sys.exit(3)"
        done = Launcher().run([sys.executable, "-c", code], environment={"WORD": "two"})
        self.assertEqual((done.code, done.out, done.err, done.last_line()), (3, "one\n", "two\n", "two"))
        out = self.folder / "out"
        done = Launcher().run([sys.executable, "-c", "print('{\"a\": 1}')"], out=out, log=self.folder / "log", stamp=True)
        (at, value), = read_stamped(out)
        self.assertEqual(value, {"a": 1})
        self.assertLess(abs(time.time() - at), 60)

    @staticmethod
    def runs(state):
        """Whether the process of this /proc/PID/stat runs; a zombie does not."""
        try:
            return state.read_text().split()[2] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def test_a_process_that_takes_too_long_ends_with_its_children(self):
        file = self.folder / "child"
        code = f"import subprocess; p = subprocess.Popen(['sleep', '100']); open({str(file)!r}, 'w').write(str(p.pid)); p.wait()"
        for seconds in (0.7, 5, 30):  # a busy machine may not have started the child
            self.assertEqual(Launcher().run([sys.executable, "-c", code], seconds=seconds).code, TIMED_OUT)
            if file.exists():
                break
        state = pathlib.Path(f"/proc/{file.read_text()}/stat")
        deadline = time.monotonic() + 30  # a killed process takes a moment to end; one that is not killed sleeps for 100 s
        while self.runs(state) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(self.runs(state))


class Results(WithFolder):
    """Lines, saves, tokens."""

    def test_lines_that_are_cut_off_are_left_out(self):
        self.assertEqual(parse_line('{"a": 1}'), {"a": 1})
        self.assertIsNone(parse_line('{"a": '))
        self.assertIsNone(parse_line("step: 1"))
        self.assertEqual(read_lines(self.folder / "none"), [])

    def test_losses_may_differ_less_at_first(self):
        for name, losses in (("a", [4.0] * 12), ("b", [4.0] * 11 + [4.04]), ("c", [4.02] * 12)):
            (self.folder / name).write_text("".join(json.dumps({"event": "step", "loss": loss}) + "\n" for loss in losses))
        with contextlib.redirect_stdout(io.StringIO()):
            near_losses(self.folder / "a", self.folder / "b")
            with self.assertRaises(Failed):
                near_losses(self.folder / "a", self.folder / "c")

    def test_memory_is_allocated_in_the_first_step_alone(self):
        good = "7 0 cudaMalloc 100\n" + "7 {} step_end 0\n" * 25
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(wrong_allocations(good, 1), [])
            self.assertEqual(len(wrong_allocations(good + "7 3 cudaMalloc 8\n", 1)), 1)
            self.assertEqual(len(wrong_allocations(good, 2)), 1)

    def test_a_save_holds_each_element_once(self):
        fake_tools.save(self.folder / "step-00000001", 1)
        os.symlink("step-00000001", self.folder / "latest")
        save = Save(self.folder)
        self.assertEqual(save.floats("weight")["w"].tolist(), [0.0, 0.0])
        save.entries[("w", "weight")].append(save.entries[("w", "weight")][0])
        with self.assertRaisesRegex(ValueError, "from element 2 on"):
            save.values(("w", "weight"))

    def test_tokens(self):
        write_tokens(self.folder / "tokens.bin", [1, 2, 70000, 4])
        stream = read_tokens(self.folder / "tokens.bin")
        self.assertEqual(stream.tolist(), [1, 2, 70000, 4])
        self.assertEqual(read_sample(stream, 1, 2), ([70000], [4]))
        (self.folder / "text").write_text("ab")
        self.assertEqual(read_tokens(self.folder / "text").tolist(), [97, 98])
        # One epoch has each sample once; the order is that of the executor (gpu_backend/train/data/dataset.hpp).
        self.assertEqual(sorted(shuffled_sample(1, number, 10) for number in range(10)), list(range(10)))
        self.assertEqual([shuffled_sample(1, number, 10) for number in range(10, 14)], [1, 0, 9, 2])


class Messages(unittest.TestCase):
    """Texts of mfsdp-exec."""

    def test_each_is_in_its_sources(self):
        sources = "".join(path.read_text() for folder in ("launch", "cuda", "tool")
                          for path in (RUNS.parents[1] / "gpu_backend" / folder).rglob("*.cpp"))
        for text in (messages.KILLED, messages.FAULT, *messages.HANGS, messages.WINDOWS_ONE_HOST, messages.WINDOWS_NCCL,
                     messages.LAUNCHER):
            self.assertIn(text, sources, "correct gpu_lab/messages.py")


class Pairs(unittest.TestCase):
    """Errors, bands, traces."""

    def test_errors(self):
        self.assertAlmostEqual(pairing.error_of(102, 100), 0.02)
        self.assertEqual(pairing.summary([0.01, -0.03]), "2.00 % on average, 3.00 % at worst")

    def test_quantiles_of_student(self):
        # Tables: t(0.975, 4) = 2.776, t(0.995, 9) = 3.250, t(0.975, 30) = 2.042.
        for probability, freedom, value in ((0.975, 4, 2.776), (0.995, 9, 3.250), (0.975, 30, 2.042)):
            self.assertAlmostEqual(pairing.student_quantile(probability, freedom), value, places=3)

    def test_a_run_is_in_the_band_of_its_references(self):
        base = [4 - 0.01 * step for step in range(60)]
        references = [[loss + 0.001 * k for loss in base] for k in (-1, 0, 1)]
        lines, good = pairing.judge_losses(base, references)
        self.assertTrue(good, lines)
        self.assertIn("losses: in the band in 2 of 2 windows, between the lowest and the highest reference in 2", lines)
        _, good = pairing.judge_losses([*base[:40], *(loss + 0.1 for loss in base[40:])], references)
        self.assertFalse(good)
        self.assertTrue(pairing.judge_norms([1.0] * 20, [[1.005] * 20, [0.996] * 20])[1])
        self.assertFalse(pairing.judge_norms([1.0] * 19 + [1.02], [[1.005] * 20, [0.996] * 20])[1])

    def test_layouts_of_a_class_have_one_result(self):
        one, other = ((1.0, 2.0),), ((1.0, 2.5),)
        lines, wrong = pairing.judge_classes([("flat", one), ("HSDP", one), ("flat", other)])
        self.assertEqual(lines, ["flat: 2 layouts, 2 results", "HSDP: 1 layouts, 1 results"])
        self.assertEqual(wrong, ["flat: results differ"])

    def test_exposed_communication_is_what_no_kernel_hides(self):
        event = lambda name, stream, ts, dur: {"cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": {"stream": stream}, "tid": 0}
        # Compute from 0 to 4000 us; collectives 3000 to 5000 and 4500 to 6000: 2000 us exposed of 3000.
        trace = {"traceEvents": [event("gemm", 7, 0, 4000), event("ncclDevKernel_A", 8, 3000, 2000), event("ncclDevKernel_B", 9, 4500, 1500)]}
        self.assertEqual(communication_of(trace), {"compute_ms": 4.0, "communication_ms": 3.0, "exposed_ms": 2.0, "traced_ms": 6.0})

    def test_workspaces_come_first_at_addresses_of_their_own(self):
        made = lambda name, addr: {"action": "alloc", "addr": addr, "size": 10, "frames": [{"name": name}]}
        events = workspaces_first([made("a", 0), made("cublas_workspace", 0), made("cublas_workspace", 30), made("b", 20)])
        self.assertEqual([(event["frames"][0]["name"], event["addr"]) for event in events],
                         [("cublas_workspace", 40), ("cublas_workspace", 50), ("a", 0), ("b", 20)])


if __name__ == "__main__":
    unittest.main()
