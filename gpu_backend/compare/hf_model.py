"""Exports of mfsdp-exec as models of transformers."""

import pathlib
import sys


def load_model(folder, dtype, attention):
    """`dtype` of weights and computation, or "auto": the export's. Ends the program where the model
    has not exactly the export's weights, which transformers itself would only warn about."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    exported = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        exported.update(load_file(file))
    parameters = dict(model.named_parameters())
    wrong = sorted(exported.keys() ^ parameters.keys())
    wrong += [name for name in exported.keys() & parameters.keys()
              if not torch.equal(parameters[name].detach().cpu(),
                                 exported[name].to(parameters[name].dtype))]
    if wrong:
        sys.exit(f"{folder}: transformers {type(model).__name__} has other weights: {wrong[:8]}")
    return model
