"""All checks and measurements of mfsdp-exec that need GPUs, in stages of less than eight minutes each."""

import collections
import concurrent.futures
import functools
import glob
import os
import pathlib
import random
import re
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_lab.checks.layouts import HOST_LAYOUTS, Layout
from gpu_lab.checks.meshes import one_gpu_meshes
from gpu_lab.command_line import Flags, add_bin, add_command, launcher_of, tools_of
from gpu_lab.launch import Ended, Launcher, own_command, run_threads
from gpu_lab.machine import GIB, MODELS, Tools, describe_gpus, gpu_count, has_module, text
from gpu_lab.messages import LAUNCHER, WINDOWS_NCCL, WINDOWS_ONE_HOST
from gpu_lab.pairing import judge_classes
from gpu_lab.plans import ops_of_a_step
from gpu_lab.results import bits_of, read_lines, steps_of
from gpu_lab.runs import choose
from gpu_lab.saves import compare_states
from gpu_lab.stages import Failed, Skipped, run_stages

LIMIT = 470.0  # seconds of a stage's longest command
STRATEGIES = (0, 1, 2, 3)
SPEED_STEPS = 25
GOAL = 480  # TFLOP/s and GPU on four H200 or more


@dataclass
class Check:
    """One call of `check`. `flags`: more flags of the plan; `plain`: where stage G has its runs without them."""

    tools: Tools
    launcher: Launcher
    out: pathlib.Path
    gpus: int
    flags: list[str]
    plain: pathlib.Path
    shared: bool

    def run(self, command: list[Any], what: str, **options: Any) -> Ended:
        """Runs a command that has to end well."""
        done = self.launcher.run(command, **options)
        if done.code != 0:
            log = options.get("log")
            raise Failed(f"{what} ended with {done.code}: {log or done.last_line()}")
        return done

    def needs_gpus(self, count: int) -> None:
        """Skips the stage where there are fewer GPUs."""
        if self.gpus < count:
            raise Skipped(f"needs {count} GPUs")

    def exec(self, *words: Any) -> list[str]:
        """mfsdp-exec with these flags. No result is stored."""
        return [self.tools.find("mfsdp-exec"), "--no-save", *map(str, words)]

    def train(self, ranks: int, out: pathlib.Path, *words: Any) -> None:
        """A training on GPUs, whose lines go to `out`."""
        self.run(self.exec("--backend", "cuda", "--nproc", ranks, "--deadline", 20, "--output", "jsonl", *words),
                 out.stem, seconds=200, out=out)

    def device_tests(self, tests: str, **environment: str) -> None:
        """GoogleTests that need a GPU."""
        program = self.tools.look_for("gpu_backend_cuda_device_tests")
        if program is None and self.tools.must_exist:
            raise Skipped("gpu_backend_cuda_device_tests is not built")
        self.run([program or "gpu_backend_cuda_device_tests", f"--gtest_filter={tests}"], "device tests", seconds=LIMIT,
                 environment=environment, show=True)

    def same_bits(self, one: pathlib.Path, other: pathlib.Path) -> None:
        """Two runs have the same losses and norms."""
        if self.launcher.dry_run:
            return
        a, b = bits_of(read_lines(one)), bits_of(read_lines(other))
        wrong = [i + 1 for i, (x, y) in enumerate(zip(a, b)) if x != y]
        print(f"{one}, {other}: {len(a)} steps, different at {wrong}")
        if wrong or len(a) != len(b) or not a:
            raise Failed("")


# ---- A to E -------------------------------------------------------------------------------------


def kernels(check: Check) -> None:
    """kernels, GEMMs and attention against fp64"""
    check.device_tests("-CudaBackendTest.*:CudaEquality.*")


def one_gpu(check: Check) -> None:
    """the backend on one GPU"""
    check.device_tests("CudaBackendTest.*-*TwoGpus*")
    training = ("--model", "llama_tiny", "--data", text(), "--steps", 50)
    check.train(1, check.out / "cuda.jsonl", *training)
    check.run(check.exec("--backend", "cpu", "--world-size", 1, *training, "--output", "jsonl"), "the CPU's run",
              seconds=200, out=check.out / "cpu.jsonl")
    if not check.launcher.dry_run:
        near_losses(check.out / "cuda.jsonl", check.out / "cpu.jsonl")


