"""mfsdp-exec on GPUs beside PyTorch and transformers: gradients, training, speed, in stages of less than eight minutes."""

import functools
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_lab.command_line import Flags, launcher_of, tools_of
from gpu_lab.launch import Ended, Launcher, own_command, ranks_command
from gpu_lab.machine import MODELS, WrongFlag, describe_gpus, gpu_count, model_path, text
from gpu_lab.pairing import NORM_STEPS, WINDOW, judge_losses, judge_norms
from gpu_lab.results import Json, parse_lines, read_lines, steps_of
from gpu_lab.runs import choose
from gpu_lab.stages import Failed, NotDone, run_stages

LONGEST = 240.0  # seconds of one run
LATEST = 230.0  # seconds of a stage after which no further run begins
KEEP_WEIGHTS = ("--steps", 1, "--lr", 0, "--min-lr", 0, "--warmup", 0)


@dataclass
class Comparison:
    """One call of `pytorch compare`. `work`: exports and saves, which are removed at the end."""

    tool: str
    launcher: Launcher
    out: pathlib.Path
    work: pathlib.Path
    gpus: int
    steps: int

    def run(self, command: Sequence[Any], what: str, **options: Any) -> Ended:
        """Runs a command that has to end well."""
        done = self.launcher.run(command, seconds=LONGEST, **options)
        if done.code != 0:
            raise Failed(f"{what} ended with {done.code}: {done.last_line()}")
        return done

    def train(self, ranks: int, *words: Any, **options: Any) -> Ended:
        """A training by mfsdp-exec."""
        return self.run([self.tool, "--backend", "cuda", "--nproc", ranks, "--no-save", *words], "mfsdp-exec", **options)

    @property
    def two(self) -> int:
        """GPUs by which the batches of trainings divide."""
        return min(self.gpus, 2)

    # ---- gradients ----

    def gradients(self) -> None:
        """one step of a model of two layers and of Llama-3.2-1B, against fp64"""
        wrong = []
        for model, vocabulary, sequence in ((str(MODELS / "two_layers.json"), 1024, 512), ("llama3_1b", 128256, 1024)):
            try:
                self.compare_gradients(model, vocabulary, sequence)
            except Failed as error:
                wrong.append(f"{model}: {error}")
        if wrong:
            raise Failed("; ".join(wrong))

    def compare_gradients(self, model: str, vocabulary: int, sequence: int) -> None:
        """One step whose gradient stays in the first moment, then both sides' errors."""
        at = self.work / "gradients"
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir()
        print(f"-- gradients of {model}, {sequence} tokens", flush=True)
        tokens, logits = at / "tokens.bin", at / "logits.safetensors"
        self.run(own_command("gradients", "--make-tokens", tokens, "--vocab", vocabulary, "--sequence", sequence), "tokens")
        done = self.train(1, "--model", model, "--seq-len", sequence, "--logits-chunk", sequence, "--data", tokens,
                          *KEEP_WEIGHTS, "--beta1", 0, "--clip", 0, "--eval-data", tokens, "--eval-every", 1,
                          "--eval-batches", 1, "--logits", logits, "--export", at / "export", "--save", at / "saves")
        print("\n".join(line for line in done.out.splitlines() if line.startswith("step:")), flush=True)
        self.run(own_command("gradients", "--device", "cuda", "--export", at / "export", "--state", at / "saves" / "latest",
                             "--logits", logits, "--tokens", tokens), "gradients", show=True)

    # ---- training ----

    def tiny(self) -> None:
        """300 steps (--steps) of llama_tiny against FSDP2 in four orders of summation"""
        self.compare_training("llama_tiny", 512, 8, 4, "3e-4", 30)

    def llama_1b(self) -> None:
        """300 steps of Llama-3.2-1B likewise"""
        # A fresh model of this size jumps in its first steps, where FSDP2's own orders of summation differ by 8 % at 3e-4
        # after 30 steps of warm-up, and by 4 % at 3e-5. So the learning rate rises in all steps.
        self.compare_training("llama3_1b", 1024, 4, 2, "3e-5", 300)

    def is_complete(self, path: pathlib.Path) -> bool:
        """Whether a run need not be made again."""
        return not self.launcher.dry_run and len(steps_of(read_lines(path))) == self.steps

    def compare_training(self, model: str, sequence: int, batch: int, micro_batch: int, rate: str, warmup: int) -> None:
        """Same weights, samples and settings on both sides; what is not named here has mfsdp-exec's default."""
        begin = time.monotonic()
        weights, ours = self.work / model, self.out / f"{model}.ours.jsonl"
        print(f"-- {self.steps} steps of {model}, {batch} x {sequence} tokens each, on {self.two} GPUs", flush=True)
        self.train(1, "--model", model, "--seq-len", sequence, "--data", text(), *KEEP_WEIGHTS, "--export", weights)
        shared = ["--global-batch", batch, "--micro-batch", micro_batch, "--data", text(), "--lr", rate, "--warmup", warmup,
                  "--steps", self.steps, "--init-from", weights]
        if not self.is_complete(ours):
            self.train(self.two, "--model", model, "--seq-len", sequence, *shared, "--output", "jsonl", out=ours)
            print(f"mfsdp-exec: done after {time.monotonic() - begin:.0f} s", flush=True)
        references = [self.out / f"{model}.variant{variant}.jsonl" for variant in range(4)]
        for variant, file in enumerate(references):
            if self.is_complete(file):
                continue
            if time.monotonic() - begin > LATEST:
                raise NotDone
            self.run(ranks_command(self.two, "pytorch", "fsdp2-train", "--sequence", sequence, *shared,
                                      "--variant", variant), f"FSDP2, variant {variant}", out=file)
            print(f"variant {variant}: done after {time.monotonic() - begin:.0f} s", flush=True)
        if not self.launcher.dry_run and not print_bands(ours, references):
            raise Failed("the two do not train alike")

    # ---- speed ----

    def speed(self) -> None:
        """Llama-3-8B (Llama-3.2-1B on one GPU) and FSDP2, compiled and not, on the same GPUs"""
        model, file = "llama3_8b" if self.gpus >= 2 else "llama3_1b", self.out / "speed.ours.jsonl"
        print(f"-- {model}, one sequence of 8192 a GPU, {self.gpus} GPUs", flush=True)
        self.train(self.gpus, "--model", model, "--gpu", "h200", "--seq-len", 8192, "--data", "synthetic", "--steps", 25,
                   "--gemm-search", "on", "--output", "jsonl", out=file)
        if not self.launcher.dry_run:
            rates = [step["tokens_per_second_per_gpu"] for step in steps_of(read_lines(file))][-20:]
            rate = statistics.median(rates)
            print(json.dumps({"mfsdp": True, "step_ms": round(8192e3 / rate, 2), "tokens_per_s_per_gpu": round(rate, 1)}))
        failed = []
        for how in ("--compile", "--compile --reduce bfloat16", ""):
            # One after the other, as each wants the whole power of the GPUs.
            done = self.launcher.run(ranks_command(self.gpus, "pytorch", "fsdp2-speed", "--sequence", 8192,
                                                      "--model", model_path(model), *how.split()),
                                     seconds=LONGEST, log=self.out / "speed.log")
            facts = parse_lines(done.out.splitlines())
            if facts:
                print(json.dumps(facts[-1]), flush=True)
            elif not self.launcher.dry_run:
                failed.append(f"FSDP2 {how}".strip())
        if failed:
            raise Failed(f"{', '.join(failed)} failed: {self.out / 'speed.log'}")


