"""Kills or stops ranks of a run at chosen moments and checks how the run ends."""

import functools
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_lab.checks.live_run import LiveRun, has_ended, processes_of
from gpu_lab.command_line import Flags, add_command, add_dry_run, add_group
from gpu_lab.launch import describe
from gpu_lab.machine import WrongFlag, gpu_processes, grown_memory, memory_in_use
from gpu_lab.messages import FAULT, HANGS, KILLED
from gpu_lab.plans import training_plan

LIMIT = 30.0  # seconds from a fault to the end of all processes
AHEAD = 3  # the line of step N - AHEAD is printed before an op of step N is issued

# Regular expressions that the run's output must match, to show that it ended for the intended reason.
PRINTED = {"kill": f"{KILLED} 9", "fail": FAULT, "stop": "|".join(HANGS)}
LONG = ["--steps", "100000"]  # steps of a run that is ended from outside

# ---- phases -------------------------------------------------------------------------------------


def faults(reduction: str) -> dict[str, tuple[str, int, str, int]]:
    """Faults that the run makes itself: KIND, RANK, op, step from 1. `reduction`: the op that reduces layer 1's gradients."""
    return {
        "a kernel of the first step": ("kill", 1, "layers.0.rope", 1),
        "forward": ("kill", 0, "layers.2.attention", 6),
        "backward": ("kill", 1, "layers.1.attention.backward", 6),
        "an all-gather": ("kill", 1, "layers.2.all_gather", 6),
        "a reduce-scatter": ("kill", 0, reduction, 6),
        "the norm's collective": ("kill", 1, "norm.all_gather", 6),
        "optimizer": ("kill", 1, "layers.3.adamw", 6),
        "an error in forward": ("fail", 1, "layers.1.qkv", 6),
        "a kernel that hangs": ("stop", 1, "layers.0.qkv", 6),
        "a collective that hangs": ("stop", 0, reduction, 6),
        "a hang before a save": ("stop", 1, "layers.3.adamw", 6),
        "a hang before a NaN check": ("stop", 1, "layers.3.adamw", 6),
    }


def meeting_flags(folder: pathlib.Path) -> dict[str, list[str]]:
    """Flags with which the other rank's host waits for the rank that hangs, while its device does not."""
    return {
        "a hang before a save": ["--save", str(folder / "phases_saves"), "--save-every", "1"],
        "a hang before a NaN check": ["--check-nan"],
    }


def faults_of(command: list[str], folder: pathlib.Path) -> dict[str, tuple[str, int, str, int]]:
    """The faults of this run's plan. Each has to name a kernel or a collective of it."""
    plan_file = folder / "plan.json"
    made = subprocess.run([*command, "--dry-run", "--plan-out", str(plan_file)], capture_output=True,
                          text=True, timeout=60, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"--dry-run ended with {made.returncode}: {made.stderr.strip()}")
    names = {op["name"] for segment in training_plan(plan_file)["segments"] for op in segment["ops"]
             if op["body"].keys() & {"kernel", "collective"}}
    by_copy = "layers.1.all_to_all"
    found = faults(by_copy if by_copy in names else "layers.1.reduce_scatter")
    if unknown := [op for _, _, op, _ in found.values() if op not in names]:
        raise RuntimeError(f"{unknown[0]} is no kernel or collective of the plan: correct gpu_lab/checks/kills.py")
    return found


def _hit(process: int | None, how: int) -> float:
    if process is None or has_ended(process):
        raise RuntimeError("the process had ended before the signal")
    os.kill(process, how)
    return time.monotonic()


def _in_nccl(run: LiveRun, folder: pathlib.Path) -> bool:
    """Whether rank 1 has begun to make a communicator."""
    process = run.ranks().get(1)
    if process is None:
        return False
    text = "".join(file.read_text(errors="replace") for file in folder.glob(f"nccl.{process}"))
    return "Init START" in text or "commId" in text


@dataclass
class Hit:
    """A signal from outside: when it is sent, and to which process."""

    when: Callable[[LiveRun], Any]
    whom: Callable[[LiveRun], int | None]
    how: int = signal.SIGKILL
    flags: list[str] = field(default_factory=list)

    def strike(self, name: str, run: LiveRun) -> float:
        """Waits for the moment and sends the signal; when it did."""
        run.await_moment(lambda: self.when(run), name)
        return _hit(self.whom(run), self.how)