def near_losses(one: pathlib.Path, other: pathlib.Path) -> None:
    """Losses of steps 1 to 10 are within 0.01, those of later steps within 0.05."""
    a, b = ([step["loss"] for step in steps_of(read_lines(path))] for path in (one, other))
    worst = max((abs(x - y) for x, y in zip(a, b)), default=float("nan"))
    wrong = [i + 1 for i, (x, y) in enumerate(zip(a, b)) if not abs(x - y) <= (0.01 if i < 10 else 0.05)]
    print(f"{len(a)} and {len(b)} losses, at most {worst:.5f} apart; too far at steps {wrong}")
    if wrong or len(a) != len(b) or not a:
        raise Failed("losses on the GPU and on the CPU are too far apart")


def two_gpus(check: Check) -> None:
    """two GPUs: strategies, a delay before each op, poison, bits"""
    check.needs_gpus(2)
    if not check.flags:
        check.device_tests("CudaBackendTest.*")
        check.device_tests("CudaEquality.*", MFSDP_EQUALITY="full")
    for strategy in STRATEGIES:
        bare = ["--model", "llama_nano", "--data", "synthetic", "--strategy", strategy, "--deterministic"]
        steps = steps_for_each_op(check, strategy)
        if steps is None:
            continue
        file = lambda name: check.out / f"{name}{strategy}.jsonl"
        check.train(2, file("plain"), *bare, *check.flags, "--steps", steps)
        for name, fault in (("delayed", "--delay-op each"), ("chaos", "--chaos 1")):
            check.train(2, file(name), *bare, *check.flags, "--steps", steps, *fault.split(), "--poison")
            check.same_bits(file(name), file("plain"))
        if check.flags:
            check.train(2, file("bare"), *bare, "--steps", steps)
            check.same_bits(file("plain"), file("bare"))


def steps_for_each_op(check: Check, strategy: int) -> int | None:
    """As many steps as a step has ops; None where the strategy refuses the flags."""
    plan = check.out / "plan.json"
    done = check.launcher.run(check.exec(
        "--model", "llama_nano", "--data", "synthetic", "--world-size", 2, "--deterministic", "--dry-run",
        "--plan-out", plan, "--strategy", strategy, *check.flags), seconds=200)
    if check.launcher.dry_run:
        return 100
    if done.code != 0:
        print(f"strategy {strategy}: {done.last_line()}")
        if check.flags and strategy < 3:
            return None
        raise Failed("no plan")
    steps = ops_of_a_step(plan)
    print(f"strategy {strategy}: {steps} ops in a step")
    return steps


def killed_ranks(check: Check) -> None:
    """ranks killed and stopped in every phase: all else ends within 30 seconds"""
    check.needs_gpus(2)
    check.run(own_command("kills", "phases", "--out", check.out / "kills", *(["--shared"] if check.shared else []), "--",
                          *check.exec("--backend", "cuda", "--nproc", 2, "--deadline", 5, "--model", "llama_tiny",
                                      "--data", text(), *check.flags)), "kills phases", seconds=LIMIT, show=True)


def moved_states(check: Check) -> None:
    """states between meshes and backends, runs killed during saves"""
    folder, most = check.out / "states", 4 if check.gpus >= 4 else max(1, check.gpus)
    if not check.launcher.dry_run:
        shutil.rmtree(folder, ignore_errors=True)
    move_states(check, folder, most)
    check.run(own_command("kills", "saves", "--out", check.out / "kills", "--kills", 20, "--",
                          *check.exec("--backend", "cuda", "--nproc", min(2, most), "--deterministic", "--deadline", 20,
                                      "--model", "llama_tiny", "--data", text(), "--steps", 2000)),
              "kills saves", seconds=380, show=True)


