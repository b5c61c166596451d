#include "sim/engines/engine.hpp"

#include <fmt/format.h>

#include <string>

namespace mfsdp {

tl::unexpected<Error> cannot_predict(EngineKind engine, const char* flag, std::string_view what,
                                     std::string_view instead) {
  return fail(
      flag, fmt::format("--engine {} cannot predict {} yet; {}", to_string(engine), what, instead));
}

tl::unexpected<Error> does_otherwise(EngineKind engine, const char* flag, std::string_view does) {
  return fail(flag, fmt::format("--engine {} {}", to_string(engine), does));
}

namespace {

bool is_megatron(EngineKind engine) {
  return engine == EngineKind::mfsdp1 || engine == EngineKind::mfsdp2 ||
         engine == EngineKind::mfsdp2_eager;
}

bool is_fsdp2(EngineKind engine) {
  return engine == EngineKind::fsdp2 || has_compiled_blocks(engine);
}

/// Megatron-FSDP's second version.
bool is_second(EngineKind engine) { return is_megatron(engine) && engine != EngineKind::mfsdp1; }

/// Whether mcore's blocks are modelled for the family.
bool mcore_has(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  return !traits.layer_norms && !traits.whole_qk_norms && traits.rotates && traits.input_norms;
}

/// Experts, and what else the families that have them bring, are mcore's alone.
Result<void> check_family(EngineKind engine, const ModelShape& model) {
  if (is_mcore(engine)) {
    if (mcore_has(model)) return {};
    return cannot_predict(engine, "--model",
                          fmt::format("models of the family {}", to_string(model.family)),
                          "it predicts Llama, Mistral, Qwen2, Qwen3, Mixtral, GPT-OSS and "
                          "DeepSeek; leave --engine out for others");
  }
  if (model.experts != 0)
    return cannot_predict(
        engine, "--model", "mixtures of experts",
        mcore_has(model) ? "leave --engine out, or take mcore" : "leave --engine out");
  if (model.family != Family::llama)
    return cannot_predict(
        engine, "--model", fmt::format("models of the family {}", to_string(model.family)),
        "it predicts Llama, Mistral, Qwen2 and Qwen3; leave --engine out for others");
  return {};
}

/// Llama's blocks, with or without norms of heads and biases of query, key and value.
void check_model(EngineKind engine, const ModelShape& model, Reasons& reasons) {
  const auto no = [&](std::string_view what) {
    reasons.add(cannot_predict(engine, "--model", what));
  };
  if (!reasons.add(check_family(engine, model))) return;
  if (model.output_norms || model.zero_centered_norms || model.scaled_embedding)
    no("Gemma's norms and scaled embeddings");
  if (model.activation != Activation::silu || !model.traits().gated)
    no("activations other than SwiGLU");
  if (model.score_cap.num != 0 || model.logit_cap.num != 0) no("capped scores or logits");
  if (model.rotary_dim != 0 && !model.traits().latent_attention)
    no("rotary embeddings of a part of each head");
  if (!model.sliding_layers.empty() && !is_mcore(engine))
    reasons.add(
        cannot_predict(engine, "--model", "sliding windows", "leave --engine out, or take mcore"));
}

/// Weights in bf16 between steps, as model.to(bfloat16) before fully_shard leaves them.
tl::unexpected<Error> only_fp32_weights(EngineKind engine) {
  return cannot_predict(
      engine, "--main-dtype", "weights other than fp32 between steps",
      "assumed are 16 bytes a parameter for weight, gradient and AdamW's states, where "
      "model.to(bfloat16) before fully_shard takes 8; leave --engine out to predict mfsdp-exec, "
      "which has the choice");
}

void check_types(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (config.param_dtype != DType::bf16)
    reasons.add(cannot_predict(engine, "--param-dtype", "blocks in other types than bf16"));
  if (config.main_dtype != DType::fp32) reasons.add(only_fp32_weights(engine));
  if (is_megatron(engine) || is_mcore(engine)) {
    if (config.grad_dtype != DType::fp32 && config.grad_dtype != DType::bf16)
      reasons.add(
          cannot_predict(engine, "--grad-dtype", "gradients in other types than fp32 and bf16"));
    if (is_mcore(engine) && config.reduce_dtype != config.grad_dtype)
      reasons.add(does_otherwise(engine, "--reduce-dtype",
                                 "reduces gradients in the type that they have, --grad-dtype"));
  } else if (config.grad_dtype != DType::fp32) {
    reasons.add(does_otherwise(engine, "--grad-dtype",
                               "keeps gradients in the type of its weights between steps, fp32"));
  }
  if (config.reduce_dtype != DType::fp32 && config.reduce_dtype != DType::bf16)
    reasons.add(
        cannot_predict(engine, "--reduce-dtype", "reductions in other types than fp32 and bf16"));
  if (config.scales_loss())
    reasons.add(
        does_otherwise(engine, "--loss-scale", "trains in bf16, which needs no loss scale"));
  if (config.state_dtype != StateDtype::full)
    reasons.add(
        cannot_predict(engine, "--state-dtype", "optimizer states in other types than fp32"));
}

/// ZeRO's stages, by their names here.
Result<void> check_strategy(EngineKind engine, Strategy strategy, std::int64_t outer) {
  const auto otherwise = [&](std::string_view does) {
    return does_otherwise(engine, "--strategy", does);
  };
  // Ours by default is optim_grads_params: it stands for what the engine has.
  if (strategy == Strategy::optim_grads_params) return {};
  if (is_mcore(engine) && strategy != Strategy::optim)
    return otherwise("shards the optimizer's states alone (optim)");
  if (is_fsdp2(engine) && strategy != Strategy::optim_grads)
    return otherwise(
        "shards gradients, states and parameters: always (optim_grads_params), or parameters "
        "outside forward and backward only (optim_grads)");
  if (is_megatron(engine) && strategy == Strategy::no_shard)
    return cannot_predict(engine, "--strategy", "no_shard",
                          "take optim, optim_grads or optim_grads_params");
  if (is_second(engine) && strategy == Strategy::optim && outer > 1)
    return otherwise(
        "with --outer-dp reduces gradients in every microbatch (optim_grads or "
        "optim_grads_params)");
  if (engine == EngineKind::mfsdp1 && outer > 1)
    return cannot_predict(engine, "--strategy",
                          "--outer-dp with other strategies than optim_grads_params");
  return {};
}

/// Experts dealt out: only mcore, whose experts are sharded as the rest and whose exchanges have
/// exactly the rows that there are.
void check_dealt_experts(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (config.capacity_factor.num != 0)
    reasons.add(does_otherwise(engine, "--capacity-factor",
                               "drops no token, and exchanges the rows that there are"));
  if (config.expert_strategy && *config.expert_strategy != Strategy::optim)
    reasons.add(does_otherwise(engine, "--expert-strategy",
                               "shards the optimizer's states of experts alone (optim)"));
}

void check_parallelism(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  const std::int64_t outer = config.mesh.size(Axis::dp_outer);
  if (config.mesh.size(Axis::dp_shard) * outer != config.mesh.world_size())
    reasons.add(cannot_predict(engine, "--gpus", "other parallelism than that of data"));
  if (outer > 1 && is_mcore(engine)) reasons.add(cannot_predict(engine, "--outer-dp", "replicas"));
  if (outer > 1 && config.outer_strategy != Strategy::no_shard)
    reasons.add(does_otherwise(engine, "--outer-strategy",
                               "shards nothing over its outer axis (no_shard)"));
  reasons.add(check_strategy(engine, config.strategy, outer));
  check_dealt_experts(engine, config, reasons);
  if (config.optimizer != Optimizer::adamw)
    reasons.add(cannot_predict(engine, "--optimizer", "optimizers other than AdamW"));
  if (config.has_lora()) reasons.add(cannot_predict(engine, "--lora-rank", "LoRA's adapters"));
  if (!config.frozen.empty()) reasons.add(cannot_predict(engine, "--freeze", "frozen parameters"));
  if (config.document_mask)
    reasons.add(cannot_predict(engine, "--document-mask", "masks between documents"));
}

/// What was not recorded of Megatron-FSDP, or runs by other rules there.
void check_megatron(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (config.mesh.size(Axis::dp_shard) == 1)
    reasons.add(cannot_predict(engine, "--gpus", "a single rank that shards", "take two or more"));
  if (engine == EngineKind::mfsdp2_eager) return;
  if (config.model.qk_norm) {
    const bool second = engine == EngineKind::mfsdp2;
    reasons.add(
        cannot_predict(engine, "--model", "norms of query and key heads",
                       second ? "leave --engine out, or take mfsdp2-eager" : "leave --engine out"));
  }
  if (engine == EngineKind::mfsdp2) return;
  const bool whole = config.strategy == Strategy::optim_grads_params;
  if (!whole && config.allocator == AllocatorPolicy::double_buffer)
    reasons.add(cannot_predict(engine, "--allocator",
                               "double buffers with other strategies than optim_grads_params",
                               "leave --allocator out"));
  if (config.strategy == Strategy::optim && config.grad_dtype != config.reduce_dtype)
    reasons.add(
        cannot_predict(engine, "--reduce-dtype",
                       "--strategy optim with reductions in another type than gradients have",
                       "give both flags one type"));
  if (config.model.tied_embeddings)
    reasons.add(cannot_predict(engine, "--model", "an embedding that is the head, too"));
  if (config.recompute.kind == Recompute::full)
    reasons.add(cannot_predict(engine, "--recompute", "recomputation", "take none, or mfsdp2"));
}

}  // namespace

std::string_view engine_basis(EngineKind engine) {
  if (!is_mcore(engine)) return "";
  return "mcore: from the sources of Megatron-Core and Transformer Engine alone, never held to a "
         "recorded run";
}

Result<PlanConfig> engine_config(EngineKind engine, const PlanConfig& config) {
  if (engine == EngineKind::mfsdp) return config;
  Reasons reasons;
  check_model(engine, config.model, reasons);
  check_types(engine, config, reasons);
  check_parallelism(engine, config, reasons);
  if (is_megatron(engine)) check_megatron(engine, config, reasons);
  MFSDP_TRY(reasons.verdict());
  PlanConfig own = config;
  if (is_mcore(engine)) own.strategy = Strategy::optim;
  own.expert_strategy.reset();
  // Megatron-FSDP's second version reduces gradients in the type that they have.
  if (is_second(engine)) own.reduce_dtype = DType::bf16;
  if (engine != EngineKind::mfsdp1 || own.allocator != AllocatorPolicy::double_buffer)
    own.allocator = AllocatorPolicy::best_fit;
  if (own.recompute.kind == Recompute::full && own.recompute.full_blocks != 0)
    return cannot_predict(engine, "--recompute", "recomputation of some blocks alone",
                          "take none or full");
  // Of Megatron-Core's with experts it is the norm before them and their activation.
  const bool has_modules = is_mcore(engine) && config.model.experts != 0;
  if (own.recompute.kind == Recompute::selective && !has_modules)
    own.recompute = {.kind = Recompute::none};
  own.logits_chunk = config.tokens_per_microbatch();
  return own;
}

}  // namespace mfsdp
