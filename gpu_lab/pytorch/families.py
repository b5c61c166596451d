"""Tiny models of transformers, and of PEFT, beside mfsdp-exec: logits, exports, adapters."""

import pathlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_lab.command_line import Flags, launcher_of, tools_of
from gpu_lab.launch import Launcher
from gpu_lab.pytorch.tokens import random_tokens, write_tokens
from gpu_lab.pytorch.weights import evaluate, load_model, logits_of
from gpu_lab.runs import choose

SEQUENCE = 48  # tokens: longer than sliding windows
COMMON: dict[str, Any] = {
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
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
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
    "glm4_moe": ("Glm4MoeConfig", {
        "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "head_dim": 16,
        "moe_intermediate_size": 40, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5,
        "attention_bias": True, "use_qk_norm": True}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_head": 4, "n_layer": 4, "n_positions": 128,
                            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
                            "num_key_value_heads": 4,
                            "tie_word_embeddings": True}),
    "granite": ("GraniteConfig", {"embedding_multiplier": 12.0, "attention_multiplier": 0.125,
                                  "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    # Wide weights, so that gates and ups exceed the limit, which is 7 in the class whatever swiglu_limit is.
    "gpt_oss": ("GptOssConfig", {
        "initializer_range": 0.3, "num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 16, "sliding_window": 16,
        "layer_types": list(reversed(SLIDING)), "rope_theta": 150000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 32, "truncate": False}}),
    "llama": ("LlamaConfig", {}),
    "llama_linear": ("LlamaConfig", {"rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "minimax_m2": ("MiniMaxM2Config", {"num_local_experts": 8, "num_experts_per_tok": 3,
                                       "head_dim": 16, "rotary_dim": 8}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                  "sliding_window": None}),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2, "use_sliding_window": False}),
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
    "olmo3": ("Olmo3Config", {"sliding_window": 16, "layer_types": SLIDING}),
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
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Adapters:
    """A case of LoRA. No targets: PEFT's own for the family."""

    family: str
    rank: int
    alpha: int
    targets: list[str] | None = None