def _rank(number: int) -> Callable[[LiveRun], int | None]:
    return lambda run: run.ranks().get(number)


def _half_a_second_after_rank_1(run: LiveRun) -> bool:
    if run.ranks().get(1) is None:
        return False
    time.sleep(0.5)
    return True


def hits(folder: pathlib.Path) -> dict[str, Hit]:
    """Signals that are sent to the run."""
    saves_folder = folder / "phases_saves"
    saving = ["--save", str(saves_folder), "--save-every", "1", "--keep-saves", "2"]
    rank_1 = _rank(1)
    return {
        # Where the others wait for the rank that is killed, or look for it.
        "rendezvous, rank 1": Hit(rank_1, rank_1),
        "rendezvous, rank 0": Hit(rank_1, _rank(0)),
        "half a second later": Hit(_half_a_second_after_rank_1, rank_1),
        "NCCL's initialisation": Hit(lambda run: _in_nccl(run, folder), rank_1),
        "between steps, from outside": Hit(lambda run: run.step_at(5), rank_1),
        "a save": Hit(lambda run: len(run.events("save")) > 2 and any(saves_folder.glob("*.partial")), rank_1, flags=saving),
        "the end": Hit(lambda run: run.step_at(20), rank_1, flags=["--steps", "20"]),
        "the supervisor": Hit(lambda run: run.step_at(5) and len(run.ranks()) > 1, lambda run: run.process.pid),
        "a stopped rank": Hit(lambda run: run.step_at(5), rank_1, signal.SIGSTOP),
    }


def _await_fault(kind: str, step: int, run: LiveRun) -> float:
    """When a fault that the run makes itself has happened: a rank has gone or, where none goes, an earlier step's line."""
    if kind == "kill":
        run.await_moment(lambda: len(run.ranks()) > 1, "two ranks")
        run.await_moment(lambda: any(has_ended(process) for process in run.ranks().values()), "the kill")
        return time.monotonic()
    return run.await_moment(lambda: run.step_at(step - AHEAD), f"step {step - AHEAD}")


def judge_end(run: LiveRun, begin: float, code: int, printed: str) -> tuple[list[str], float]:
    """The faults in how the run ended, and the seconds from the fault to the end."""
    end = run.await_end(LIMIT + 5)
    if end is None:
        return [f"processes have not ended {LIMIT + 5:.0f} s after the fault"], float("nan")
    got, at = end
    wrong = []
    if at - begin > LIMIT:
        wrong.append(f"expected an end within {LIMIT:.0f} s")
    if got != code:
        wrong.append(f"expected exit code {code}, got {got}")
    run.reader.join(5)
    if not any(re.search(printed, line) for _, line in run.lines):
        wrong.append(f"expected it to print: {printed}")
    if left := processes_of(run.command[0]):
        wrong.append(f"processes are left: {left}")
    return wrong, at - begin


def left_on_devices(memory: list[int], processes: list[int]) -> list[str]:
    """Memory and processes that stay on the GPUs. The driver frees memory a moment after a process has ended."""
    until = time.monotonic() + 5
    while True:
        more = set(gpu_processes()) - set(processes)
        wrong = grown_memory(memory) + ([f"processes {sorted(more)} still use GPUs"] if more else [])
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(0.2)


@dataclass
class Phase:
    """A run, what happens to it, and how it has to end."""

    name: str
    command: list[str]
    log: pathlib.Path
    strike: Callable[[LiveRun], float]  # makes the fault or waits for it; when it happened
    code: int
    printed: str
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, shared: bool) -> bool:
        """Whether the run ended as it has to. `shared`: other programs use the GPUs, so their memory is not looked at."""
        memory, processes = ([], []) if shared else (memory_in_use(), gpu_processes())
        run = LiveRun(self.command, self.log, self.environment)
        try:
            wrong, took = judge_end(run, self.strike(run), self.code, self.printed)
        except RuntimeError as error:
            wrong, took = [str(error)], float("nan")
        finally:
            last = run.last_line()
            run.close()
        wrong += [] if shared else left_on_devices(memory, processes)
        print(f"{self.name:<28} ended after {took:5.1f} s{': WRONG: ' if wrong else ''}{'; '.join(wrong)}  | {last}", flush=True)
        return not wrong