def move_states(check: Check, folder: pathlib.Path, most: int) -> None:
    """No step is done between a save and the next, so every mesh and backend holds the same state."""
    hold = functools.partial(hold_state, check)

    def moved(source: str, backend: str, ranks: int, strategy: int, to: str) -> None:
        hold(backend, ranks, strategy, "--resume", folder / source, "--save", folder / to)
        if not check.launcher.dry_run and compare_states(folder / source, folder / to) != 0:
            raise Failed(f"{folder / to}: another state than {folder / source}")

    hold("cuda", most, 3, "--save", folder / "cuda")
    hold("cpu", 2, 3, "--save", folder / "cpu")
    for ranks in (4, 2, 1):
        if ranks <= most:
            moved("cuda", "cuda", ranks, 3, f"cuda_{ranks}")
    moved("cuda_1", "cuda", most, 3, f"cuda_1_{most}")
    moved("cuda", "cuda", most, 1, "cuda_zero1")
    moved("cuda_zero1", "cuda", most, 3, "cuda_zero1_zero3")
    moved("cuda", "cpu", 1, 3, "cuda_cpu")
    moved("cuda", "cpu", 4, 1, "cuda_cpu_zero1")
    moved("cpu", "cuda", most, 3, "cpu_cuda")
    moved("cpu_cuda", "cpu", 2, 3, "cpu_cuda_cpu")
    if most >= 2:
        hold("hosts", 4, 3, "--save", folder / "hosts")
        moved("hosts", "cuda", 2, 3, "hosts_2")
        moved("hosts", "cuda", 1, 1, "hosts_1")
        moved("hosts_1", "hosts", 4, 3, "hosts_1_hosts")


def hold_state(check: Check, backend: str, ranks: int, strategy: int, *words: Any) -> None:
    """A run of three steps. `backend` hosts: four ranks on two hosts."""
    shape = ["--strategy", strategy, "--seq-len", 128, "--global-batch", 4, "--steps", 3, *words]
    if backend == "hosts":
        if on_two_hosts(check, check.out / "states" / "log", *shape) != (0, 0):
            raise Failed(f"states: {backend} {ranks} {strategy} failed: {check.out / 'states' / 'log'}")
        return
    place = "--nproc" if backend == "cuda" else "--world-size"
    check.run(check.exec("--backend", backend, place, ranks, "--model", "llama_tiny", "--data", text(), *shape),
              f"states: {backend} {ranks} {strategy}", seconds=100, out=check.out / "states.log")


# ---- F ------------------------------------------------------------------------------------------


def speed(check: Check) -> None:
    """Llama-3-8B (Llama-3.2-1B on one GPU): speed, memory, allocations"""
    check.needs_gpus(1)
    counter, store = check.tools.find("libmfsdp_count_allocations.so"), check.out / "speed.sqlite"
    allocations, printed = check.out / "allocations.txt", check.out / "speed.txt"
    if not check.launcher.dry_run:
        for file in (allocations, store):
            file.unlink(missing_ok=True)
    watch = {"MFSDP_ALLOCATIONS": str(allocations), "MFSDP_STEP_END": "report.d2h", "LD_PRELOAD": counter,
             "NVTX_INJECTION64_PATH": counter}
    done = check.launcher.run(
        [check.tools.find("mfsdp-exec"), "--backend", "cuda", "--nproc", check.gpus, "--gpu", "h200",
         "--model", "llama3_8b" if check.gpus >= 2 else "llama3_1b", "--seq-len", 8192, "--micro-batch", 1,
         "--recompute", "selective", "--data", text(), "--steps", SPEED_STEPS, "--gemm-search", "on", "--db", store,
         *check.flags], seconds=440, environment=watch, out=printed)
    if check.launcher.dry_run:
        return
    print(printed.read_text(), end="")
    if done.code != 0:
        raise Failed(f"the run ended with {done.code}: {done.last_line()}")
    wrong = wrong_speed(printed.read_text(), check.gpus, next(iter(describe_gpus("name")), ""))
    wrong += wrong_allocations(allocations.read_text(), check.gpus)
    verified = check.launcher.run([check.tools.find("mfsdp-verify"), "--run", f"{store}:latest"], show=True)
    if verified.code != 0:
        wrong.append("mfsdp-verify --run")
    if wrong:
        raise Failed("\nWRONG: ".join(wrong))


