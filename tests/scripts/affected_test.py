"""Tests the selection of scripts/affected: affected_test.py BUILD

For commits of the past (affected_commits.txt; MFSDP_UPDATE_GOLDEN=1 writes what is selected today), and
for every include line of the tree: a change of the header selects the tests of what includes it.
"""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMITS = HERE / "affected_commits.txt"


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


affected = load(ROOT / "scripts/affected")
ROOMS = affected.Rooms((ROOT / "core/README.md").read_text())
FOLDER = sys.argv.pop()
BUILD = affected.Build(FOLDER, ROOMS)
# Commits are looked at as builds with sanitizers see them: without CUDA.
SANITIZED = affected.Build(FOLDER, ROOMS)
SANITIZED.rooms.discard("cuda")


def change_of(*files, build=BUILD):
    return affected.Change(files, ROOMS, build)


def is_sanitized(program):
    """Tools and programs of tests, without those that no build with sanitizers has."""
    return program.startswith("mfsdp-") or program.endswith("_tests") and not (
        "_cuda_" in program or program in ("arrows_tests", "scripts_tests"))


def shortest(names, all_names):
    """Names, or those that are missing."""
    missing = sorted(set(all_names) - set(names))
    if len(missing) < len(names):
        return "all" + (" but " + " ".join(missing) if missing else "")
    return " ".join(sorted(names)) or "none"


def described(files):
    change = change_of(*files, build=SANITIZED)
    programs = {p for p in change.programs if is_sanitized(p)}
    return [f"rooms: {shortest(change.rooms, ROOMS.sees)}",
            f"programs: {shortest(programs, filter(is_sanitized, BUILD.programs))}",
            f"fuzzers: {shortest(change.fuzzers, BUILD.fuzzers())}",
            f"CUDA: {change.cuda}"]


class Commits(unittest.TestCase):
    def test_of_the_past_are_selected_as_recorded(self):
        blocks = [block.splitlines() for block in COMMITS.read_text().strip().split("\n\n")]
        self.assertGreaterEqual(len(blocks), 10)
        written = []
        for title, *lines in blocks:
            files = [line.strip() for line in lines if line.startswith("  ")]
            with self.subTest(title):
                written.append("\n".join([title, *(f"  {f}" for f in files), *described(files)]))
                if "MFSDP_UPDATE_GOLDEN" not in os.environ:
                    self.assertEqual(written[-1].splitlines(), [title, *lines])
        if "MFSDP_UPDATE_GOLDEN" in os.environ:
            COMMITS.write_text("\n\n".join(written) + "\n")


class Includes(unittest.TestCase):
    """Each include line is an arrow from a source to the module of a header."""

    @classmethod
    def setUpClass(cls):
        cls.arrows = [(path, room) for folder in ("core", "sim", "verify", "reports", "gpu_backend", "tests")
                      for path in affected.sources_under(folder)
                      for room in {ROOMS.of(header) for header in affected.includes_of(path)} - {None}]
        cls.changes = {room: change_of(folder if folder.endswith(".hpp") else folder + "/any.hpp")
                       for folder, room in ROOMS.folders.items()}

    def test_rooms_that_include_a_header_are_affected_by_it(self):
        self.assertGreater(len(self.arrows), 1000)
        for path, seen in self.arrows:
            # A main composes modules: it belongs to a program, not to a module.
            if not path.startswith("tests/") and not path.endswith("/main.cpp") and (room := ROOMS.of(path)):
                self.assertIn(room, self.changes[seen].rooms, path)

    def test_programs_that_include_a_header_are_selected_by_it(self):
        for path, seen in self.arrows:
            users = affected.with_includers({path}) if path.startswith("tests/") else {path}
            for program in BUILD.programs.values():
                if program.sources & users:
                    self.assertIn(program.name, self.changes[seen].programs, path)

    def test_tests_of_a_room_are_selected_by_what_it_includes(self):
        for path, seen in self.arrows:
            for program in BUILD.programs.values() if not path.endswith("/main.cpp") else ():
                if "tests/" + path.rpartition("/")[0] in program.folders:
                    self.assertIn(program.name, self.changes[seen].programs, path)