def phases_of(command: list[str], folder: pathlib.Path) -> list[Phase]:
    """Every phase: faults of the run's own, then signals from outside."""
    found = []
    for number, (name, (kind, rank, op, step)) in enumerate(faults_of(command, folder).items()):
        asked = [*LONG, "--fault", f"{kind}:{rank}:{op}:{step}", *meeting_flags(folder).get(name, [])]
        found.append(Phase(name, [*command, *asked], folder / f"fault{number}.log",
                           functools.partial(_await_fault, kind, step), 3, PRINTED[kind]))
    for number, (name, hit) in enumerate(hits(folder).items()):
        code, printed = 3, PRINTED["stop" if hit.how == signal.SIGSTOP else "kill"]
        if name == "the supervisor":
            code, printed = -signal.SIGKILL, ""  # no process is left that could print
        asked = hit.flags if "--steps" in hit.flags else [*LONG, *hit.flags]
        logs_nccl = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl.%p")} if "NCCL" in name else {}
        found.append(Phase(name, [*command, *asked], folder / f"hit{number}.log",
                           functools.partial(hit.strike, name), code, printed, logs_nccl))
    return found


def chosen_phases(text: str) -> list[str]:
    """The phases that --only names; all where it is empty."""
    known = [*faults(""), *hits(pathlib.Path())]
    names = [name.strip() for name in text.split(",")] if text else known
    if unknown := [name for name in names if name not in known]:
        raise WrongFlag(f"--only: {unknown[0]!r} is no phase: expected some of {', '.join(known)}"
                        " (those with a comma cannot be named)")
    return names


def phases(flags: Flags) -> int:
    """Kills or stops a rank of a run in each phase, and checks that all of the run ends.

        python3 -m gpu_lab kills phases --out DIR [--only "forward,optimizer"] [--shared] -- mfsdp-exec FLAGS...

    All other processes have to end within 30 seconds of the fault, with exit code 3; no process and no device memory
    may stay. The time of the fault is taken from outside: when a rank has gone or, where it does not go, when the line
    of an earlier step came. The run needs two ranks. --only names phases. --shared: other programs run on the GPUs, and
    device memory is not looked at.
    """
    names = chosen_phases(flags.only)
    command = [*flags.after, "--output", "jsonl"]
    if flags.dry_run:
        print(describe([*command, *LONG, "--fault", "KIND:RANK:OP:STEP"], {}), f"# for each of: {', '.join(names)}")
        return 0
    flags.out.mkdir(parents=True, exist_ok=True)
    good = True
    for phase in phases_of(command, flags.out):
        if phase.name not in names:
            continue
        shutil.rmtree(flags.out / "phases_saves", ignore_errors=True)
        for file in flags.out.glob("nccl.*"):
            file.unlink()
        good = phase.run(flags.shared) and good
    return 0 if good else 1


# ---- saves --------------------------------------------------------------------------------------

Steps = dict[int, tuple[float, float]]  # loss and norm of each step


def steps_by_number(run: LiveRun) -> Steps:
    """Loss and norm of each step that the run printed."""
    return {step["step"]: (step["loss"], step["grad_norm"]) for _, step in run.events("step")}


def whole_run(command: list[str], log: pathlib.Path) -> Steps:
    """The steps of a run that nothing ends; none where it failed."""
    run = LiveRun(command, log)
    run.process.wait()
    run.close()
    return steps_by_number(run) if run.process.returncode == 0 else {}


def resumed_otherwise(steps: Steps, whole: Steps, kept: int) -> list[str]:
    """The differences of a resumed run from the whole run. `kept`: the last save that the run before printed."""
    wrong = [f"step {n} is {bits}, expected {whole.get(n)}" for n, bits in steps.items() if whole.get(n) != bits]
    if steps and not kept + 1 <= min(steps) <= kept + 2:
        wrong.append(f"went on with step {min(steps)}, though step {kept} was saved last")
    return wrong