def wrong_speed(printed: str, gpus: int, name: str) -> list[str]:
    """The faults in the lines of a run with --gpu, which predicts its memory."""
    number = lambda words: float(words.replace(",", ""))
    steps = [(int(a), float(b), number(c)) for a, b, c in
             re.findall(r"^step:\s+(\d+)\s+loss:\s+(\S+).*?tflops:\s+([\d.,]+)", printed, re.M)]
    rows = {a.strip(): (int(number(b)), int(number(c))) for a, b, c in
            re.findall(r"^([a-z0-9_ ]+?)\s{2,}([\d,]+)\s+([\d,]+)\s+-?[\d,]+\s*$", printed, re.M)}
    losses = [loss for _, loss, _ in steps]
    judged = [([step for step, _, _ in steps] == list(range(1, SPEED_STEPS + 1)),
               f"{len(steps)} steps, expected {SPEED_STEPS}")]
    if len(steps) >= 20:
        rate = statistics.median(rate for _, _, rate in steps[-20:])
        judged.append((rate >= GOAL or gpus < 4 or "H200" not in name,
                       f"{rate:.1f} TFLOP/s per GPU, median of 20 steps, {gpus} {name} (goal: {GOAL} on 4 H200)"))
        judged.append((statistics.mean(losses[-5:]) < losses[0], f"loss {losses[0]}, at last {losses[-5:]}"))
    predicted, measured = rows.get("runtime", (0, 0))
    share = measured / predicted - 1 if predicted else float("nan")
    judged.append((abs(share) <= 0.1 and measured <= 3 * GIB,
                   f"runtime: {predicted / GIB:.3f} GiB predicted, {measured / GIB:.3f} measured, {share:+.1%}"))
    other = {row: pair for row, pair in rows.items() if row != "runtime" and pair[0] != pair[1]}
    judged.append((any(row.startswith("pool ") for row in rows) and not other,
                   f"{len(rows)} rows of memory; those that differ from the plan, runtime left out: {other}"))
    print("\n".join(line for _, line in judged))
    return [line for right, line in judged if not right]


def wrong_allocations(lines: str, gpus: int) -> list[str]:
    """The faults in calls for device memory: none may come after a rank's first step.

    A line has a process, the steps that it has issued, a function and bytes.
    """
    calls = [line.split() for line in lines.splitlines()]
    steps = collections.Counter(call[0] for call in calls if call[2] == "step_end")
    calls = [call for call in calls if call[2] != "step_end"]
    late = [call for call in calls if call[1] != "0"]
    print(f"{len(calls)} calls for device memory by {len(steps)} ranks, {len(late)} of them from step 2 on")
    for process, issued, function, size in late[:10]:
        print(f"process {process}, step {int(issued) + 1}: {function} of {size} bytes")
    wrong = ["device memory is allocated after the first step"] if late else []
    if len(steps) != gpus or set(steps.values()) != {SPEED_STEPS} or not calls:
        wrong.append(f"expected calls, and {SPEED_STEPS} steps of each of {gpus} ranks, got {dict(steps)}")
    return wrong


# ---- G ------------------------------------------------------------------------------------------


def on_two_hosts(check: Check, folder: pathlib.Path, *words: Any) -> tuple[int, int]:
    """Four ranks on two hosts that this host plays: their exit codes, which `folder`/code has too.

    Ranks with another NCCL_HOSTID are reached by the network. Four GPUs are two pairs; with two GPUs each is in both
    hosts, where two processes share it.
    """
    if not check.launcher.dry_run:
        folder.mkdir(parents=True, exist_ok=True)
    secret = {"MFSDP_SECRET": os.urandom(32).hex()}
    command = check.exec("--backend", "cuda", "--nproc", 2, "--nnodes", 2, "--master",
                         f"127.0.0.1:{random.randint(21000, 28999)}", "--deterministic", "--deadline", 60,
                         "--model", "llama_tiny", "--data", text(), "--output", "jsonl", *words)
    logs_nccl = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl.%p")}
    hosts = [({"NCCL_HOSTID": "a", "CUDA_VISIBLE_DEVICES": "0,1", **logs_nccl}, folder / "steps.jsonl", folder / "errors"),
             ({"NCCL_HOSTID": "b", "CUDA_VISIBLE_DEVICES": "2,3" if check.gpus >= 4 else "0,1"},
              folder / "second", folder / "second")]
    codes = [0, 0]

    def host(rank: int) -> None:
        environment, out, log = hosts[rank]
        codes[rank] = check.launcher.run([*command, "--node-rank", str(rank)], seconds=120,
                                         environment={**secret, **environment}, out=out, log=log).code

    run_threads([functools.partial(host, rank) for rank in (1, 0)])
    if not check.launcher.dry_run:
        (folder / "code").write_text(f"{codes[0]} {codes[1]}\n")
    return codes[0], codes[1]