class Files(unittest.TestCase):
    def test_no_rule_knows_it_so_everything_is_affected(self):
        for path in ("new/file.cpp", "verify/new/a.hpp", "scenarios/gpus/h100.toml", "tests/new/data.csv"):
            change = change_of("docs/a.md", path)
            self.assertEqual(len(change.everything), 1, path)
            self.assertEqual(change.programs, set(BUILD.programs))
            self.assertEqual(change.cuda, "built")

    def test_how_things_are_built_and_selected_affects_everything(self):
        for path in ("CMakeLists.txt", "sim/CMakeLists.txt", "CMakePresets.json", "cmake/MfsdpCuda.cmake", ".ci/run",
                     "scripts/affected", "scripts/build"):
            self.assertTrue(change_of(path).everything, path)

    def test_every_file_of_the_tree_has_a_rule(self):
        # Except for data that every module may read, and files at the root.
        for folder in ("core", "sim", "verify", "reports", "gpu_backend", "tests", "docs"):
            for path in (ROOT / folder).rglob("*"):
                name = path.relative_to(ROOT).as_posix()
                if path.is_file() and not {"CMakeLists.txt", "node_modules", "__pycache__"} & set(path.parts):
                    self.assertEqual(change_of(name).everything, [], name)

    def test_a_file_that_is_gone_counts_as_its_folder(self):
        self.assertEqual(change_of("core/memory/gone.hpp").changed_rooms, {"planner"})
        self.assertIn("core_memory_tests", change_of("tests/core/memory/gone_test.cpp").programs)

    def test_a_test_alone_selects_its_program(self):
        self.assertEqual(change_of("tests/core/memory/assign_test.cpp").programs, {"core_memory_tests"})

    def test_a_header_of_tests_selects_those_that_include_it(self):
        programs = change_of("tests/support/documented.hpp").programs
        self.assertIn("core_plan_tests", programs)
        self.assertNotIn("core_memory_tests", programs)

    def test_data_selects_the_tests_that_name_it(self):
        programs = change_of("tests/reports/statistics/h100_steps.csv").programs
        self.assertLessEqual({"reports_statistics_tests", "reports_budget_tests"}, programs)

    def test_programs_that_run_an_affected_tool_are_affected(self):
        change = change_of("verify/main.cpp")
        self.assertEqual(change.own_programs, {"mfsdp-verify"})
        self.assertLessEqual({"golden_runner", "integration_tests"}, change.programs)

    def test_a_transcript_is_run_where_it_or_a_tool_that_it_runs_is_affected(self):
        def runs(test, *files):
            return affected.Test(test, [], BUILD).affected_by(change_of(*files), BUILD)
        self.assertTrue(runs("golden/docs/guide/prove", "docs/guide/prove.md"))
        self.assertFalse(runs("golden/docs/guide/prove", "docs/guide/tour.md"))
        self.assertTrue(runs("golden/mfsdp-report/check", "reports/commands/commands.cpp"))
        self.assertFalse(runs("golden/mfsdp-verify/clean", "reports/commands/commands.cpp"))
        self.assertTrue(runs("golden/mfsdp-verify/clean", "tests/golden/transcript.cpp"))

    def test_cuda_is_built_for_what_it_includes_and_for_the_plans_that_it_binds(self):
        for path in ("gpu_backend/cuda/kernels/new.cu", "gpu_backend/tool/cuda/cuda_run.cpp", "core/plan/op.cpp",
                     "core/schedule/build.cpp", "gpu_backend/tool/cuda_run.hpp", "verify/cpu/kernels/rope.hpp"):
            self.assertEqual(change_of(path).cuda, "built", path)
        for path in ("sim/cost/gemm.cpp", "gpu_backend/train/train.cpp", "verify/cpu/machine/machine.cpp",
                     "gpu_backend/cuda/README.md", "docs/guide/tour.md"):
            self.assertEqual(change_of(path).cuda, "left out", path)


class Differences(unittest.TestCase):
    """Changed files of a repository with one commit, then two."""

    def test_gone_renamed_and_new_files_count_and_without_a_commit_everything_does(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(affected, "ROOT", Path(folder)):
            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True,
                               stdout=subprocess.DEVNULL)
            (Path(folder) / "scripts").mkdir()
            shutil.copy(ROOT / "scripts/changed-files", Path(folder) / "scripts")
            for name in ("gone", "renamed", "same"):
                (Path(folder) / name).write_text(f"text of {name}\n")
            git("init", "-q")
            git("add", "-A")
            git("commit", "-q", "-m", "first")
            self.assertEqual(affected.changed_files(None), (set(), ["there is no commit to compare with"]))
            git("mv", "renamed", "name")
            git("rm", "-q", "gone")
            git("commit", "-q", "-m", "second")
            (Path(folder) / "new").write_text("text\n")
            self.assertEqual(affected.changed_files(None), ({"gone", "renamed", "name", "new"}, []))
            self.assertEqual(affected.changed_files("HEAD"), ({"new"}, []))


if __name__ == "__main__":
    unittest.main()
