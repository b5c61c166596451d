"""The stages of a campaign. A run's folder has `done` or `failed` at its end, so that the next call knows."""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_lab.campaign.report import judge_layouts
from gpu_lab.campaign.rows import BY_SYMMETRIC, FITTING, ROWS, WAYS, run_of
from gpu_lab.checks.layouts import Layout, class_layouts, expert_layouts
from gpu_lab.launch import TIMED_OUT, Ended, Launcher, own_command, ranks_command, run_threads
from gpu_lab.machine import GIB, Tools, cut_model, model_path, text
from gpu_lab.results import Json, parse_lines, read_json, read_lines, result_of, steps_of
from gpu_lab.stages import Failed, NotDone, Skipped

CALL_ENDS = 590.0  # seconds; a call has ten minutes
MOE = "qwen3_30b_a3b"
POWER = "timestamp,index,clocks.sm,power.draw,power.limit,temperature.gpu"


@dataclass
class Campaign:
    """One call. `limit`: seconds after which no further run begins; `again`: runs that failed are made again."""

    tools: Tools
    launcher: Launcher
    out: pathlib.Path
    gpus: int
    card: str
    rows: list[str]
    ways: list[str]
    limit: float
    steps: int = 40
    search: str = "on"
    again: bool = False
    cards: str = ""  # identities of the GPUs
    has_torch: bool = False
    call: str = field(default_factory=lambda: f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%S}-{os.getpid()}")

    @property
    def skip(self) -> int:
        """Steps that do not count."""
        return self.steps // 4

    def room_for(self, seconds: float) -> None:
        """Raises NotDone if a run of `seconds` may not begin any more."""
        if self.launcher.spent() > self.limit or self.launcher.spent() + seconds > CALL_ENDS:
            raise NotDone

    def is_open(self, folder: pathlib.Path) -> bool:
        """Whether a run is to be made now. Raises Failed where it failed and is not made again."""
        if (folder / "done").exists():
            return False
        failed = folder / "failed"
        if failed.exists() and not self.again:
            raise Failed(f"{folder.relative_to(self.out)}: {failed.read_text().strip() or 'failed before'}")
        if not self.launcher.dry_run:
            failed.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
        return True

    def close(self, folder: pathlib.Path, done: Ended) -> bool:
        """Writes how a run ended; whether it ended well."""
        if self.launcher.dry_run:
            return True
        if done.code == 0:
            (folder / "done").touch()
            return True
        lines = [line for line in (folder / "log").read_text(errors="replace").splitlines() if line.strip()]
        (folder / "failed").write_text(f"exit code {done.code}: {(lines or [''])[-1][:200]}\n")
        return False

    def exec(self, *words: Any) -> list[str]:
        """mfsdp-exec on all GPUs."""
        return [self.tools.find("mfsdp-exec"), "--backend", "cuda", "--nproc", str(self.gpus), *map(str, words)]


class Wrong:
    """Collects what failed, so that the rest of a stage runs."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextlib.contextmanager
    def collect(self, what: str) -> Iterator[None]:
        """Keeps a failure for later. NotDone ends the stage."""
        try:
            yield
        except (Failed, RuntimeError) as error:
            print(f"{what}: {error}", flush=True)
            self.lines.append(what)

    def end(self) -> None:
        """Raises Failed where something failed."""
        if self.lines:
            raise Failed(", ".join(self.lines))


# ---- predictions --------------------------------------------------------------------------------


def usable_ways(campaign: Campaign, ways: Iterable[str]) -> list[str]:
    """Ways that this number of GPUs has."""
    return [way for way in ways if campaign.gpus > 1 or not WAYS[way].several]


def predict(campaign: Campaign, row: str, way: str, model: pathlib.Path, *more: str) -> Json:
    """The prediction of mfsdp-sim for a row in one way."""
    return run_of(row, way, campaign.gpus, str(model)).predict(campaign.launcher, campaign.tools.find("mfsdp-sim"),
                                                                campaign.card, *more)


def fits_well(memory: Json) -> bool:
    """Whether 2 GiB stay free, and PyTorch's allocator need not give memory back to go on."""
    taken = max(memory["allocated_bytes"], memory.get("device_bytes", 0))
    return taken + 2 * GIB <= memory["capacity_bytes"] and not memory.get("alloc_retries")


