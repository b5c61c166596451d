#!/usr/bin/env python3
"""Compares gradients and logits of one step of mfsdp-exec with those of PyTorch.

    gradients.py --make-tokens FILE --vocab N --sequence N
    gradients.py --export DIR --state DIR --logits FILE --tokens FILE [--device cuda]

The first form writes a file of random tokens that is one sample. The step to be compared is one on
that file with --lr 0 --beta1 0 --clip 0: it leaves the weights as they were, for the export, and the
gradient as the first moment, for the save.

Both mfsdp-exec and PyTorch in bf16 are compared with PyTorch in fp64 (of which transformers computes
norms, softmax and angles in fp32), all with the same bf16 weights. For each parameter and for the
logits, the error is |x - reference| / |reference| in L2 norms. Exit status 1: an error of
mfsdp-exec is above 1.25 times that of PyTorch in bf16 plus 1e-4.
"""

import argparse
import json
import sys

import numpy

from hf_model import load_model
from run_files import parts_of, read_sample, read_state, read_tokens, write_tokens

FACTOR = 1.25
SLACK = 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-tokens", metavar="FILE")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--export", help="weights, from --export")
    parser.add_argument("--state", help="gradients: the folder of a save, from --save")
    parser.add_argument("--logits", help="from --logits")
    parser.add_argument("--tokens", help="file that --make-tokens wrote")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def run(folder, dtype, attention, ids, labels, device):
    """Logits, loss, and gradients by name, on the device."""
    import torch

    model = load_model(folder, dtype, attention).to(device).train()
    logits = model(ids.to(device)[None], use_cache=False).logits[0]
    wide = logits if dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(wide, labels.to(device))
    loss.backward()
    return logits.detach(), loss.item(), {name: p.grad for name, p in model.named_parameters()}


def error_of(value, reference):
    import torch

    difference = torch.linalg.vector_norm(value.to(reference.device).double() - reference)
    return (difference / torch.linalg.vector_norm(reference)).item()


def joined(gradients, parameter):
    import torch

    return torch.cat([gradients[part].reshape(-1) for part in parts_of(parameter)])


def main():
    arguments = parse_arguments()
    if arguments.make_tokens:
        generator = numpy.random.default_rng(1)
        write_tokens(arguments.make_tokens,
                     generator.integers(0, arguments.vocab, arguments.sequence + 1))
        return
    import torch
    import transformers
    from safetensors.torch import load_file

    stream = read_tokens(arguments.tokens)
    ids, labels = map(torch.from_numpy, read_sample(stream, len(stream) - 1, 0))
    run_on = lambda dtype, attention: run(arguments.export, dtype, attention, ids, labels,
                                          arguments.device)
    wanted, wanted_loss, reference = run_on(torch.float64, "eager")
    bf16_logits, bf16_loss, bf16 = run_on(torch.bfloat16, "sdpa")
    ours = read_state(arguments.state, "first_moment")
    covered = {part for parameter in ours for part in parts_of(parameter)}
    if covered != reference.keys():
        sys.exit(f"{arguments.state}: other parameters than {arguments.export}: "
                 f"{sorted(covered ^ reference.keys())[:8]}")

    rows = [("logits", error_of(load_file(arguments.logits)["logits"], wanted),
             error_of(bf16_logits, wanted))]
    for parameter, gradient in ours.items():
        value = joined(reference, parameter)
        rows.append((parameter, error_of(torch.from_numpy(gradient), value),
                     error_of(joined(bf16, parameter), value)))
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {len(ids)} tokens, "
          f"loss {wanted_loss:.6f} in fp64, {bf16_loss:.6f} in bf16")
    print(f"{'error relative to fp64':<56} {'mfsdp':>10} {'torch bf16':>10} {'ratio':>6}")
    wrong = 0
    for name, own, theirs in rows:
        good = own <= FACTOR * theirs + SLACK
        wrong += not good
        print(f"{name:<56} {own:10.3e} {theirs:10.3e} {own / theirs:6.3f}{'' if good else '  WRONG'}")
    worst = max(rows, key=lambda row: row[1] / row[2])
    print(json.dumps({"compared": len(rows), "wrong": wrong, "largest_ratio": worst[1] / worst[2],
                      "largest_ratio_of": worst[0]}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