def end_in_a_save(run: LiveRun, place: pathlib.Path, choose: random.Random, how: int) -> tuple[str, bool]:
    """Sends a signal at a random moment of a save. Returns the process that got it, and whether the save was in flight."""
    run.await_moment(lambda: run.events("save"), "its first save")
    time.sleep(choose.uniform(0, 0.3))
    run.await_moment(lambda: list(place.glob("*.partial")), "a save in flight")
    durations = [save["duration_ns"] / 1e9 for _, save in run.events("save")]
    time.sleep(choose.uniform(0, 0.5 * min(durations)))
    victims = [("the run", run.process.pid)]
    if how == signal.SIGKILL:
        victims += [(f"rank {rank}", process) for rank, process in sorted(run.ranks().items())]
    whom, process = choose.choice(victims)
    _hit(process, how)
    return whom, any(place.glob("*.partial"))


def saves(flags: Flags) -> int:
    """Kills runs during saves, and checks that each resumes from the newest whole save, bit for bit.

        python3 -m gpu_lab kills saves --out DIR [--kills N] [--seed N] -- mfsdp-exec FLAGS...

    The runs save after each step. Every one resumes from the newest save of the one before, and has to have the losses
    and norms of a run that nothing ended. The last one is only interrupted: it shows that what the one before left
    is whole.
    """
    command = [*flags.after, "--output", "jsonl"]
    place = flags.out / "killed_saves"
    saving = ["--save", str(place), "--save-every", "1", "--keep-saves", "3"]
    if flags.dry_run:
        print(describe([*command, "--resume", place, *saving], {}), f"# killed {flags.kills} times")
        return 0
    flags.out.mkdir(parents=True, exist_ok=True)
    whole = whole_run(command, flags.out / "whole.log")
    if not whole:
        print(f"the whole run failed: {flags.out / 'whole.log'}")
        return 1
    shutil.rmtree(place, ignore_errors=True)
    choose = random.Random(flags.seed)
    killed, tries, kept, is_last = 0, 0, 0, False
    while not is_last and tries < 2 * flags.kills + 5:
        tries += 1
        is_last = killed == flags.kills
        run = LiveRun([*command, *(["--resume", str(place)] if kept else []), *saving], flags.out / f"kill{tries}.log")
        whom, in_a_save, wrong = "no process", False, []
        try:
            whom, in_a_save = end_in_a_save(run, place, choose, signal.SIGINT if is_last else signal.SIGKILL)
            if run.await_end(LIMIT) is None:
                wrong.append(f"did not end within {LIMIT:.0f} s")
        except RuntimeError as error:
            wrong.append(str(error))
        finally:
            run.close()
        wrong += resumed_otherwise(steps_by_number(run), whole, kept)
        steps = sorted(steps_by_number(run))
        kept = max((save["step"] for _, save in run.events("save")), default=kept)
        killed += in_a_save and not is_last
        print(f"run {tries}: steps {steps[:1]} to {steps[-1:]}, {'interrupted' if is_last else 'killed'}: {whom}, "
              f"{'in a save' if in_a_save else 'between saves'}"
              f"{': WRONG: ' if wrong else ''}{'; '.join(wrong[:3])}", flush=True)
        if wrong:
            return 1
    print(f"{killed} kills during saves; steps 1 to {kept} had the bits of {len(whole)} without")
    return 0 if is_last else 1


def add_to(commands: Any) -> None:
    """Adds `kills phases` and `kills saves`."""
    group = add_group(commands, "kills", "kills ranks in each phase of a run, and runs during saves")
    for name, does, needs in (("phases", phases, "a CUDA build's mfsdp-exec; two GPUs"),
                              ("saves", saves, "mfsdp-exec; a GPU, or none with --backend cpu in FLAGS")):
        parser = add_command(group, name, does, does.__doc__, needs, takes_command=True)
        parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()), help="logs")
        add_dry_run(parser)
    group.choices["phases"].add_argument("--only", default="", help="names of phases, with commas between them")
    group.choices["phases"].add_argument("--shared", action="store_true", help="other programs run on the GPUs")
    group.choices["saves"].add_argument("--kills", type=int, default=20)
    group.choices["saves"].add_argument("--seed", type=int, default=1)
