#include "core/plan/tensor_parallel.hpp"

#include <fmt/format.h>

#include "core/plan/parallel_checks.hpp"

namespace mfsdp {
namespace {

Result<void> no_tp_with(std::string_view what) { return cannot_combine("--tp", what); }

/// Llama's blocks, without options of other models.
Result<void> check_plain(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  if (model.experts != 0) return no_tp_with("experts");
  if (traits.latent_attention) return no_tp_with("latent attention");
  if (model.qk_norm) return no_tp_with("norms of queries and keys");
  if (model.qkv_bias || traits.biases) return no_tp_with("biases of linear layers");
  if (model.output_norms) return no_tp_with("norms of the outputs of attention and MLP");
  if (!model.sliding_layers.empty()) return no_tp_with("sliding windows");
  const ModelShape plain{.family = Family::llama,
                         .vocab = model.vocab,
                         .hidden = model.hidden,
                         .layers = model.layers,
                         .heads = model.heads,
                         .kv_heads = model.kv_heads,
                         .head_dim = model.head_dim,
                         .intermediate = model.intermediate,
                         .max_seq_len = model.max_seq_len,
                         .tied_embeddings = model.tied_embeddings,
                         .rms_norm_eps = model.rms_norm_eps,
                         .rope_theta = model.rope_theta,
                         .rope_scaling = model.rope_scaling};
  if (model != plain)
    return no_tp_with(fmt::format("what this model has beyond Llama's blocks (family {})",
                                  to_string(model.family)));
  return {};
}

}  // namespace

Result<void> check_tensor_shares(const ModelShape& model, std::int64_t tokens, std::int64_t ranks) {
  return check_equal_shares("--tp", ranks,
                            {{"attention heads", model.heads},
                             {"key-value heads", model.kv_heads},
                             {"features of the MLP", model.intermediate},
                             {"ids of the vocabulary", model.vocab},
                             {"tokens of a microbatch (--micro-batch x --seq-len)", tokens}});
}

Result<void> check_tensor_parallel(const PlanConfig& config) {
  if (config.mesh.size(Axis::tp) == 1) return {};
  MFSDP_TRY(check_plain(config.model));
  MFSDP_TRY(check_tensor_shares(config.model, config.tokens_per_microbatch(),
                                config.mesh.size(Axis::tp)));
  if (config.mesh.size(Axis::pp) > 1) return no_tp_with("ranks on pp");
  if (!config.mesh.experts.empty()) return no_tp_with("--ep");
  if (config.strategy == Strategy::no_shard)
    return fail("--strategy",
                "expected optim, optim_grads or optim_grads_params with --tp: norms' weights are "
                "whole on each rank, and each rank updates a part of them, got no_shard");
  if (config.outer_strategy == Strategy::optim) return no_tp_with("--outer-strategy optim (HFSDP)");
  if (config.has_lora()) return no_tp_with("--lora-rank");
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
