"""Models that FSDP2 trains here: the plain Llama of `llama.py`, the classes of transformers, and torchtitan's Llama."""

import argparse
import collections
import functools
import json
import pathlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_lab.engines.llama import llama_classes, reset

Options = argparse.Namespace  # flags of `engines train`
SAVED = ("mm", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_cudnn_attention", "max")  # by torchtitan's recomputation by operator


@dataclass
class ModelCode:
    """A model on the meta device, and what engines have to know of its code."""

    model: Any
    blocks: Any  # a container of modules: its blocks
    embedding: Any
    last: list[Any]  # final norm and head
    reset: Callable[[Any], None]  # gives values to a model that is on its device
    forward: Callable[..., Any]  # the mean loss of tokens and labels [batch, sequence], and RoPE's cosines and sines


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean of fp32 cross entropy."""
    import torch
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def _loss_function(options: Options) -> Any:
    import torch
    return torch.compile(cross_entropy) if options.compile_loss else cross_entropy


def small_numbers(model: Any) -> None:
    """Matrices of small random numbers, vectors of ones."""
    import torch
    for parameter in model.parameters():
        if parameter.ndim < 2:
            torch.nn.init.ones_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=0.02)


def fused_code(options: Options, config: dict[str, Any]) -> ModelCode:
    """The plain Llama, with one GEMM for query, key and value."""
    import torch
    with torch.device("meta"):
        model = llama_classes(options.fuse, options.untied).Llama(config)
    return ModelCode(model, model.layers, model.embedding, [model.norm, model.head], lambda _: reset(model), model)


def transformers_code(options: Options, config: dict[str, Any]) -> ModelCode:
    """The classes of transformers, with scaled_dot_product_attention."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "config.json"
        file.write_text(json.dumps(config))
        known = AutoConfig.from_pretrained(file)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(known, dtype=torch.float32, attn_implementation="sdpa")
    body, criterion = model.base_model, _loss_function(options)

    def give_values(device: Any) -> None:
        # Its angles and scales are no parameters, and meta tensors have no values: they are made anew.
        body.rotary_emb = type(body.rotary_emb)(config=known).to(device)
        for module in model.modules():
            if hasattr(module, "embed_scale"):
                module.embed_scale = torch.tensor(known.hidden_size**0.5, device=device)
        small_numbers(model)

    def forward(tokens: Any, labels: Any, *_: Any) -> Any:
        return criterion(model(tokens, use_cache=False).logits, labels)

    return ModelCode(model, body.layers, body.embed_tokens, [body.norm, model.lm_head], give_values, forward)


def torchtitan_code(options: Options, config: dict[str, Any]) -> ModelCode:
    """torchtitan's Llama (0.2.1), whose sources are on PYTHONPATH."""
    import torch
    from torchtitan.models.llama3.model.args import TransformerModelArgs
    from torchtitan.models.llama3.model.model import Transformer
    wide = config["intermediate_size"]  # the next multiple of itself
    known = TransformerModelArgs(
        dim=config["hidden_size"], n_layers=config["num_hidden_layers"], n_heads=config["num_attention_heads"],
        n_kv_heads=config.get("num_key_value_heads"), vocab_size=config["vocab_size"], multiple_of=wide,
        ffn_dim_multiplier=1e-3, norm_eps=config["rms_norm_eps"], rope_theta=config.get("rope_theta", 10000.0),
        max_seq_len=options.sequence)
    with torch.device("meta"):
        model = Transformer(known)
    criterion = _loss_function(options)

    def give_values(device: Any) -> None:
        with torch.device(device):
            model.freqs_cis = model._precompute_freqs_cis()
        small_numbers(model)

    def forward(tokens: Any, labels: Any, *_: Any) -> Any:
        return criterion(model(tokens), labels)

    return ModelCode(model, model.layers, model.tok_embeddings, [model.norm, model.output], give_values, forward)


CODES = {"fused": fused_code, "transformers": transformers_code, "torchtitan": torchtitan_code}


def keep_by_operator() -> Any:
    """torchtitan's default recomputation: keeps attention and every second GEMM of a block."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    saved = {getattr(torch.ops.aten, name).default for name in SAVED}
    gemms: collections.Counter[bool] = collections.Counter()

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> Any:
        is_gemm = operator == torch.ops.aten.mm.default
        if is_gemm:
            gemms[context.is_recompute] += 1
        keeps = operator in saved and not (is_gemm and gemms[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def prepare(blocks: Any, options: Options) -> None:
    """Wraps blocks before an engine shards them."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    wrap = functools.partial(checkpoint_wrapper, context_fn=keep_by_operator) if options.selective_ac else checkpoint_wrapper
    for name, block in list(blocks.named_children()):
        if options.recompute or options.selective_ac:
            block = wrap(block)
            blocks.register_module(name, block)
        if options.compile:
            block.compile()