@dataclass(frozen=True)
class HostTraining:
    """A layout on two hosts, with or without the flags of --flags."""

    folder: pathlib.Path
    layout: Layout
    added: tuple[str, ...]

    def ended_well(self) -> bool:
        """Whether it need not be run again."""
        code = self.folder / "code"
        return code.exists() and code.read_text().split() == ["0", "0"]


def two_hosts(check: Check) -> None:
    """four ranks on two hosts, which two GPUs can play"""
    check.needs_gpus(2)
    trainings = []
    for number, layout in enumerate(HOST_LAYOUTS):
        trainings.append(HostTraining(check.plain / "hosts" / f"plain{number}", layout, ()))
        if check.flags:
            trainings.append(HostTraining(check.out / "hosts" / f"flags{number}", layout, tuple(check.flags)))

    def train(training: HostTraining) -> None:
        if not check.launcher.dry_run:
            shutil.rmtree(training.folder, ignore_errors=True)
        on_two_hosts(check, training.folder, "--steps", 6, *training.layout.flags, *training.added)

    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(train, [one for one in trainings if check.launcher.dry_run or not one.ended_well()]))
    if not check.launcher.dry_run:
        judge_hosts(trainings)


def judge_hosts(trainings: list[HostTraining]) -> None:
    """Layouts of one class have one result, and the hosts have used the network."""
    runs, wrong, refused, with_flags = [], [], [], 0
    for one in trainings:
        name, title = one.layout.name, f"{one.layout.name}, {' '.join(one.layout.flags)}"
        bits = bits_of(read_lines(one.folder / "steps.jsonl"), norms_alone=name == "exact sums")
        logs = "".join(open(log, errors="replace").read() for log in glob.glob(f"{one.folder}/nccl.*"))
        codes = (one.folder / "code").read_text().split()
        errors = [line for line in (one.folder / "errors").read_text().splitlines() if "mfsdp-exec: " in line]
        windows = [line for line in errors if WINDOWS_ONE_HOST in line or WINDOWS_NCCL in line]
        if one.added and not bits and errors and (codes == ["2", "2"] or windows):
            refused.append(f"left out: {title}: {(windows or errors)[0].strip()}")
        elif codes != ["0", "0"] or len(bits) != 6:
            wrong.append(f"{title} failed: {one.folder / 'errors'}")
        elif "via NET" not in logs:
            wrong.append(f"{title}: {one.folder}: NCCL's log has no network between the hosts")
        else:
            runs.append((name, bits))
            with_flags += bool(one.added)
    if refused:
        print("\n".join([*refused, f"{with_flags} layouts with the flags"]))
        if not with_flags:
            wrong.append("no layout takes the flags")
    lines, differ = judge_classes(runs)
    print("\n".join(lines))
    if wrong or differ:
        raise Failed("\n".join([*wrong, *differ]))
    print("one result in each class")


# ---- H and I ------------------------------------------------------------------------------------


