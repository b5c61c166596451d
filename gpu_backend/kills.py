#!/usr/bin/env python3
"""Ends ranks of a run at chosen moments and looks at what becomes of it, for check.sh.

    gpu_backend/kills.py phases --out DIR [--only "forward,optimizer"] [--shared] -- mfsdp-exec FLAGS...
    gpu_backend/kills.py saves --out DIR [--kills N] [--seed N] -- mfsdp-exec FLAGS...

phases: a rank is killed or stopped in each. All others end within 30 seconds of the fault, exit
code 3; no process and no device memory stays. The fault is seen from outside: as the moment when a
rank has gone, or, where it does not go, as a line of a step that was before it. Needs two ranks. --only: of these phases alone. --shared: other programs run
on the GPUs, and device memory is not looked at.
saves: runs that save after each step are killed during saves; each goes on from the newest save of
the one before, and has the losses and norms of a run that nothing has ended, bit for bit.

Exit code 0: as it should be; 1: not, and a line says where; 2: a wrong flag.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 30.0  # seconds from a fault to the end of all processes
START = 120.0  # seconds for a run to come to the phase where it is hit
AHEAD = 3  # the line of step N - AHEAD is out before an op of step N is issued

# What the run has to say for an end to be the one that was asked for.
KILLED = "was ended by signal 9"
SAID = {"kill": KILLED, "fail": "fails, as it was told to",
        "stop": "has not ended while|has been held|no sign of life|did not end"}


def status_of(process):
    """The state's letter ("Z": ended, "T": stopped) and the parent; None where there is none."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[1])


def has_ended(process):
    status = status_of(process)
    return status is None or status[0] in "ZX"


def processes_of(program):
    """Those that run `program`, whatever they call themselves."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if command == program and not has_ended(int(folder.name)):
            found.append(int(folder.name))
    return found


def rank_of(process):
    try:
        text = pathlib.Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    found = re.search(r"(?:^|\0)MFSDP_RANK=(\d+)", text)
    return int(found.group(1)) if found else None


class Run:
    """A run that is under way: its lines with their times, its ranks by number."""

    def __init__(self, command, log, environment=None):
        self.command = command
        self.log = open(log, "w")
        self.lines = []  # (time, text)
        self.known = {}  # rank: process
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", env={**os.environ, **(environment or {})})
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))
            self.log.write(line)

    def ranks(self):
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            process = int(folder.name)
            if process in self.known.values():
                continue
            status = status_of(process)
            if status and status[1] == self.process.pid and (rank := rank_of(process)) is not None:
                self.known[rank] = process
        return self.known

    def events(self, kind):
        """[(time, event)] of a kind: step, save."""
        found = []
        for at, line in list(self.lines):
            if line.startswith("{"):
                try:
                    event = json.loads(line)
                except ValueError:  # cut off by the kill
                    continue
                if event.get("event") == kind:
                    found.append((at, event))
        return found

    def step_at(self, number):
        return next((at for at, step in self.events("step") if step["step"] >= number), None)

    def await_moment(self, is_there, what):
        until = time.monotonic() + START
        while time.monotonic() < until:
            is_over = self.process.poll() is not None
            if value := is_there():
                return value
            if is_over:
                raise RuntimeError(f"ended before {what}: {self.last_line()}")
            time.sleep(0.002)
        raise RuntimeError(f"{what} did not come within {START:.0f} s")

    def last_line(self):
        lines = (line[:110] for _, line in reversed(self.lines) if line.strip())
        return next(lines, "it said nothing")

    def await_end(self, limit):
        """The exit code and the time when all its processes had ended; None: they have not."""
        until = time.monotonic() + limit
        everyone = [self.process.pid, *self.known.values()]
        while time.monotonic() < until:
            self.process.poll()
            if all(has_ended(process) for process in everyone):
                self.process.wait()
                return self.process.returncode, time.monotonic()
            time.sleep(0.01)
        return None

    def close(self):
        """Nothing of it is left, however it went."""
        for process in [self.process.pid, *self.known.values()]:
            if not has_ended(process):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()
        self.reader.join(10)
        self.log.close()


# ---- phases -------------------------------------------------------------------------------------


def faults(reduction):
    """What the run does to itself: KIND, RANK, op, step from 1. `reduction`: what layer 1's gradients go by."""
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


