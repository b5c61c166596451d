"""Stages of `check` with each option of collectives alone, and with all of them together."""

import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_lab.checks.device import STAGES
from gpu_lab.command_line import Flags, add_bin, add_command, launcher_of, tools_of
from gpu_lab.launch import Launcher, own_command, run_threads
from gpu_lab.machine import Tools, WrongFlag, grown_memory, memory_in_use, visible_gpus
from gpu_lab.runs import choose

ALONE = ("--gather copy_engine", "--gather symmetric", "--reduce copy_engine", "--reduce symmetric",
         "--placement attention", "--placement gathers", "--placement after_attention", "--keep-gathered 1")
TOGETHER = "--gather copy_engine --reduce symmetric --placement attention --keep-gathered 1"


def options_of(stage: str) -> list[str]:
    """The options that a stage runs with."""
    return [*ALONE, TOGETHER] if stage in "CDGI" else [TOGETHER]


def last_line(path: pathlib.Path) -> str:
    """The last line of a file."""
    return (path.read_text(errors="replace").splitlines() or [""])[-1]


@dataclass
class OptionChecks:
    """One call of `options`. `copies`: where each worker has a copy of mfsdp-exec of its own."""

    tools: Tools
    launcher: Launcher
    out: pathlib.Path
    limit: float
    gpus: list[str]
    copies: pathlib.Path
    taken: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def folder(self, option: str) -> pathlib.Path:
        """Results of one option."""
        return self.out / option.replace("-", "").replace(" ", "_")

    def take(self, stage: str, option: str) -> bool:
        """Whether this worker is the first of this call to run the stage with the option."""
        with self.lock:
            if (stage, option) in self.taken:
                return False
            self.taken.add((stage, option))
            return True

    def check(self, stage: str, gpus: list[str], folder: pathlib.Path, bin_folder: pathlib.Path | None, *words: str) -> str:
        """Runs one stage of `check`, and returns the last line that it printed."""
        log = folder / f"{stage}.out"
        if not self.launcher.dry_run:
            folder.mkdir(parents=True, exist_ok=True)
        place = [] if bin_folder is None else ["--bin", str(bin_folder)]
        self.launcher.run(own_command("check", *place, "--out", folder, "--stage", stage, *words),
                          environment={"CUDA_VISIBLE_DEVICES": ",".join(gpus)}, out=log, log=log)
        return "" if self.launcher.dry_run else last_line(log)

    def work(self, stage: str, gpus: list[str], bin_folder: pathlib.Path | None) -> None:
        """Runs what is left of a stage, one option after the other. Several workers share the options."""
        for option in options_of(stage):
            if self.launcher.spent() >= self.limit:
                return
            folder = self.folder(option)
            if (folder / f"{stage}.passed").exists() or not self.take(stage, option):
                continue
            line = self.check(stage, gpus, folder, bin_folder, "--flags", option, "--plain", str(self.out), "--shared")
            print(f"{option}, {line}", flush=True)

    def work_on_pairs(self, stage: str, workers: int) -> None:
        """Workers on every pair of GPUs at the same time."""
        def worker(pair: list[str], name: str) -> Callable[[], None]:
            return lambda: self.work(stage, pair, self.own_tool(name))

        pairs = [self.gpus[at:at + 2] for at in range(0, len(self.gpus) - 1, 2)]
        run_threads([worker(pair, f"{stage}{'_'.join(pair)}.{i}") for pair in pairs for i in range(workers)])

    def own_tool(self, name: str) -> pathlib.Path:
        """A folder with a copy of mfsdp-exec: `kills` finds the processes of a run by their program."""
        folder = self.copies / name
        if not self.launcher.dry_run:
            folder.mkdir(parents=True)
            shutil.copy2(self.tools.find("mfsdp-exec"), folder / "mfsdp-exec")
        return folder

    def run(self, stage: str) -> bool:
        """Runs what is left of a stage; false where memory stays on the GPUs."""
        if stage in "CI":
            self.work_on_pairs(stage, 3)
        elif stage == "D":
            before = memory_in_use()
            # One run for each pair: while a run with registered memory ends, the driver delays others beyond their deadline.
            self.work_on_pairs(stage, 1)
            return self.memory_is_free(before)
        elif stage == "G":  # its four runs share all GPUs already
            print(f"plain, {self.check(stage, self.gpus, self.out, self.tools.folder)}", flush=True)
            self.work(stage, self.gpus, self.tools.folder)
        else:
            self.work(stage, self.gpus, self.tools.folder)
        return True

    def memory_is_free(self, before: list[int]) -> bool:
        """Whether the GPUs' memory is as it was. The driver frees it a moment after a process has ended."""
        for _ in range(10):
            wrong = grown_memory(before)
            if not wrong:
                return True
            time.sleep(1)
        print(f"WRONG: after stage D: {'; '.join(wrong)}")
        return False

    def state(self, stage: str, option: str) -> str:
        """How far a stage is with an option."""
        folder = self.folder(option)
        if (folder / f"{stage}.passed").exists():
            return "passed"
        log = folder / f"{stage}.out"
        return last_line(log).removeprefix(f"stage {stage}  ") if log.exists() else "not run"


def options_command(flags: Flags) -> int:
    """Runs stages of `check` with each option of collectives alone, and with all of them together.

    --out has a folder for each option. Options that have passed there are not run again. No stage, of eight minutes at most,
    begins after --limit seconds: call again until the table at the end is full. C, D and I run on pairs of GPUs, C and I
    three options concurrently on each; G has all GPUs, one option after another. Device memory is checked after all of D.
    A, B, E, F and H run where --stage names them, with all options together.
    """
    stages = choose(flags.stage, list(STAGES), "--stage", "stage")
    tools = tools_of(flags)
    tools.find("mfsdp-exec")
    gpus = visible_gpus() or (["0", "1", "2", "3"] if flags.dry_run else [])
    if not gpus:
        raise WrongFlag("expected GPUs, nvidia-smi names none")
    all_right = True
    with tempfile.TemporaryDirectory() as copies:
        folder = None if tools.folder is None else tools.folder.absolute()
        checks = OptionChecks(Tools(folder, tools.must_exist), launcher_of(flags), flags.out.absolute(), flags.limit, gpus,
                              pathlib.Path(copies))
        for stage in stages:
            all_right = checks.run(stage) and all_right
    if flags.dry_run:
        return 0
    print()
    for stage in stages:
        for option in options_of(stage):
            state = checks.state(stage, option)
            all_right = all_right and state == "passed"
            print(f"{stage}  {option}: {state}")
    return 0 if all_right else 1


def add_to(commands: Any) -> None:
    """Adds `options`."""
    parser = add_command(commands, "options", options_command, options_command.__doc__,
                         "a CUDA build's mfsdp-exec; two GPUs or more")
    add_bin(parser)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_options"), help="results (gpu_options)")
    parser.add_argument("--stage", default="C,D,G,I", metavar="C,D,...")
    parser.add_argument("--limit", type=int, default=480, metavar="SECONDS", help="after which no stage begins (480)")