def layered_model(campaign: Campaign, name: str, layers: int) -> pathlib.Path:
    """A model with `layers` layers."""
    if campaign.launcher.dry_run:
        return model_path(name)
    return cut_model(name, layers, campaign.out / "models" / f"{name}_{layers}_layers")


def fits(campaign: Campaign, row: str, layers: int) -> bool:
    """Whether `layers` layers fit in every way of mfsdp, and of FSDP2 with its allocator's cache."""
    model = layered_model(campaign, ROWS[row].model, layers)
    return all(fits_well(predict(campaign, row, way, model)["memory"]) for way in usable_ways(campaign, FITTING))


def choose_model(campaign: Campaign, row: str) -> pathlib.Path:
    """The row's model with the most layers that fit. row.json keeps the choice."""
    shape, file = ROWS[row], campaign.out / "speed" / row / "row.json"
    whole = json.loads(model_path(shape.model).read_text())["num_hidden_layers"]
    if not file.exists() and not campaign.launcher.dry_run:
        low, high, middle = 0, whole + 1, whole
        while high - low > 1:
            if fits(campaign, row, middle):
                low = middle
            else:
                high = middle
            middle = (low + high) // 2
        if low < 1:
            raise Failed(f"no layer of {shape.model} fits {campaign.gpus} {campaign.card}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"layers": low, "of": whole, "sequence": shape.sequence, "micro_batch": shape.micro_batch,
                                    "microbatches": shape.microbatches}) + "\n")
        print(f"{row}: {low} of {whole} layers", flush=True)
    return layered_model(campaign, shape.model, json.loads(file.read_text())["layers"] if file.exists() else whole)


def predict_way(campaign: Campaign, row: str, way: str, model: pathlib.Path) -> None:
    """Writes predicted.json once: a prediction that was made before a run stays what it was. tuned.toml: what was found."""
    folder = campaign.out / "speed" / row / way
    file = folder / "predicted.json"
    if file.exists() and file.stat().st_size > 0:
        return
    if not campaign.launcher.dry_run:
        folder.mkdir(parents=True, exist_ok=True)
    more = ["--find", "fastest", "--memory-reserve", "2GiB", "--tune-out", str(folder / "tuned.toml")] if WAYS[way].found else []
    result = predict(campaign, row, way, model, *more)
    if campaign.launcher.dry_run:
        return
    if WAYS[way].found:
        (folder / "found.json").write_text(json.dumps(result))
        result = result["winner"]
    part = folder / "predicted.part"
    part.write_text(json.dumps(result) + "\n")
    part.rename(file)


def predictions(campaign: Campaign) -> None:
    """the models that fit, and all predictions; needs no GPU, but --gpus and --card then"""
    wrong = Wrong()
    for row in campaign.rows:
        with wrong.collect(row):
            model = choose_model(campaign, row)
            for way in usable_ways(campaign, campaign.ways):
                with wrong.collect(f"{row} {way}, prediction"):
                    predict_way(campaign, row, way, model)
    wrong.end()


# ---- speed --------------------------------------------------------------------------------------


def run_ours(campaign: Campaign, row: str, way: str, model: pathlib.Path, folder: pathlib.Path) -> Ended:
    """mfsdp-exec. `steps` has each line with its second, so that clocks and power of timed steps are known."""
    if not campaign.launcher.dry_run:
        for file in folder.glob("db.sqlite*"):
            file.unlink()
    run = run_of(row, way, campaign.gpus, str(model))
    tuned = ["--options", str(folder / "tuned.toml")] if WAYS[way].found else []
    command = run.exec_command(campaign.tools.find("mfsdp-exec"), model, *tuned, "--gpu", campaign.card, "--data", "synthetic",
                               "--steps", str(campaign.steps), "--gemm-search", campaign.search, "--deadline", "60",
                               "--db", str(folder / "db.sqlite"), "--name", f"{row}.{way}")
    return campaign.launcher.run(command, out=folder / "steps", log=folder / "log", stamp=True)