def launchers(check: Check) -> None:
    """torchrun and Open MPI as launchers"""
    ranks, mpirun = 2 if check.gpus >= 2 else 1, shutil.which("mpirun")
    training = check.exec("--backend", "cuda", "--model", "llama_tiny", "--data", text(), "--steps", 5)
    starts = {}
    if has_module("torch"):
        starts["torchrun"] = ["python3", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks, "--no_python"]
    if mpirun:
        starts["mpirun"] = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", ranks]
    if not starts:
        raise Skipped("neither torchrun nor mpirun is here")
    for name, start in starts.items():
        log = check.out / f"{name}.log"
        check.run([*start, *training], name, seconds=100, out=log, log=log)
        if check.launcher.dry_run:
            continue
        found = [line for line in log.read_text().splitlines() if LAUNCHER in line]
        if not found:
            raise Failed(f"{name}: expected a line about the launcher: {log}")
        print("\n".join(found))


def sanitizer(check: Check) -> None:
    """two GPUs: a training under compute-sanitizer"""
    found = shutil.which("compute-sanitizer") or next(iter(sorted(
        glob.glob("/usr/local/cuda*/bin/compute-sanitizer"), reverse=True)), None)
    if found is None and not check.launcher.dry_run:
        raise Skipped("needs compute-sanitizer")
    check.needs_gpus(2)
    # NCCL asks CUDA for kernels that it has no code for and handles the refusal, so errors of the API do not count.
    check.run([found or "compute-sanitizer", "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no",
               "--error-exitcode", 1,
               *check.exec("--backend", "cuda", "--nproc", 2, "--deadline", 140, "--gemm-search", "off",
                           "--model", MODELS / "small_llama.json", "--data", "synthetic", "--seq-len", 256,
                           "--micro-batch", 1, "--global-batch", 2, "--steps", 2, *check.flags)],
              "memcheck", seconds=LIMIT, show=True)


STAGES: dict[str, Callable[[Check], None]] = {
    "A": kernels, "B": one_gpu, "C": two_gpus, "D": killed_ranks, "E": moved_states, "F": speed, "G": two_hosts,
    "H": launchers, "I": sanitizer, "J": one_gpu_meshes}


def check_command(flags: Flags) -> int:
    """Runs the checks of mfsdp-exec that need GPUs, in stages of less than eight minutes each.

    A stage that has passed is not run again (OUT/STAGE.passed); a table of all stages is printed at the end. Stages that need
    more GPUs than there are, or programs that are not built, are skipped. Nothing is built.

    --flags, of the plan: for the trainings of stages C, D, F, G and I (give them an --out of their own). C and G also
    compare their results with those of the plan without the flags, and leave out what refuses the flags. --plain (default:
    --out): where G has, or puts, its runs without the flags.
    """
    names = choose(flags.stage, list(STAGES), "--stage", "stage")
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    tools = tools_of(flags)
    tools.find("mfsdp-exec")
    gpus = gpu_count()
    if flags.dry_run:
        gpus = gpus or 4
    check = Check(tools, launcher_of(flags), flags.out.absolute(), gpus, flags.flags.split(),
                  (flags.plain or flags.out).absolute(), flags.shared)
    stages = {name: functools.partial(stage, check) for name, stage in STAGES.items()}
    described = next(iter(describe_gpus("name,driver_version")), "")
    if flags.dry_run:
        for name in names:
            print(f"== stage {name}: {STAGES[name].__doc__}")
            try:
                stages[name]()
            except Skipped as reason:
                print(f"skipped: {reason}")
        return 0
    return run_stages(stages, names, check.out, keep_passed=True, before_table=lambda: print(f"{gpus} GPUs: {described}"))


def add_to(commands: Any) -> None:
    """Adds `check`."""
    listed = "\n".join(f"      {name}  {stage.__doc__}" for name, stage in STAGES.items())
    parser = add_command(commands, "check", check_command, f"{check_command.__doc__}\n    Stages:\n{listed}",
                         "a CUDA build's mfsdp-exec; one to four GPUs by stage; torch or Open MPI for H alone")
    add_bin(parser)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_check"), help="logs and results (gpu_check)")
    parser.add_argument("--stage", default=",".join(STAGES), metavar="A,B,...")
    parser.add_argument("--flags", default="", help='of the plan, in one word: "--gather copy_engine"')
    parser.add_argument("--plain", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--shared", action="store_true", help="other programs run on the GPUs; D does not look at device memory")
