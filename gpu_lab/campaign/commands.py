"""`campaign run`, `campaign report` and `campaign classes`."""

import functools
import os
import pathlib
from typing import Any

from gpu_lab.campaign.report import judge_layouts, print_report, read_all
from gpu_lab.campaign.rows import ROWS, WAYS
from gpu_lab.campaign.stages import CALL_ENDS, STAGES, Campaign
from gpu_lab.command_line import Flags, add_bin, add_command, add_group, launcher_of, tools_of
from gpu_lab.machine import WrongFlag, describe_gpus, gpu_count, has_module
from gpu_lab.runs import choose
from gpu_lab.stages import Skipped, run_stages

DEFAULT_WAYS = "fp32,fsdp2_fp32,bf16,fsdp2_bf16,copy,symmetric,fp32_copy,fp32_symmetric"


def chosen_card(card: str | None) -> str:
    """The GPU file by which mfsdp-sim predicts."""
    name = next(iter(describe_gpus("name")), "")
    found = card or next((one for one in ("h200", "h100") if one.upper() in name), None)
    if found is None:
        raise WrongFlag("--card: expected h100 or h200, as the driver names neither")
    return found


def claim_folder(out: pathlib.Path, gpus: int, card: str) -> None:
    """A folder has results of one number and kind of GPUs."""
    out.mkdir(parents=True, exist_ok=True)
    machine = out / "machine"
    if machine.exists() and machine.read_text().split() != [str(gpus), card]:
        raise WrongFlag(f"--out: {out} has results of {machine.read_text().strip()}, expected another folder for {gpus} {card}")
    machine.write_text(f"{gpus} {card}\n")
    if described := describe_gpus("name,driver_version,power.limit"):
        (out / "cards").write_text("\n".join(described[:gpus]) + "\n")


def run(flags: Flags) -> int:
    """Measures on all GPUs of one host, 1, 2, 4 or 8, in calls of less than ten minutes.

    Llama-3-8B and others beside their predictions and beside PyTorch FSDP2, every strategy, ranks killed, experts, and
    whether recorded runs followed their plans. Results that are complete in --out are kept: the same call continues where
    the last one ended. A model that is too large for the GPUs, for either engine, is cut to the most layers that fit, and its
    row has their number. Nothing is built. The tables of `campaign report` are printed at the end. In calls of ten minutes:

      campaign run --stage speed,verify --rows s8192      then --rows s4096,s2048, b2, m4
      campaign run --stage classes,experts                then kills, checks
      campaign run --stage predict --gpus 4 --card h200   needs no GPU

    Exit code 0: the stages are done and right; 1: one failed or is not done; 2: a wrong flag.
    """
    names = choose(flags.stage, list(STAGES), "--stage", "stage")
    rows, ways = choose(flags.rows, list(ROWS), "--rows", "row"), choose(flags.ways, list(WAYS), "--ways", "way")
    if flags.steps < 8:
        raise WrongFlag(f"--steps: expected 8 or more, got {flags.steps}")
    tools, there, card = tools_of(flags), gpu_count(), chosen_card(flags.card)
    for tool in ("mfsdp-exec", "mfsdp-sim", "mfsdp-verify"):
        tools.find(tool)
    gpus = flags.gpus or next((count for count in (8, 4, 2) if there >= count), 1)
    if names != ["predict"] and there < gpus and not flags.dry_run:
        raise RuntimeError(f"expected {gpus} GPUs, there are {there}")
    os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    out = flags.out.absolute()
    campaign = Campaign(tools, launcher_of(flags, CALL_ENDS), out, gpus, card, rows, ways, flags.limit, flags.steps,
                        flags.search, flags.again, " ".join(describe_gpus("uuid")[:gpus]),
                        flags.dry_run or has_module("torch", "transformers"))
    stages = {name: functools.partial(stage, campaign) for name, stage in STAGES.items()}
    if flags.dry_run:
        for name in names:
            print(f"== stage {name}: {STAGES[name].__doc__}")
            try:
                stages[name]()
            except Skipped as reason:
                print(f"skipped: {reason}")
        return 0
    claim_folder(out, gpus, card)

    def tables() -> None:
        print_report(read_all(out))
        print()

    return run_stages(stages, names, out, before_table=tables)


def report(flags: Flags) -> int:
    """Prints the tables of a campaign, for a page of measurements: `campaign report FOLDER`.

    Exit code 0: all that was run is right and no goal is missed; 1: not; 2: the folder is none of a campaign.
    """
    if not (flags.folder / "machine").is_file():
        raise WrongFlag(f"{flags.folder}: expected the --out of `campaign run`")
    return 0 if print_report(read_all(flags.folder)) else 1


def classes(flags: Flags) -> int:
    """Checks whether layouts of one class have one result: `campaign classes FOLDER/classes`."""
    lines, wrong = judge_layouts(flags.folder)
    print("\n".join([*lines, *(f"WRONG: {one}" for one in wrong)]))
    return 1 if wrong else 0


def add_to(commands: Any) -> None:
    """Adds the commands."""
    group = add_group(commands, "campaign", "all GPUs of one host: speed, predictions, classes, kills, goals")
    listed = "\n".join(f"      {name:14} {stage.__doc__}" for name, stage in STAGES.items())
    shapes = "\n".join(f"      {name:14} {row.title}" for name, row in ROWS.items())
    doc = (f"{run.__doc__}\n    Stages:\n{listed}\n\n    Rows (Llama-3-8B where no other is named):\n{shapes}\n\n    Ways:\n"
           "      fp32 bf16       the dtype in which gradients are reduced\n"
           "      fp32_copy fp32_symmetric copy symmetric    with faster transports (the last two bf16)\n"
           "      fp32_found found    what mfsdp-sim --find fastest chooses (bf16), strategy and recomputation too\n"
           "      fsdp2_fp32 fsdp2_bf16    PyTorch; fsdp2_kept_...: weights stay gathered until backward (ZeRO-2)")
    parser = add_command(group, "run", run, doc, "a CUDA build's mfsdp-exec, mfsdp-sim, mfsdp-verify; 1 to 8 GPUs; for FSDP2 torch "
                         "2.11 and transformers")
    add_bin(parser)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_many"), help="results (gpu_many)")
    parser.add_argument("--stage", default=",".join(name for name in STAGES if name != "predict"), metavar="STAGE,...")
    parser.add_argument("--rows", default=",".join(ROWS), metavar="ROW,...")
    parser.add_argument("--ways", default=DEFAULT_WAYS, metavar="WAY,...")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="after which no further run begins (300)")
    parser.add_argument("--gpus", type=int, choices=[1, 2, 4, 8], help="of those there are (all; the next power of two below)")
    parser.add_argument("--card", choices=["h100", "h200"], help="by which mfsdp-sim predicts (the driver's name)")
    parser.add_argument("--steps", type=int, default=40, help="of a timed run; the first quarter does not count")
    parser.add_argument("--search", choices=["on", "long"], default="on", help="mfsdp-exec's --gemm-search")
    parser.add_argument("--again", action="store_true", help="runs that failed are made again")
    for name, does in (("report", report), ("classes", classes)):
        parser = add_command(group, name, does, does.__doc__, "no GPU")
        parser.add_argument("folder", type=pathlib.Path)