def run_fsdp2(campaign: Campaign, row: str, way: str, model: pathlib.Path, folder: pathlib.Path) -> Ended:
    """FSDP2, compiled."""
    shape = ROWS[row]
    words = ["--model", model, "--sequence", shape.sequence, "--micro-batch", shape.micro_batch, "--microbatches",
             shape.microbatches, "--compile", "--reduce", "float32" if WAYS[way].wire == "fp32" else "bfloat16",
             "--steps", campaign.steps, "--timed", campaign.steps - campaign.skip]
    words += ["--keep-gathered"] if WAYS[way].keep_gathered else []
    words += ["--recompute"] if shape.flags else []
    done = campaign.launcher.run(ranks_command(campaign.gpus, "pytorch", "fsdp2-speed", *words), log=folder / "log")
    if done.code == 0 and (facts := parse_lines(done.out.splitlines())):
        (folder / "result.json").write_text(json.dumps(facts[-1]) + "\n")
    return done


@contextlib.contextmanager
def sampled_power(path: pathlib.Path) -> Iterator[None]:
    """Clocks and power of all GPUs, five times a second."""
    with open(path, "w") as file:
        sampler = subprocess.Popen(["nvidia-smi", f"--query-gpu={POWER}", "--format=csv,noheader,nounits", "-lms", "200"],
                                   stdout=file, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TZ": "UTC"})
        try:
            yield
        finally:
            sampler.kill()
            sampler.wait()


def run_way(campaign: Campaign, row: str, way: str, model: pathlib.Path, folder: pathlib.Path) -> None:
    """One timed run, with clocks and power."""
    begin, how = campaign.launcher.spent(), run_ours if WAYS[way].ours else run_fsdp2
    if campaign.launcher.dry_run:
        how(campaign, row, way, model, folder)
        return
    for name in ("result.json", "steps", "verified"):
        (folder / name).unlink(missing_ok=True)
    (folder / "run.json").write_text(json.dumps({"call": campaign.call, "cards": campaign.cards, "gpus": campaign.gpus,
                                                 "steps": campaign.steps, "skip": campaign.skip}) + "\n")
    with sampled_power(folder / "power.csv"):
        done = how(campaign, row, way, model, folder)
    if done.code == TIMED_OUT and begin > 120:
        print(f"{row} {way}: the call ended before it, to be made again")
        raise NotDone
    if not campaign.close(folder, done):
        raise Failed((folder / "failed").read_text().strip())
    print(f"{row} {way}: done after {campaign.launcher.spent() - begin:.0f} s", flush=True)


def speed(campaign: Campaign) -> None:
    """each row in each way: mfsdp-exec, FSDP2 compiled, clocks and power with both"""
    # One after the other, as each wants the whole power of the GPUs; the engines of a row alternate.
    wrong = Wrong()
    for row in campaign.rows:
        with wrong.collect(row):
            model = choose_model(campaign, row)
            for way in usable_ways(campaign, campaign.ways):
                if not WAYS[way].ours and not campaign.has_torch:
                    print(f"{row} {way}: left out, no PyTorch with transformers")
                    continue
                with wrong.collect(f"{row} {way}, prediction"):
                    predict_way(campaign, row, way, model)
                folder = campaign.out / "speed" / row / way
                with wrong.collect(f"{row} {way}"):
                    if campaign.is_open(folder):
                        campaign.room_for(150)
                        run_way(campaign, row, way, model, folder)
    wrong.end()


def verify(campaign: Campaign) -> None:
    """mfsdp-verify --run for every timed run"""
    recorded = [folder for folder in sorted((campaign.out / "speed").glob("*/*"))
                if (folder / "done").exists() and (folder / "db.sqlite").exists()]
    if not recorded:
        raise Skipped(f"no recorded run in {campaign.out / 'speed'}")
    wrong = Wrong()
    for folder in recorded:
        if (folder / "verified").exists():
            continue
        # It takes seconds, and a store may not outlive its machine: so --limit does not count here.
        if campaign.launcher.spent() + 30 > CALL_ENDS:
            raise NotDone
        with wrong.collect(str(folder)):
            log = folder / "verify.log"
            done = campaign.launcher.run([campaign.tools.find("mfsdp-verify"), "--run", f"{folder / 'db.sqlite'}:latest"],
                                         out=log, log=log)
            if done.code != 0:
                raise Failed(f"{(log.read_text().splitlines() or [''])[-1]}")
            if not campaign.launcher.dry_run:
                log.rename(folder / "verified")
    wrong.end()


# ---- classes and experts ------------------------------------------------------------------------


def train_small(campaign: Campaign, folder: pathlib.Path, model: str, flags: Sequence[str]) -> None:
    """Six steps of a small model."""
    done = campaign.launcher.run(
        campaign.exec("--no-save", "--deterministic", "--deadline", 30, "--model", model, "--data", text(), "--steps", 6,
                      "--output", "jsonl", *flags), seconds=100, out=folder / "steps.jsonl", log=folder / "log")
    campaign.close(folder, done)


def train_layouts(campaign: Campaign, top: pathlib.Path, model: str, layouts: Iterable[Layout]) -> None:
    """Trains what is not done yet, four at a time; those with registered memory alone: no two of them share a GPU."""
    waiting: list[tuple[pathlib.Path, Layout]] = []

    def train_waiting() -> None:
        for folder, one in waiting:
            if not campaign.launcher.dry_run:
                (folder / "run").write_text(f"{one.name}|{' '.join(one.flags)}\n")
        run_threads([functools.partial(train_small, campaign, folder, model, one.flags) for folder, one in waiting])
        waiting.clear()

    for number, layout in enumerate(layouts):
        folder, title = top / str(number), f"{layout.name}|{' '.join(layout.flags)}"
        known = folder / "run"
        if not campaign.launcher.dry_run and folder.exists() and (not known.exists() or known.read_text().strip() != title):
            shutil.rmtree(folder)
        with contextlib.suppress(Failed):  # the judge reads why
            if not campaign.is_open(folder):
                continue
            try:
                campaign.room_for(110)
            except NotDone:
                train_waiting()
                raise
            if layout.uses_windows:
                train_waiting()
            waiting.append((folder, layout))
            if layout.uses_windows or len(waiting) == 4:
                train_waiting()
    train_waiting()
    if not campaign.launcher.dry_run:
        lines, wrong = judge_layouts(top)
        print("\n".join(lines))
        if wrong:
            raise Failed("\nWRONG: ".join(wrong))


def classes(campaign: Campaign) -> None:
    """every strategy on all GPUs, --deterministic: one result in each class"""
    train_layouts(campaign, campaign.out / "classes", "llama_tiny", class_layouts(campaign.gpus))


def experts(campaign: Campaign) -> None:
    """a mixture of experts on all GPUs, every strategy and expert-parallel: one result in each class"""
    train_layouts(campaign, campaign.out / "experts", "moe_nano", expert_layouts(campaign.gpus))


def moe_ours(campaign: Campaign, ep: int, model: pathlib.Path, folder: pathlib.Path) -> Ended:
    """mfsdp-exec. On a text, as random tokens have no preferences; each expert has room for twice an equal share."""
    by_expert = ["--ep", ep, "--capacity-factor", 2] if ep > 1 else []
    lines = folder / "steps.jsonl"
    done = campaign.launcher.run(
        campaign.exec("--gpu", campaign.card, "--no-save", "--model", model, "--seq-len", 4096, "--micro-batch", 1,
                      "--global-batch", campaign.gpus, *by_expert, "--data", text(), "--steps", campaign.steps,
                      "--gemm-search", "on", "--deadline", 60, "--output", "jsonl"), out=lines, log=folder / "log")
    if done.code == 0 and not campaign.launcher.dry_run:
        printed = read_lines(lines)
        step = statistics.median(one["step_ns"] / 1e6 for one in steps_of(printed)[campaign.skip:])
        memory = (result_of(printed) or {})["memory"]
        (folder / "result.json").write_text(json.dumps({
            "step_ms": round(step, 2), "tokens_per_s": round(4096 * campaign.gpus / step * 1000, 1),
            "allocated_gib": round(memory["allocated_bytes"] / GIB, 2)}) + "\n")
    return done


def moe_torch(campaign: Campaign, ep: int, model: pathlib.Path, folder: pathlib.Path) -> Ended:
    """PyTorch."""
    return campaign.launcher.run(
        own_command("pytorch", "moe-speed", "--model", model, "--layers", 4, "--seq", 4096, "--ep", ep, "--gpus", campaign.gpus,
                    "--steps", campaign.steps, "--timed", campaign.steps - campaign.skip, "--data", text(), "--output", "json"),
        out=folder / "result.json", log=folder / "log")


def experts_speed(campaign: Campaign) -> None:
    """four layers of Qwen3-30B-A3B, experts gathered and sharded by expert: mfsdp-exec and PyTorch"""
    if campaign.gpus < 2:
        raise Skipped("needs two GPUs")
    wrong, model = Wrong(), layered_model(campaign, MOE, 4)
    for ep in (1, campaign.gpus):
        for engine, how in (("ours", moe_ours), ("torch", moe_torch)):
            if engine == "torch" and not campaign.has_torch:
                continue
            folder, title = campaign.out / "experts_speed" / f"{engine}_ep{ep}", f"{engine}, ep {ep}"
            with wrong.collect(title):
                if campaign.is_open(folder):
                    campaign.room_for(150)
                    if not campaign.close(folder, how(campaign, ep, model, folder)):
                        raise Failed((folder / "failed").read_text().strip())
                print(f"{title}: {read_json(folder / 'result.json')}", flush=True)
    wrong.end()


# ---- checks and kills ---------------------------------------------------------------------------

# Seconds: what each stage took on two H200, and half as much again.
CHECKS = {"C": 360, "D": 280, "G": 110}


def checks(campaign: Campaign) -> None:
    """stages C, D and G of `check`"""
    if campaign.gpus < 2:
        raise Skipped("needs two GPUs")
    wrong, out = Wrong(), campaign.out / "check"
    place = [] if campaign.tools.folder is None else ["--bin", campaign.tools.folder.absolute()]
    for stage, takes in CHECKS.items():
        passed, failed = out / f"{stage}.passed", out / f"{stage}.failed"
        if passed.exists():
            print(f"stage {stage} passed before")
            continue
        with wrong.collect(f"stage {stage}"):
            if failed.exists() and not campaign.again:
                raise Failed("failed before")
            campaign.room_for(takes)
            failed.unlink(missing_ok=True)
            done = campaign.launcher.run(own_command("check", *place, "--out", out, "--stage", stage), show=True)
            if done.code != 0:
                failed.touch()
            if not passed.exists() and not campaign.launcher.dry_run:  # nor is a stage that was skipped
                raise Failed("did not pass")
    wrong.end()


def kills(campaign: Campaign) -> None:
    """a rank killed in three phases, on all GPUs, without and with registered memory"""
    # A wait for memory in a stream cannot be aborted as a kernel can.
    if campaign.gpus < 2:
        raise Skipped("needs two GPUs")
    wrong = Wrong()
    for name, options in (("plain", ""), ("windows", BY_SYMMETRIC)):
        flags = options.split()
        folder = campaign.out / "kills" / name
        with wrong.collect(f"kills, {name}"):
            if not campaign.is_open(folder):
                continue
            campaign.room_for(150)
            print(f"-- {campaign.gpus} ranks {options}", flush=True)
            log = folder / "log"
            done = campaign.launcher.run(
                own_command("kills", "phases", "--only", "forward,a reduce-scatter,optimizer", "--out", folder, "--",
                            *campaign.exec("--no-save", "--deadline", 5, "--model", "llama_tiny", "--data", text(), *flags)),
                out=log, log=log)
            if not campaign.launcher.dry_run:
                print(log.read_text(), end="")
            if not campaign.close(folder, done):
                raise Failed("see above")
    wrong.end()


STAGES = {"predict": predictions, "speed": speed, "classes": classes, "checks": checks, "kills": kills, "experts": experts,
          "experts_speed": experts_speed, "verify": verify}

