"""An export of mfsdp-exec in transformers, and docs/guide/train.md followed to its end."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from gpu_lab.command_line import Flags, tools_of
from gpu_lab.machine import ROOT
from gpu_lab.pytorch.weights import load_model
from gpu_lab.results import parse_lines, steps_of

PAGE = ROOT / "docs" / "train.md"
SECTION = "## From chats to a model in `transformers`"
TOKENS = [(7 * i * i + 3 * i) % 2560 for i in range(64)]


def load_export(flags: Flags) -> None:
    """Loads an export of mfsdp-exec with transformers and prints what it computes, as one JSON object.

        python3 -m gpu_lab load-export DIR --tokens 1,2,3,4 [--dtype float32] [--device cuda]

    Tokens are one sequence; each is the label of the one before it. Printed: the mean loss, the logits' sum, L2 norm and
    SHA-256 (of their bytes as fp32), and the L2 norm of each parameter and of its gradient. The squared norm of a fused
    parameter is the sum of its parts' squared norms. Exit code 1: the model has other weights than the export.
    """
    import torch
    import transformers
    dtype = getattr(torch, flags.dtype) if flags.dtype else "auto"
    model = load_model(flags.folder, dtype, "eager").to(flags.device).train()
    tokens = torch.tensor([[int(token) for token in flags.tokens.split(",")]], device=flags.device)
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), tokens[0, 1:])
    loss.backward()
    norm = lambda tensor: torch.linalg.vector_norm(tensor.detach().double()).item()
    values = logits.detach().float().cpu().contiguous()
    print(json.dumps({
        "torch": torch.__version__, "transformers": transformers.__version__, "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."), "parameters": sum(p.numel() for p in model.parameters()),
        "loss": loss.item(),
        "logits": {"sum": values.double().sum().item(), "norm": norm(values),
                   "sha256": hashlib.sha256(values.numpy().tobytes()).hexdigest()},
        "weight_norms": {name: norm(p) for name, p in model.named_parameters()},
        "gradient_norms": {name: norm(p.grad) for name, p in model.named_parameters()},
    }, indent=2))


# ---- the page -----------------------------------------------------------------------------------


def blocks_of(page: str) -> Iterator[tuple[str, str, list[str]]]:
    """Language, file and lines of each fenced block of the section."""
    section = page.split(SECTION, 1)[1].split("\n## ", 1)[0]
    for fence in re.finditer(r"^```(\w*) ?(\S*)\n(.*?)^```$", section, re.M | re.S):
        yield fence[1], fence[2], fence[3].splitlines()


def _run(command: str, folder: pathlib.Path, path: str) -> list[str]:
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"})
    if done.returncode != 0:
        raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}exit {done.returncode}")
    return done.stdout.splitlines()


def follow(folder: pathlib.Path, path: str) -> str:
    """Writes the page's files and runs its commands; its Python."""
    code: list[str] = []
    for language, file, lines in blocks_of(PAGE.read_text()):
        if file:
            (folder / file).write_text("\n".join(lines) + "\n")
        elif language == "python":
            code += lines
        elif lines[0].startswith("$ "):
            commands = [i for i, line in enumerate(lines) if line.startswith("$ ")]
            for begin, end in zip(commands, [*commands[1:], len(lines)]):
                printed = _run(lines[begin][2:], folder, path)
                print(lines[begin], *printed, sep="\n", flush=True)
                if printed != lines[begin + 1:end]:
                    raise RuntimeError("\n".join(["expected:", *lines[begin + 1:end]]))
    return "\n".join(code)


def loss_of_mfsdp(folder: pathlib.Path, path: str) -> float:
    """The loss of TOKENS."""
    (folder / "tokens.jsonl").write_text(json.dumps({"input_ids": TOKENS}) + "\n")
    lines = _run("mfsdp-exec --backend cpu --model hf --init-from hf --data tokens.jsonl --param-dtype fp32 --world-size 1 "
                 "--seq-len 64 --steps 1 --lr 0 --no-save --output jsonl", folder, path)
    return steps_of(parse_lines(lines))[0]["loss"]


def loss_of_transformers(code: str, device: str) -> float:
    """The same by the page's own lines, which make `model`."""
    import torch
    names: dict[str, Any] = {}
    exec(code, names)
    tokens = torch.tensor([TOKENS], device=device)
    model = names["model"].to(device, torch.float32).eval()
    with torch.no_grad():
        logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).item()


def new_user(flags: Flags) -> int:
    """Follows docs/guide/train.md, "From chats to a model in transformers", to its end, as a new user would.

    In a temporary folder the page's files are written and its commands run: each must print the output on the page. Its
    Python loads the export, and both sides compute the loss of one sequence in fp32. Exit code 1: a command prints other
    output, or the losses differ by more than 1e-3.
    """
    tools = tools_of(flags)
    places = dict.fromkeys(os.path.dirname(tools.find(name)) for name in ("mfsdp-sim", "mfsdp-exec"))
    path = os.pathsep.join([*places, os.environ["PATH"]])
    if flags.dry_run:
        print("\n".join(line[2:] for _, file, lines in blocks_of(PAGE.read_text()) for line in lines
                        if not file and line.startswith("$ ")))
        return 0
    back = os.getcwd()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        code = follow(folder, path)
        ours = loss_of_mfsdp(folder, path)
        os.chdir(folder)
        try:
            theirs = loss_of_transformers(code, flags.device)
        finally:
            os.chdir(back)
    print(f"loss of one sequence: mfsdp {ours:.6f}, transformers {theirs:.6f}")
    return 1 if abs(ours - theirs) > 1e-3 else 0
