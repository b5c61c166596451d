#include "sim/engines/engine.hpp"

#include <fmt/format.h>

#include <string>

namespace mfsdp {

tl::unexpected<Error> contradicts(EngineKind engine, const char* flag, std::string_view what) {
  return fail(flag, fmt::format("contradicts --engine {}: {}", to_string(engine), what));
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

/// Experts, and what else the families that have them bring, are mcore's alone.
Result<void> check_family(EngineKind engine, const ModelShape& model) {
  const auto no = [&](std::string_view what) { return contradicts(engine, "--model", what); };
  if (!is_mcore(engine)) {
    if (model.family != Family::llama)
      return no(fmt::format("it is described for Llama, Mistral, Qwen2 and Qwen3, not for {}",
                            to_string(model.family)));
    if (model.experts != 0) return no("experts are not described of it");
    return {};
  }
  const FamilyTraits& traits = model.traits();
  if (traits.layer_norms || traits.whole_qk_norms || !traits.rotates || !traits.input_norms)
    return no(fmt::format(
        "it is described for Llama, Mistral, Qwen2, Qwen3, Mixtral, GPT-OSS and DeepSeek, not "
        "for {}",
        to_string(model.family)));
  return {};
}

/// Llama's blocks, with or without norms of heads and biases of query, key and value.
Result<void> check_model(EngineKind engine, const ModelShape& model) {
  const auto no = [&](std::string_view what) { return contradicts(engine, "--model", what); };
  MFSDP_TRY(check_family(engine, model));
  if (model.activation != Activation::silu || !model.traits().gated)
    return no("it is described for SwiGLU, not for other activations");
  if (model.output_norms || model.zero_centered_norms || model.scaled_embedding)
    return no("Gemma's norms and scaled embeddings are not described of it");
  if (model.score_cap.num != 0 || model.logit_cap.num != 0)
    return no("capped scores or logits are not described of it");
  if (model.rotary_dim != 0 && !model.traits().latent_attention)
    return no("heads that turn in part are not described of it");
  if (!model.sliding_layers.empty() && !is_mcore(engine))
    return no("sliding windows are not described of it");
  return {};
}

Result<void> check_types(EngineKind engine, const PlanConfig& config) {
  if (config.param_dtype != DType::bf16)
    return contradicts(engine, "--param-dtype", "it is described for bf16");
  if (config.main_dtype != DType::fp32)
    return contradicts(engine, "--main-dtype", "its weights between steps are fp32");
  if (is_megatron(engine) || is_mcore(engine)) {
    if (config.grad_dtype != DType::fp32 && config.grad_dtype != DType::bf16)
      return contradicts(engine, "--grad-dtype", "it is described for fp32 and bf16");
    if (is_mcore(engine) && config.reduce_dtype != config.grad_dtype)
      return contradicts(engine, "--reduce-dtype",
                         "its gradients are reduced in the type that they have, --grad-dtype");
  } else if (config.grad_dtype != DType::fp32) {
    return contradicts(engine, "--grad-dtype", "its gradients have the type of its weights, fp32");
  }
  if (config.reduce_dtype != DType::fp32 && config.reduce_dtype != DType::bf16)
    return contradicts(engine, "--reduce-dtype", "it is described for fp32 and bf16");
  if (config.scales_loss()) return contradicts(engine, "--loss-scale", "bf16 needs none");
  if (config.state_dtype != StateDtype::full)
    return contradicts(engine, "--state-dtype", "its optimizer's states are fp32");
  return {};
}

/// ZeRO's stages, by their names here.
Result<void> check_strategy(EngineKind engine, Strategy strategy, std::int64_t outer) {
  const auto no_strategy = [&](std::string_view what) {
    return contradicts(engine, "--strategy", what);
  };
  // Ours by default is optim_grads_params: it stands for what the engine has.
  if (strategy == Strategy::optim_grads_params) return {};
  if (is_mcore(engine) && strategy != Strategy::optim)
    return no_strategy("it shards the optimizer's states alone (optim)");
  if (is_fsdp2(engine) && strategy != Strategy::optim_grads)
    return no_strategy(
        "it shards gradients, states and parameters, those always "
        "(optim_grads_params) or outside forward and backward (optim_grads)");
  if (is_second(engine) && strategy == Strategy::no_shard)
    return no_strategy("it is described for optim, optim_grads and optim_grads_params");
  if (is_second(engine) && strategy == Strategy::optim && outer > 1)
    return no_strategy(
        "with --outer-dp it reduces gradients in every microbatch (optim_grads or "
        "optim_grads_params)");
  if (engine == EngineKind::mfsdp1 && strategy == Strategy::no_shard)
    return no_strategy("it is described for optim, optim_grads and optim_grads_params");
  if (engine == EngineKind::mfsdp1 && outer > 1)
    return no_strategy("with --outer-dp it is described for optim_grads_params");
  return {};
}

/// Experts dealt out: only mcore, whose experts are sharded as the rest and whose exchanges have
/// exactly the rows that there are.
Result<void> check_dealt_experts(EngineKind engine, const PlanConfig& config) {
  if (config.capacity_factor.num != 0)
    return contradicts(engine, "--capacity-factor",
                       "it drops no token, and exchanges the rows that there are");
  if (config.expert_strategy && *config.expert_strategy != Strategy::optim)
    return contradicts(engine, "--expert-strategy",
                       "it shards the optimizer's states alone (optim)");
  return {};
}

Result<void> check_parallelism(EngineKind engine, const PlanConfig& config) {
  const std::int64_t outer = config.mesh.size(Axis::dp_outer);
  if (config.mesh.size(Axis::dp_shard) * outer != config.mesh.world_size())
    return contradicts(engine, "--gpus", "it is described for axes of data parallelism");
  if (outer > 1 && is_mcore(engine))
    return contradicts(engine, "--outer-dp", "it is described for one axis of ranks");
  if (outer > 1 && config.outer_strategy != Strategy::no_shard)
    return contradicts(engine, "--outer-strategy", "its outer axis shards nothing (no_shard)");
  MFSDP_TRY(check_strategy(engine, config.strategy, outer));
  MFSDP_TRY(check_dealt_experts(engine, config));
  if (config.optimizer != Optimizer::adamw)
    return contradicts(engine, "--optimizer", "it is described for AdamW");
  if (config.has_lora()) return contradicts(engine, "--lora-rank", "adapters are not described");
  if (!config.frozen.empty())
    return contradicts(engine, "--freeze", "frozen parameters are not described of it");
  if (config.document_mask)
    return contradicts(engine, "--document-mask", "masks between documents are not described");
  return {};
}

/// What was not recorded of Megatron-FSDP, or runs by other rules there.
Result<void> check_megatron(EngineKind engine, const PlanConfig& config) {
  if (config.mesh.size(Axis::dp_shard) == 1)
    return contradicts(engine, "--gpus", "it is described for two ranks or more");
  if (engine == EngineKind::mfsdp2_eager) return {};
  if (config.model.qk_norm)
    return contradicts(engine, "--model", "fused norms of heads are not described of it");
  if (engine == EngineKind::mfsdp2) return {};
  const bool whole = config.strategy == Strategy::optim_grads_params;
  if (!whole && config.allocator == AllocatorPolicy::double_buffer)
    return contradicts(engine, "--allocator",
                       "double buffers are described of it with optim_grads_params");
  if (config.strategy == Strategy::optim && config.grad_dtype != config.reduce_dtype)
    return contradicts(engine, "--reduce-dtype",
                       "with --strategy optim it is described for gradients' own type");
  if (config.model.tied_embeddings)
    return contradicts(engine, "--model", "an embedding that is the head, too, is not described");
  if (config.recompute.kind == Recompute::full)
    return contradicts(engine, "--recompute", "it is described for none");
  return {};
}

}  // namespace

std::string_view engine_basis(EngineKind engine) {
  if (!is_mcore(engine)) return "";
  return "mcore: from the sources of Megatron-Core and Transformer Engine alone, never held to a "
         "recorded run";
}

Result<PlanConfig> engine_config(EngineKind engine, const PlanConfig& config) {
  if (engine == EngineKind::mfsdp) return config;
  MFSDP_TRY(check_model(engine, config.model));
  MFSDP_TRY(check_types(engine, config));
  MFSDP_TRY(check_parallelism(engine, config));
  if (is_megatron(engine)) MFSDP_TRY(check_megatron(engine, config));
  PlanConfig own = config;
  if (is_mcore(engine)) own.strategy = Strategy::optim;
  own.expert_strategy.reset();
  // Megatron-FSDP's second version reduces gradients in the type that they have.
  if (is_second(engine)) own.reduce_dtype = DType::bf16;
  if (engine != EngineKind::mfsdp1 || own.allocator != AllocatorPolicy::double_buffer)
    own.allocator = AllocatorPolicy::best_fit;
  if (own.recompute.kind == Recompute::full && own.recompute.full_blocks != 0)
    return contradicts(engine, "--recompute", "it is described for none or all blocks: full");
  // Of Megatron-Core's with experts it is the norm before them and their activation.
  const bool has_modules = is_mcore(engine) && config.model.experts != 0;
  if (own.recompute.kind == Recompute::selective && !has_modules)
    own.recompute = {.kind = Recompute::none};
  own.logits_chunk = config.tokens_per_microbatch();
  return own;
}

}  // namespace mfsdp
