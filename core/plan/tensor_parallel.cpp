#include "core/plan/tensor_parallel.hpp"

#include <fmt/format.h>

#include "core/plan/parallel_checks.hpp"

namespace mfsdp {
namespace {

Result<void> no_tp_with(std::string_view what) { return cannot_combine("--tp", what); }

/// Refuses blocks of which a rank cannot compute its part by heads, features or rows alone.
Result<void> check_blocks(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  if (traits.latent_attention && model.query_latent == 0)
    return no_tp_with("latent attention without a latent vector of queries");
  if (!traits.rotates) return no_tp_with("learned positions");
  if (!traits.input_norms) return no_tp_with("blocks without norms of their inputs");
  if (model.qk_norm && traits.whole_qk_norms)
    return no_tp_with("norms of queries and keys over all heads");
  return {};
}

bool has_mlp(const ModelShape& model) { return model.experts == 0 || !model.dense_layers.empty(); }

/// Attention has the heads of one rank of tp and, where ranks of cp exchange heads, of one of cp.
Result<void> check_heads_of_both(const PlanConfig& config) {
  const std::int64_t cp = config.mesh.size(Axis::cp);
  const std::int64_t both = checked_mul(cp, config.mesh.size(Axis::tp));
  if (cp == 1 || config.has_chunks()) return {};
  for (const auto& [what, heads] : {std::pair{"attention heads", config.model.heads},
                                    std::pair{"key-value heads", config.model.kv_heads}})
    if (heads % both != 0)
      return fail("--tp", fmt::format("expected a number of ranks that, times the {} of --cp, "
                                      "divides the {} {}, got {}",
                                      cp, heads, what, config.mesh.size(Axis::tp)));
  return {};
}

/// Refuses what parts of heads of keys cannot be combined with.
Result<void> check_key_parts(const PlanConfig& config) {
  if (key_holders(config.model, config.mesh.size(Axis::tp)) == 1) return {};
  const std::string more =
      fmt::format("more ranks than the {} key-value heads, beside ", config.model.kv_heads);
  if (config.mesh.size(Axis::cp) > 1) return no_tp_with(more + "--cp");
  if (config.has_lora()) return no_tp_with(more + "--lora-rank");
  if (config.model.traits().sinks) return no_tp_with(more + "attention sinks");
  return {};
}

}  // namespace

std::int64_t key_holders(const ModelShape& model, std::int64_t ranks) {
  const bool shares = ranks > model.kv_heads && ranks % model.kv_heads == 0;
  return shares ? ranks / model.kv_heads : 1;
}

Result<void> check_tensor_shares(const ModelShape& model, std::int64_t tokens, std::int64_t ranks) {
  const std::int64_t holders = key_holders(model, ranks);
  if (model.head_dim % holders != 0)
    return fail("--tp", fmt::format("expected a number of ranks of which those of each of the {} "
                                    "key-value heads divide its {} elements, got {}: {} for each",
                                    model.kv_heads, model.head_dim, ranks, holders));
  return check_equal_shares("--tp", ranks,
                            {{"attention heads", model.heads},
                             {"key-value heads", checked_mul(model.kv_heads, holders)},
                             {"features of the MLP", has_mlp(model) ? model.intermediate : 0},
                             {"ids of the vocabulary", model.vocab},
                             {"tokens of a microbatch (--micro-batch x --seq-len)", tokens}});
}

Result<void> check_tensor_parallel(const PlanConfig& config) {
  if (config.mesh.size(Axis::tp) == 1) return {};
  MFSDP_TRY(check_blocks(config.model));
  MFSDP_TRY(check_tensor_shares(config.model, config.tokens_per_microbatch(),
                                config.mesh.size(Axis::tp)));
  MFSDP_TRY(check_key_parts(config));
  MFSDP_TRY(check_heads_of_both(config));
  if (config.model.router_aux_loss.num != 0 && config.micro_batch != 1)
    return fail("--micro-batch", fmt::format("expected 1 with --tp and a loss of experts' balance "
                                             "(router_aux_loss_coef), got {}",
                                             config.micro_batch));
  if (config.strategy == Strategy::no_shard)
    return fail("--strategy",
                "expected optim, optim_grads or optim_grads_params with --tp: norms' weights are "
                "whole on each rank, and each rank updates a part of them, got no_shard");
  if (config.outer_strategy == Strategy::optim) return no_tp_with("--outer-strategy optim (HFSDP)");
  if (config.base_dtype != BaseDType::compute)
    return no_tp_with(fmt::format("--base-dtype {}", to_string(config.base_dtype)));
  if (config.has_fp8()) return no_tp_with("--fp8");
  if (config.exact_sums)
    return fail("--exact-sums",
                "cannot be combined with --tp: terms of a sum are rounded on each rank before they "
                "are added");
  if (orthogonalises(config.optimizer))
    return no_tp_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  if (config.state_dtype == StateDtype::blockwise8) return no_tp_with("--state-dtype blockwise8");
  if (config.layout != LayoutRule::packed)
    return no_tp_with(fmt::format("--layout {}", to_string(config.layout)));
  return check_without_windows("--tp", config);
}

}  // namespace mfsdp