def meeting_flags(folder):
    """What lets the other rank's host wait for the one that hangs, and not its device."""
    return {
        "a hang before a save": ["--save", str(folder / "phases_saves"), "--save-every", "1"],
        "a hang before a NaN check": ["--check-nan"],
    }


def faults_of(command, folder):
    """Those of this run's plan. Each op that one names has to be a kernel or a collective of it."""
    plan = folder / "plan.json"
    made = subprocess.run([*command, "--dry-run", "--plan-out", str(plan)], capture_output=True,
                          text=True, timeout=60, check=False)
    if made.returncode != 0:
        raise RuntimeError(f"--dry-run ended with {made.returncode}: {made.stderr.strip()}")
    train = next(p for p in json.loads(plan.read_text())["plans"] if p["name"] == "train")
    names = {op["name"] for segment in train["segments"] for op in segment["ops"]
             if op["body"].keys() & {"kernel", "collective"}}
    by_copy = "layers.1.all_to_all"
    found = faults(by_copy if by_copy in names else "layers.1.reduce_scatter")
    if unknown := [op for _, _, op, _ in found.values() if op not in names]:
        raise RuntimeError(f"{unknown[0]} is no kernel or collective of the plan: correct kills.py")
    return found


def hit(run, process, how):
    if process is None or has_ended(process):
        raise RuntimeError("the process had ended before it was hit")
    os.kill(process, how)
    return time.monotonic()


def in_nccl(run, folder):
    """Rank 1 has begun to make a communicator, and no step is done."""
    process = run.ranks().get(1)
    if process is None:
        return False
    text = "".join(f.read_text(errors="replace") for f in folder.glob(f"nccl.{process}"))
    return "Init START" in text or "commId" in text


def hits(folder):
    """What is done to the run from outside: more flags, when, and to whom."""
    saves = folder / "phases_saves"
    rank_1 = lambda run: run.ranks().get(1)
    saving = ["--save", str(saves), "--save-every", "1", "--keep-saves", "2"]
    return {
        # Where others wait for the one that is killed, or look for it.
        "rendezvous, rank 1": ([], rank_1, rank_1, signal.SIGKILL),
        "rendezvous, rank 0": ([], rank_1, lambda run: run.ranks().get(0), signal.SIGKILL),
        "half a second later": ([], lambda run: rank_1(run) and (time.sleep(0.5) or True), rank_1,
                                signal.SIGKILL),
        "NCCL's initialisation": ([], lambda run: in_nccl(run, folder), rank_1, signal.SIGKILL),
        "between steps, from outside": ([], lambda run: run.step_at(5), rank_1, signal.SIGKILL),
        "a save": (saving, lambda run: len(run.events("save")) > 2 and any(saves.glob("*.partial")),
                   rank_1, signal.SIGKILL),
        "the end": (["--steps", "20"], lambda run: run.step_at(20), rank_1, signal.SIGKILL),
        "the supervisor": ([], lambda run: run.step_at(5) and len(run.ranks()) > 1,
                           lambda run: run.process.pid, signal.SIGKILL),
        "a rank that stands still": ([], lambda run: run.step_at(5), rank_1, signal.SIGSTOP),
    }


def first_loss(run):
    return any(has_ended(process) for process in run.ranks().values())


def run_fault(run, kind, step):
    """Seconds-clock time of the fault."""
    if kind == "kill":
        run.await_moment(lambda: len(run.ranks()) > 1, "two ranks")
        run.await_moment(lambda: first_loss(run), "the kill")
        return time.monotonic()
    return run.await_moment(lambda: run.step_at(step - AHEAD), f"step {step - AHEAD}")


