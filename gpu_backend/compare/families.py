#!/usr/bin/env python3
"""Compares logits of tiny random models of transformers with those of mfsdp-exec.

    families.py --exec build/release/gpu_backend/mfsdp-exec [--backend cpu|cuda] [--only NAME,...]

For each family transformers makes a model of random weights in fp32 and saves it as safetensors.
mfsdp-exec begins with that folder (--init-from), evaluates one sequence (--logits) and writes an
export, which transformers loads again. Compared with transformers' own logits, in fp32 and by eager
attention: those of mfsdp-exec, and those of its export. Printed is the largest difference of each,
one line a family. Exit status 1: one is above --tolerance, or a run failed.

Needs torch, transformers, safetensors and numpy. A family is a row of FAMILIES: its class of
configurations and what differs from COMMON. Sequences are longer than windows.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy

from hf_model import load_model
from run_files import write_tokens

SEQUENCE = 48
COMMON = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "initializer_range": 0.2, "tie_word_embeddings": False,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}
SLIDING = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0],
            "long_factor": [1.5, 2.0, 3.0, 4.0, 6.5, 9.0, 14.0, 20.0]}
GEMMA = {"hidden_size": 96, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh",
         "tie_word_embeddings": True}
LATENT = {"rms_norm_eps": 1e-6, "num_key_value_heads": 4, "kv_lora_rank": 24,
          "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
          "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
          "moe_intermediate_size": 40, "first_k_dense_replace": 1}
FAMILIES = {
    "deepseek_v2": ("DeepseekV2Config", {
        **LATENT, "q_lora_rank": 40, "topk_method": "group_limited_greedy", "n_group": 4,
        "topk_group": 2, "routed_scaling_factor": 1.5}),
    "deepseek_v2_lite": ("DeepseekV2Config", {
        **LATENT, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.0}),
    "deepseek_v3": ("DeepseekV3Config", {
        **LATENT, "q_lora_rank": 40, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 32}}),
    "gemma": ("GemmaConfig", GEMMA),
    "gemma2": ("Gemma2Config", {**GEMMA, "sliding_window": 16, "query_pre_attn_scalar": 20,
                                "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "sliding_window": 16, "query_pre_attn_scalar": 24,
                                    "layer_types": SLIDING, "rope_theta": 1e6,
                                    "rope_local_base_freq": 1e4}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 128,
                            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
                            "num_key_value_heads": 4,
                            "tie_word_embeddings": True}),
    # Wide weights, so that gates and ups go beyond the limit, which is 7 in the class whatever
    # swiglu_limit says.
    "gpt_oss": ("GptOssConfig", {
        "initializer_range": 0.3, "num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 16, "sliding_window": 16,
        "layer_types": list(reversed(SLIDING)), "rope_theta": 150000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 32, "truncate": False}}),
    "llama": ("LlamaConfig", {}),
    "llama_linear": ("LlamaConfig", {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                  "sliding_window": None}),
    "olmoe": ("OlmoeConfig", {"num_experts": 6, "num_experts_per_tok": 3,
                              "norm_topk_prob": False}),
    "qwen2_moe": ("Qwen2MoeConfig", {"num_experts": 6, "num_experts_per_tok": 2,
                                     "moe_intermediate_size": 40, "mlp_only_layers": [1],
                                     "shared_expert_intermediate_size": 48,
                                     "norm_topk_prob": False, "use_sliding_window": False}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 8, "num_experts_per_tok": 3, "head_dim": 16,
                                     "moe_intermediate_size": 40, "norm_topk_prob": True,
                                     "decoder_sparse_step": 1, "mlp_only_layers": [0],
                                     "use_sliding_window": False}),
    "olmo2": ("Olmo2Config", {"rope_theta": 5e5}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": False}),
    "qwen2_window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 12,
                                     "max_window_layers": 1, "layer_types": SLIDING}),
    "qwen2_yarn": ("Qwen2Config", {"use_sliding_window": False, "rope_theta": 1e6, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    "qwen3": ("Qwen3Config", {"use_sliding_window": False, "head_dim": 16}),
    "qwen3_window": ("Qwen3Config", {"use_sliding_window": True, "sliding_window": 20, "head_dim": 16,
                                     "max_window_layers": 2}),
    "phi3": ("Phi3Config", {"sliding_window": 11, "original_max_position_embeddings": 128}),
    "phi3_partial": ("Phi3Config", {"partial_rotary_factor": 0.5,
                                    "original_max_position_embeddings": 128}),
    "phi3_short": ("Phi3Config", {"rope_scaling": LONGROPE,
                                  "original_max_position_embeddings": 64}),
    "phi3_long": ("Phi3Config", {"rope_scaling": LONGROPE,
                                 "original_max_position_embeddings": 32}),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exec", required=True, dest="tool", help="mfsdp-exec")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default=",".join(FAMILIES), help="names, separated by commas")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    return parser.parse_args()


def make_model(name, folder):
    """Random weights; norms, biases and what routers add to choose by too, which a fresh model has at 1 and 0."""
    import torch
    import transformers

    config_class, fields = FAMILIES[name]
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**{**COMMON, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.dim() == 1 or key.endswith("bias"):  # experts' biases have two dimensions
                value.add_(0.2 * torch.randn_like(value))
    model.save_pretrained(folder)
    return model.eval()


def logits_of(model, ids):
    import torch

    with torch.no_grad():
        return model(ids[None], use_cache=False).logits[0].float()


def run_ours(arguments, model, work, tokens):
    """Logits of mfsdp-exec, and the folder of its export."""
    from safetensors.torch import load_file

    export, logits = work / "export", work / "logits.safetensors"
    command = [arguments.tool, "--backend", arguments.backend, "--world-size", "1", "--no-save",
               "--model", model / "config.json", "--init-from", model, "--data", tokens,
               "--eval-data", tokens, "--eval-every", "1", "--eval-batches", "1", "--steps", "1",
               "--lr", "0", "--min-lr", "0", "--warmup", "0", "--param-dtype", "fp32",
               "--seq-len", str(SEQUENCE), "--logits-chunk", str(SEQUENCE), "--logits", logits,
               "--export", export]
    if arguments.backend == "cuda":
        command[3:5] = ["--nproc", "1"]
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode != 0:
        raise RuntimeError((ran.stderr or ran.stdout).strip().splitlines()[-1])
    return load_file(logits)["logits"].float(), export


def compare(arguments, name, work):
    import torch

    reference = make_model(name, work / "model")
    stream = numpy.random.default_rng(2).integers(0, COMMON["vocab_size"], SEQUENCE + 1)
    tokens = work / "tokens.bin"
    write_tokens(str(tokens), stream)
    wanted = logits_of(reference, torch.from_numpy(stream[:SEQUENCE].astype(numpy.int64)))
    ours, export = run_ours(arguments, work / "model", work, tokens)
    again = load_model(export, torch.float32, "eager").eval()
    returned = logits_of(again, torch.from_numpy(stream[:SEQUENCE].astype(numpy.int64)))
    return [(other - wanted).abs().max().item() for other in (ours, returned)]


def main():
    arguments = parse_arguments()
    unknown = set(arguments.only.split(",")) - set(FAMILIES)
    if unknown:
        sys.exit(f"families.py: --only: expected names of {', '.join(FAMILIES)}, got {unknown.pop()}")
    failed = False
    print(f"{'family':14} {'mfsdp-exec':>12} {'its export':>12}")
    for name in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            try:
                differences = compare(arguments, name, pathlib.Path(folder))
            except (Exception, SystemExit) as error:  # one family that fails does not hide the others
                print(f"{name:14} FAILED: {error}")
                failed = True
                continue
        wrong = max(differences) > arguments.tolerance
        failed = failed or wrong
        print(f"{name:14} {differences[0]:12.2e} {differences[1]:12.2e}{'  WRONG' if wrong else ''}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
