"""Exports of mfsdp-exec as models of transformers."""

import pathlib
import sys


def load_model(folder, dtype, attention):
    """`dtype` of weights and computation, or "auto": the export's. Ends the program where the model has not all of the
    export's weights and none beside, which transformers itself would only warn about. Those of experts it joins under
    names of its own: of them names and sizes are compared, of all others values too."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, output_loading_info=True)
    exported = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        exported.update(load_file(file))
    saved = model.state_dict()
    weights = dict(model.named_parameters())
    weights.update((name, buffer) for name, buffer in model.named_buffers() if name in saved)
    wrong = sorted(str(name) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in loading[kind])
    wrong += [name for name in exported.keys() & weights.keys()
              if not torch.equal(weights[name].detach().cpu(), exported[name].to(weights[name].dtype))]
    if sum(x.numel() for x in exported.values()) != sum(x.numel() for x in weights.values()):
        wrong += sorted(exported.keys() ^ weights.keys())
    if wrong:
        sys.exit(f"{folder}: transformers {type(model).__name__} has other weights: {wrong[:8]}")
    return model
