#!/usr/bin/env python3
"""Compares adapters (LoRA) of mfsdp-exec with those of PEFT.

    lora.py --exec build/release/gpu_backend/mfsdp-exec [--backend cpu|cuda] [--only NAME,...]

For each case transformers makes a small model of random weights in fp32, PEFT wraps it with random
adapters, and both are saved. mfsdp-exec begins with the two folders and is compared with PEFT, in
fp32: logits; one step's gradient of every adapter, as what a step of SGD of rate 1 changes; the
adapters that it writes, loaded by PEFT; and the model that it writes with adapters merged, loaded by
transformers. Printed is the largest difference of each (of gradients: as a part of the gradient's
norm), one line a case. Exit status 1: one is above --tolerance, or a run failed.

Needs torch, transformers, peft, safetensors and numpy.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy

from families import COMMON, SEQUENCE, FAMILIES, logits_of, make_model
from hf_model import load_model
from run_files import write_tokens

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {  # family, rank, alpha, targets (none: PEFT's own for it)
    "default": ("llama", 8, 8, None),
    "all": ("llama", 16, 32, ALL),
    "odd": ("llama", 3, 4, ["q_proj", "v_proj", "up_proj"]),
    "qwen2": ("qwen2", 8, 16, ALL),
    "gemma2": ("gemma2", 8, 8, ALL),
    "phi3": ("phi3", 8, 16, ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exec", required=True, dest="tool", help="mfsdp-exec")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default=",".join(CASES), help="names, separated by commas")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    return parser.parse_args()


def make_adapters(case, work):
    """PEFT's model around one of random weights, saved apart."""
    import torch
    from peft import LoraConfig, get_peft_model

    family, rank, alpha, targets = CASES[case]
    model = make_model(family, work / "model")
    torch.manual_seed(2)
    wrapped = get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets,
                                               lora_dropout=0.0, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    wrapped.save_pretrained(work / "adapters")
    return wrapped


def run_ours(arguments, case, work, rate):
    """A step of SGD of that rate; folders of what it writes, and the logits' file."""
    _, rank, alpha, targets = CASES[case]
    out = work / f"rate{rate}"
    command = [arguments.tool, "--backend", arguments.backend, "--world-size", "1", "--no-save",
               "--model", work / "model" / "config.json", "--init-from", work / "model",
               "--init-adapters", work / "adapters", "--data", work / "tokens.bin",
               "--eval-data", work / "tokens.bin", "--eval-every", "1", "--eval-batches", "1",
               "--steps", "1", "--lr", str(rate), "--min-lr", str(rate), "--warmup", "0",
               "--optimizer", "sgd", "--clip", "0", "--weight-decay", "0",
               "--param-dtype", "fp32", "--seq-len", str(SEQUENCE), "--logits-chunk", str(SEQUENCE),
               "--lora-rank", str(rank), "--lora-alpha", str(alpha),
               "--logits", work / f"logits{rate}.safetensors", "--export", out / "merged",
               "--export-adapters", out / "adapters"]
    if targets:
        command += ["--lora-targets", ",".join(targets)]
    if arguments.backend == "cuda":
        command[3:5] = ["--nproc", "1"]
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError((ran.stderr or ran.stdout).strip().splitlines()[-1])
    return out, work / f"logits{rate}.safetensors"


def gradients_of(wrapped, stream):
    """By the names of PEFT's files."""
    import torch

    ids = torch.from_numpy(stream[:SEQUENCE].astype(numpy.int64))
    labels = torch.from_numpy(stream[1:].astype(numpy.int64))
    wrapped.zero_grad()
    loss = torch.nn.functional.cross_entropy(wrapped(ids[None], use_cache=False).logits[0], labels)
    loss.backward()
    return {name.replace(".default", ""): parameter.grad
            for name, parameter in wrapped.named_parameters() if parameter.grad is not None}


def compare(arguments, case, work):
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file

    wrapped = make_adapters(case, work)
    stream = numpy.random.default_rng(2).integers(0, COMMON["vocab_size"], SEQUENCE + 1)
    write_tokens(str(work / "tokens.bin"), stream)
    ids = torch.from_numpy(stream[:SEQUENCE].astype(numpy.int64))
    wanted = logits_of(wrapped, ids)
    still, logits = run_ours(arguments, case, work, 0)
    moved, _ = run_ours(arguments, case, work, 1)
    ours = load_file(logits)["logits"].float()
    merged = logits_of(load_model(still / "merged", torch.float32, "eager").eval(), ids)
    base = load_model(work / "model", torch.float32, "eager").eval()
    returned = logits_of(PeftModel.from_pretrained(base, still / "adapters").eval(), ids)
    before = load_file(still / "adapters" / "adapter_model.safetensors")
    after = load_file(moved / "adapters" / "adapter_model.safetensors")
    gradients = gradients_of(wrapped, stream)
    if gradients.keys() != before.keys():
        raise RuntimeError(f"other adapters: {sorted(gradients.keys() ^ before.keys())[:4]}")
    worst = max(((before[name] - after[name] - gradient).norm() / gradient.norm()).item()
                for name, gradient in gradients.items())
    far = [(other - wanted).abs().max().item() for other in (ours, returned, merged)]
    return [far[0], worst, far[1], far[2]]


def main():
    arguments = parse_arguments()
    unknown = set(arguments.only.split(",")) - set(CASES)
    if unknown:
        sys.exit(f"lora.py: --only: expected names of {', '.join(CASES)}, got {unknown.pop()}")
    assert all(family in FAMILIES for family, *_ in CASES.values())
    failed = False
    print(f"{'case':10} {'logits':>10} {'gradient':>10} {'adapters':>10} {'merged':>10}")
    for case in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            try:
                differences = compare(arguments, case, pathlib.Path(folder))
            except Exception as error:  # one case that fails does not hide the others
                print(f"{case:10} FAILED: {error}")
                failed = True
                continue
        wrong = max(differences) > arguments.tolerance
        failed = failed or wrong
        print(f"{case:10} " + " ".join(f"{d:10.2e}" for d in differences)
              + ("  WRONG" if wrong else ""), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
