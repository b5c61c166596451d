#!/usr/bin/env python3
"""Loads an export of mfsdp-exec with transformers and prints what it computes, as one JSON object.

    load_export.py DIR --tokens 1,2,3,4 [--dtype float32] [--device cuda]

Needs torch, transformers and safetensors. Exit status 1: the model has other weights than the
export.

Tokens are one sequence; each is the label of the one before it. Printed: the mean loss, the logits'
sum, L2 norm and SHA-256 (of their bytes as fp32), and the L2 norm of each parameter and of its
gradient. A fused parameter's norm squared is the sum of its parts' norms squared.
"""

import argparse
import hashlib
import json

from hf_model import load_model


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--tokens", required=True, help="ids, separated by commas")
    parser.add_argument("--dtype", default=None, choices=["bfloat16", "float16", "float32", "float64"],
                        help="of the computation; default: that of the export")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    import torch
    import transformers

    dtype = getattr(torch, arguments.dtype) if arguments.dtype else "auto"
    model = load_model(arguments.folder, dtype, "eager").to(arguments.device).train()
    tokens = torch.tensor([[int(token) for token in arguments.tokens.split(",")]],
                          device=arguments.device)
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1].float(), tokens[0, 1:])
    loss.backward()

    def norm(tensor):
        return torch.linalg.vector_norm(tensor.detach().double()).item()

    values = logits.detach().float().cpu().contiguous()
    print(json.dumps({
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": loss.item(),
        "logits": {
            "sum": values.double().sum().item(),
            "norm": norm(values),
            "sha256": hashlib.sha256(values.numpy().tobytes()).hexdigest(),
        },
        "weight_norms": {name: norm(p) for name, p in model.named_parameters()},
        "gradient_norms": {name: norm(p.grad) for name, p in model.named_parameters()},
    }, indent=2))


if __name__ == "__main__":
    main()