def judge(run, begin, expected, said):
    """What is wrong with how the run ended, and how long after the fault."""
    end = run.await_end(LIMIT + 5)
    if end is None:
        return [f"processes have not ended {LIMIT + 5:.0f} s after the fault"], float("nan")
    code, at = end
    wrong = []
    if at - begin > LIMIT:
        wrong.append(f"expected an end within {LIMIT:.0f} s")
    if code != expected:
        wrong.append(f"expected exit code {expected}, got {code}")
    run.reader.join(5)
    if not any(re.search(said, line) for _, line in run.lines):
        wrong.append(f"expected it to say: {said}")
    if left := processes_of(run.command[0]):
        wrong.append(f"processes are left: {left}")
    return wrong, at - begin


def ask_driver(query):
    """Numbers, of the GPUs that the run sees; none where there is no nvidia-smi."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        told = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits",
                               *([f"--id={seen}"] if seen else [])],
                              capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return []
    return [int(line) for line in told.stdout.split() if line.isdigit()]


def device_memory():
    """MiB in use on each GPU."""
    return ask_driver("--query-gpu=memory.used")


def device_processes():
    return ask_driver("--query-compute-apps=pid")


def left_on_devices(memory, processes):
    """The driver frees memory a moment after a process has ended."""
    until = time.monotonic() + 5
    while True:
        now, more = device_memory(), set(device_processes()) - set(processes)
        wrong = [f"GPU {i}: {b} MiB in use, {a} before" for i, (a, b) in enumerate(zip(memory, now))
                 if b > a + 64]
        wrong += [f"processes {sorted(more)} still use GPUs"] if more else []
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(0.2)


def run_phase(name, command, log, environment, strike, expected, said, *, shared):
    memory, processes = ([], []) if shared else (device_memory(), device_processes())
    run = Run(command, log, environment)
    try:
        begin = strike(run)
        wrong, took = judge(run, begin, expected, said)
    except RuntimeError as error:
        wrong, took = [str(error)], float("nan")
    finally:
        last = run.last_line()
        run.close()
    wrong += [] if shared else left_on_devices(memory, processes)
    print(f"{name:<28} ended after {took:5.1f} s{': WRONG: ' if wrong else ''}{'; '.join(wrong)}"
          f"  | {last}", flush=True)
    return not wrong


def names_of_phases(text, folder):
    """Those that --only names, all where it names none; a name that is no phase is an error."""
    known = [*faults(""), *hits(folder)]
    names = [name.strip() for name in text.split(",")] if text else known
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"--only: {unknown[0]!r} is no phase: expected some of {', '.join(known)}"
                         " (those with a comma cannot be named)")
    return names


def phases(command, folder, names, shared):
    command = [*command, "--output", "jsonl"]
    try:
        asked_for = faults_of(command, folder)
    except RuntimeError as error:
        print(error)
        return False
    good = True
    for number, (name, (kind, rank, op, step)) in enumerate(asked_for.items()):
        if name not in names:
            continue
        asked = ["--steps", "100000", "--fault", f"{kind}:{rank}:{op}:{step}"]
        asked += meeting_flags(folder).get(name, [])
        shutil.rmtree(folder / "phases_saves", ignore_errors=True)
        good &= run_phase(name, [*command, *asked], folder / f"fault{number}.log", None,
                          lambda run, kind=kind, step=step: run_fault(run, kind, step), 3,
                          SAID[kind], shared=shared)
    for number, (name, (flags, is_there, whom, how)) in enumerate(hits(folder).items()):
        if name not in names:
            continue
        shutil.rmtree(folder / "phases_saves", ignore_errors=True)
        for file in folder.glob("nccl.*"):
            file.unlink()
        environment = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl.%p")} \
            if "NCCL" in name else None

        def strike(run, is_there=is_there, whom=whom, how=how, name=name):
            run.await_moment(lambda: is_there(run), name)
            return hit(run, whom(run), how)

        expected, said = 3, SAID["stop"] if how == signal.SIGSTOP else KILLED
        if name == "the supervisor":
            expected, said = -signal.SIGKILL, ""  # nobody is left to speak
        asked = flags if "--steps" in flags else ["--steps", "100000", *flags]
        good &= run_phase(name, [*command, *asked], folder / f"hit{number}.log", environment,
                          strike, expected, said, shared=shared)
    return good


# ---- saves --------------------------------------------------------------------------------------


def bits_of(run):
    return {step["step"]: (step["loss"], step["grad_norm"]) for _, step in run.events("step")}


def whole_run(command, folder):
    run = Run(command, folder / "whole.log")
    run.process.wait()
    run.close()
    return bits_of(run) if run.process.returncode == 0 else {}


def compare(run, whole, kept):
    """What a resumed run has otherwise than the one that nothing has ended. `kept`: the last save
    that the one before spoke of."""
    steps = bits_of(run)
    wrong = [f"step {n} is {bits}, expected {whole.get(n)}" for n, bits in steps.items()
             if whole.get(n) != bits]
    if steps and not kept + 1 <= min(steps) <= kept + 2:
        wrong.append(f"went on with step {min(steps)}, though step {kept} was saved last")
    return wrong


def end_in_a_save(run, place, choose, how):
    """At a random moment of a save. Whom it hit, and whether the save was still under way."""
    run.await_moment(lambda: run.events("save"), "its first save")
    time.sleep(choose.uniform(0, 0.3))
    run.await_moment(lambda: list(place.glob("*.partial")), "a save under way")
    durations = [save["duration_ns"] / 1e9 for _, save in run.events("save")]
    time.sleep(choose.uniform(0, 0.5 * min(durations)))
    victims = [("the run", run.process.pid)]
    if how == signal.SIGKILL:
        victims += [(f"rank {rank}", process) for rank, process in sorted(run.ranks().items())]
    whom, process = choose.choice(victims)
    hit(run, process, how)
    return whom, any(place.glob("*.partial"))


def saves(command, folder, kills, seed):
    command = [*command, "--output", "jsonl"]
    whole = whole_run(command, folder)
    if not whole:
        print(f"the whole run failed: {folder / 'whole.log'}")
        return False
    place = folder / "killed_saves"
    shutil.rmtree(place, ignore_errors=True)
    saving = ["--save", str(place), "--save-every", "1", "--keep-saves", "3"]
    choose = random.Random(seed)
    killed, tries, kept, is_last = 0, 0, 0, False
    while not is_last and tries < 2 * kills + 5:
        tries += 1
        is_last = killed == kills  # it only shows that what the one before left is whole
        resume = ["--resume", str(place)] if kept else []
        run = Run([*command, *resume, *saving], folder / f"kill{tries}.log")
        whom, hit_a_save, wrong = "nobody", False, []
        try:
            how = signal.SIGINT if is_last else signal.SIGKILL
            whom, hit_a_save = end_in_a_save(run, place, choose, how)
            if run.await_end(LIMIT) is None:
                wrong.append(f"did not end within {LIMIT:.0f} s")
        except RuntimeError as error:
            wrong.append(str(error))
        finally:
            run.close()
        wrong += compare(run, whole, kept)
        steps = sorted(bits_of(run))
        kept = max((save["step"] for _, save in run.events("save")), default=kept)
        killed += hit_a_save and not is_last
        print(f"run {tries}: steps {steps[:1]} to {steps[-1:]}, "
              f"{'interrupted' if is_last else 'killed'}: {whom}, "
              f"{'in a save' if hit_a_save else 'between saves'}"
              f"{': WRONG: ' if wrong else ''}{'; '.join(wrong[:3])}", flush=True)
        if wrong:
            return False
    print(f"{killed} kills during saves; steps 1 to {kept} had the bits of {len(whole)} without")
    return is_last


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["phases", "saves"])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--only", default="", help="names of phases, with commas between them")
    parser.add_argument("--shared", action="store_true", help="other programs run on the GPUs")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1 :]
    if not command:
        parser.error("expected -- and a command")
    try:
        names = names_of_phases(flags.only, flags.out)
    except ValueError as error:
        parser.error(str(error))
    flags.out.mkdir(parents=True, exist_ok=True)
    if flags.what == "phases":
        return 0 if phases(command, flags.out, names, flags.shared) else 1
    return 0 if saves(command, flags.out, flags.kills, flags.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
