#!/usr/bin/env python3
"""Follows docs/guide/train.md, "From chats to a model in transformers", to its end.

    new_user.py --tools DIR[:DIR...] [--device cuda]

Does what a new user would, from that page alone, in a temporary folder: its files are written, its
commands run (what they print has to be what stands there), its Python loads the export. Then both
sides compute the loss of one sequence in fp32. Needs torch, transformers and safetensors.
Exit status 1: a command prints something else, or the losses differ by more than 1e-3.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide" / "train.md"
SECTION = "## From chats to a model in `transformers`"
TOKENS = [(7 * i * i + 3 * i) % 2560 for i in range(64)]


def blocks_of(page):
    """(language, file, lines) of each fenced block of the section."""
    section = page.read_text().split(SECTION, 1)[1].split("\n## ", 1)[0]
    for fence in re.finditer(r"^```(\w*) ?(\S*)\n(.*?)^```$", section, re.M | re.S):
        yield fence[1], fence[2], fence[3].splitlines()


def run(command, folder, tools):
    path = f"{tools}:{os.environ['PATH']}"
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"})
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}exit {done.returncode}")
    return done.stdout.splitlines()


def follow(folder, tools):
    """What the page says; returns its Python."""
    code = []
    for language, file, lines in blocks_of(PAGE):
        if file:
            (folder / file).write_text("\n".join(lines) + "\n")
        elif language == "python":
            code += lines
        elif lines[0].startswith("$ "):
            commands = [i for i, line in enumerate(lines) if line.startswith("$ ")]
            for begin, end in zip(commands, commands[1:] + [len(lines)]):
                printed = run(lines[begin][2:], folder, tools)
                print(lines[begin], *printed, sep="\n", flush=True)
                if printed != lines[begin + 1:end]:
                    sys.exit("expected:\n" + "\n".join(lines[begin + 1:end]))
    return "\n".join(code)


def loss_of_mfsdp(folder, tools):
    (folder / "tokens.jsonl").write_text(json.dumps({"input_ids": TOKENS}) + "\n")
    lines = run("mfsdp-exec --backend cpu --model hf --init-from hf --data tokens.jsonl "
                "--param-dtype fp32 --world-size 1 --seq-len 64 --steps 1 --lr 0 --no-save "
                "--output jsonl", folder, tools)
    steps = [json.loads(line) for line in lines if '"event":"step"' in line]
    return steps[0]["loss"]


def loss_of_transformers(code, folder, device):
    import torch
    os.chdir(folder)
    names = {}
    exec(code, names)  # the page's own lines make `model`
    tokens = torch.tensor([TOKENS], device=device)
    model = names["model"].to(device, torch.float32).eval()
    with torch.no_grad():
        logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", required=True, help="folders of mfsdp-sim and mfsdp-exec")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    tools = ":".join(os.path.abspath(tool) for tool in arguments.tools.split(":"))
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        code = follow(folder, tools)
        ours = loss_of_mfsdp(folder, tools)
        theirs = loss_of_transformers(code, folder, arguments.device)
        print(f"loss of one sequence: mfsdp {ours:.6f}, transformers {theirs:.6f}")
        os.chdir("/")
    sys.exit(abs(ours - theirs) > 1e-3)


if __name__ == "__main__":
    main()
