"""Exports of mfsdp-exec as models of transformers, and one evaluation by mfsdp-exec of a model of transformers."""

import pathlib
import sys
from typing import Any

from gpu_lab.launch import Launcher


def parts_of(parameter: str) -> list[str]:
    """Names in Hugging Face's checkpoints of the tensors that lie one after the other in a parameter of ours.

    gpu_backend/weights/hf_tensors.hpp has the same rule.
    """
    for fused, parts in (("qkv_proj", ("q_proj", "k_proj", "v_proj")), ("gate_up_proj", ("gate_proj", "up_proj"))):
        if f".{fused}." in parameter:
            return [parameter.replace(fused, part) for part in parts]
    return [parameter]


def load_model(folder: str | pathlib.Path, dtype: Any, attention: str) -> Any:
    """The model of an export. `dtype` of weights and computation, or "auto": the export's.

    Ends the program where the model has other weights than the export, which transformers itself would only warn about.
    transformers joins weights of experts under names of its own: their names and sizes are compared, others' values too.
    """
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


def logits_of(model: Any, ids: Any) -> Any:
    """Logits of one sequence in fp32, [tokens, vocabulary]."""
    import torch
    with torch.no_grad():
        return model(ids[None], use_cache=False).logits[0].float()


def evaluate(launcher: Launcher, tool: str, backend: str, work: pathlib.Path, sequence: int, *more: Any,
             rate: int = 0) -> Any:
    """Logits by mfsdp-exec in fp32 of work/model on work/tokens.bin. It also takes a step at this learning rate."""
    tokens, logits = work / "tokens.bin", work / f"logits{rate}.safetensors"
    place = ["--nproc", 1] if backend == "cuda" else ["--world-size", 1]
    done = launcher.run([tool, "--backend", backend, *place, "--no-save", "--model", work / "model" / "config.json",
                         "--init-from", work / "model", "--data", tokens, "--eval-data", tokens, "--eval-every", 1,
                         "--eval-batches", 1, "--steps", 1, "--lr", rate, "--min-lr", rate, "--warmup", 0,
                         "--param-dtype", "fp32", "--seq-len", sequence, "--logits-chunk", sequence, "--logits", logits,
                         *more])
    if done.code != 0:
        raise RuntimeError(done.last_line())
    from safetensors.torch import load_file
    return load_file(logits)["logits"].float()