ADAPTERS = {
    "default": Adapters("llama", 8, 8),
    "all": Adapters("llama", 16, 32, ALL),
    "odd": Adapters("llama", 3, 4, ["q_proj", "v_proj", "up_proj"]),
    "qwen2": Adapters("qwen2", 8, 16, ALL),
    "gemma2": Adapters("gemma2", 8, 8, ALL),
    "phi3": Adapters("phi3", 8, 16, ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
}


@dataclass(frozen=True)
class Side:
    """mfsdp-exec, and where a case has its files."""

    launcher: Launcher
    tool: str
    backend: str
    work: pathlib.Path

    def logits(self, *more: Any, rate: int = 0) -> Any:
        """Its logits of the case's model and tokens."""
        return evaluate(self.launcher, self.tool, self.backend, self.work, SEQUENCE, *more, rate=rate)


def make_model(name: str, folder: pathlib.Path) -> Any:
    """Random weights. Norms, biases and routers' corrections differ from the 1 and 0 that a fresh model has."""
    import torch
    import transformers
    config_class, fields = FAMILIES[name]
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**{**COMMON, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.dim() == 1 or key.endswith("bias"):  # biases of experts have two dimensions
                value.add_(0.2 * torch.randn_like(value))
    model.save_pretrained(folder)
    return model.eval()


def make_tokens(work: pathlib.Path) -> tuple[Any, Any]:
    """Tokens and labels of one sequence, which the file tokens.bin has."""
    import torch
    stream = random_tokens(2, COMMON["vocab_size"], SEQUENCE + 1)
    write_tokens(work / "tokens.bin", stream)
    return torch.tensor(stream[:SEQUENCE]), torch.tensor(stream[1:])


def farthest(a: Any, b: Any) -> float:
    """The largest difference."""
    return (a - b).abs().max().item()


def compare_family(name: str, side: Side) -> list[float]:
    """Largest differences of logits: of mfsdp-exec, and of its export in transformers."""
    import torch
    reference = make_model(name, side.work / "model")
    ids, _ = make_tokens(side.work)
    wanted, ours = logits_of(reference, ids), side.logits("--export", side.work / "export")
    again = load_model(side.work / "export", torch.float32, "eager").eval()
    return [farthest(ours, wanted), farthest(logits_of(again, ids), wanted)]


def make_adapters(case: Adapters, work: pathlib.Path) -> Any:
    """PEFT's model around one of random weights, both saved."""
    import torch
    from peft import LoraConfig, get_peft_model
    model = make_model(case.family, work / "model")
    torch.manual_seed(2)
    wrapped = get_peft_model(model, LoraConfig(r=case.rank, lora_alpha=case.alpha, target_modules=case.targets,
                                               lora_dropout=0.0, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    wrapped.save_pretrained(work / "adapters")
    return wrapped


def step_of_sgd(case: Adapters, side: Side, rate: int) -> tuple[Any, pathlib.Path]:
    """Logits, and the folder of what mfsdp-exec writes after a step of SGD of this learning rate."""
    out = side.work / f"rate{rate}"
    targets = ["--lora-targets", ",".join(case.targets)] if case.targets else []
    logits = side.logits("--init-adapters", side.work / "adapters", "--optimizer", "sgd", "--clip", 0, "--weight-decay", 0,
                         "--lora-rank", case.rank, "--lora-alpha", case.alpha, *targets, "--export", out / "merged",
                         "--export-adapters", out / "adapters", rate=rate)
    return logits, out


def adapter_gradients(wrapped: Any, ids: Any, labels: Any) -> dict[str, Any]:
    """Gradients of one step by the names of PEFT's files."""
    import torch
    wrapped.zero_grad()
    torch.nn.functional.cross_entropy(wrapped(ids[None], use_cache=False).logits[0], labels).backward()
    return {name.replace(".default", ""): parameter.grad
            for name, parameter in wrapped.named_parameters() if parameter.grad is not None}


def compare_adapters(name: str, side: Side) -> list[float]:
    """Differences: of logits, of gradients (as a share of their norm), of adapters in PEFT, of merged weights."""
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    case, file = ADAPTERS[name], "adapter_model.safetensors"
    wrapped = make_adapters(case, side.work)
    ids, labels = make_tokens(side.work)
    wanted = logits_of(wrapped, ids)
    ours, still = step_of_sgd(case, side, 0)
    _, moved = step_of_sgd(case, side, 1)
    merged = logits_of(load_model(still / "merged", torch.float32, "eager").eval(), ids)
    base = load_model(side.work / "model", torch.float32, "eager").eval()
    returned = logits_of(PeftModel.from_pretrained(base, still / "adapters").eval(), ids)
    before, after = load_file(still / "adapters" / file), load_file(moved / "adapters" / file)
    gradients = adapter_gradients(wrapped, ids, labels)
    if gradients.keys() != before.keys():
        raise RuntimeError(f"other adapters: {sorted(gradients.keys() ^ before.keys())[:4]}")
    worst = max(((before[key] - after[key] - gradient).norm() / gradient.norm()).item() for key, gradient in gradients.items())
    return [farthest(ours, wanted), worst, farthest(returned, wanted), farthest(merged, wanted)]


def run_cases(flags: Flags, columns: list[str], names: list[str], compare: Callable[[str, Side], list[float]]) -> int:
    """Prints one line a case, with the largest difference of each column. A case that fails does not hide the others."""
    launcher, tool = launcher_of(flags), tools_of(flags).find("mfsdp-exec")
    if flags.dry_run:
        print(f"for each of {', '.join(names)}: transformers makes a model, and {tool} evaluates it with --backend {flags.backend}")
        return 0
    failed = False
    print(f"{'case':16} " + " ".join(f"{column:>12}" for column in columns))
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                differences = compare(name, Side(launcher, tool, flags.backend, pathlib.Path(folder)))
            except (Exception, SystemExit) as error:
                print(f"{name:16} FAILED: {error}")
                failed = True
                continue
        wrong = max(differences) > flags.tolerance
        failed = failed or wrong
        print(f"{name:16} " + " ".join(f"{one:12.2e}" for one in differences) + ("  WRONG" if wrong else ""), flush=True)
    return 1 if failed else 0


def families(flags: Flags) -> int:
    """Compares logits of tiny random models of transformers with those of mfsdp-exec, for every family.

    For each family transformers makes a model of random weights in fp32 and saves it as safetensors. mfsdp-exec begins with
    that folder (--init-from), evaluates one sequence (--logits) and writes an export, which transformers loads again. The
    largest difference to transformers' own logits, in fp32 and by eager attention, is printed for both, one line a family.
    Exit code 1: one is above --tolerance, or a run failed. A family is a row of FAMILIES in gpu_lab/pytorch/families.py.
    """
    return run_cases(flags, ["mfsdp-exec", "its export"], choose(flags.only, list(FAMILIES), "--only", "family"), compare_family)


def lora(flags: Flags) -> int:
    """Compares adapters (LoRA) of mfsdp-exec with those of PEFT.

    For each case transformers makes a small model of random weights in fp32, PEFT wraps it with random adapters, and both
    are saved. mfsdp-exec begins with the two folders and is compared with PEFT, in fp32: logits; one step's gradient of
    every adapter, as what a step of SGD of rate 1 changes; the adapters that it writes, loaded by PEFT; the model that it
    writes with adapters merged, loaded by transformers. Exit code 1: a difference is above --tolerance, or a run failed.
    """
    return run_cases(flags, ["logits", "gradient", "adapters", "merged"], choose(flags.only, list(ADAPTERS), "--only", "case"),
                     compare_adapters)