STAGES: dict[str, Callable[[Comparison], None]] = {
    "gradients": Comparison.gradients, "tiny": Comparison.tiny, "1b": Comparison.llama_1b, "speed": Comparison.speed}


def compare(flags: Flags) -> int:
    """Compares mfsdp-exec on GPUs with PyTorch and transformers, in stages of less than eight minutes.

    A run that is complete in --out is not made again, so that a stage which ran out of time goes on when it is called
    again. Exit code 0: all stages passed; 1: one failed or is not done; 2: a wrong flag. Nothing is built.
    """
    names = choose(flags.stage, list(STAGES), "--stage", "stage")
    tool, gpus = tools_of(flags).find("mfsdp-exec"), gpu_count() or (2 if flags.dry_run else 0)
    if gpus < 1:
        raise RuntimeError("expected a GPU, there is none")
    os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    with tempfile.TemporaryDirectory() as work:
        comparison = Comparison(tool, launcher_of(flags), flags.out.absolute(), pathlib.Path(work), gpus, flags.steps)
        stages = {name: functools.partial(stage, comparison) for name, stage in STAGES.items()}
        if flags.dry_run:
            for name in names:
                print(f"== stage {name}: {STAGES[name].__doc__}")
                stages[name]()
            return 0
        described = next(iter(describe_gpus("name,driver_version")), "")
        return run_stages(stages, names, flags.out, before_table=lambda: print(f"{gpus} GPUs: {described}"))


# ---- bands --------------------------------------------------------------------------------------


def training_of(path: pathlib.Path) -> list[Json]:
    """The steps of a file, from step 1 on."""
    steps = steps_of(read_lines(path))
    if not steps or [step["step"] for step in steps] != list(range(1, len(steps) + 1)):
        raise WrongFlag(f"{path}: expected a line for each step from 1 on")
    return steps


def print_bands(ours: pathlib.Path, references: Sequence[pathlib.Path]) -> bool:
    """Whether a run of mfsdp-exec trains as the references do; prints why."""
    runs = [training_of(path) for path in (ours, *references)]
    if len({len(run) for run in runs}) != 1 or len(runs[0]) < NORM_STEPS + WINDOW:
        raise WrongFlag(f"expected runs of one length and at least {NORM_STEPS + WINDOW} steps, got {[len(run) for run in runs]}")
    columns = {name: [[step[name] for step in run] for run in runs] for name in ("loss", "grad_norm")}
    lines, same_norms = judge_norms(columns["grad_norm"][0][:NORM_STEPS], [one[:NORM_STEPS] for one in columns["grad_norm"][1:]])
    more, same_losses = judge_losses(columns["loss"][0], columns["loss"][1:])
    print("\n".join([*lines, *more, "ok" if same_norms and same_losses else "WRONG"]))
    return same_norms and same_losses


def bands(flags: Flags) -> int:
    """Checks whether a run of mfsdp-exec trains as PyTorch does: `pytorch bands OURS REFERENCE REFERENCE REFERENCE...`.

    Files have one JSON line for each step (mfsdp-exec --output jsonl, `pytorch fsdp2-train`). The references sum in different
    orders and so show how far equal computations drift apart. Steps 1 to 20: the gradient norm is within 1 % of the
    references' mean. Later steps: the mean loss of each 20 steps is where one more reference is expected
    (pairing.band_of). The table also has how often the run is between the references' lowest and highest loss, and how
    each reference compares with the others. Exit code 1: one of the two does not hold.
    """
    if len(flags.references) < 3:
        raise WrongFlag("expected three references or more")
    return 0 if print_bands(flags.ours, flags.references) else 1
