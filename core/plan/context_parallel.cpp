#include "core/plan/context_parallel.hpp"

#include <fmt/format.h>

#include "core/plan/parallel_checks.hpp"

namespace mfsdp {
namespace {

Result<void> no_cp_with(std::string_view what) { return cannot_combine("--cp", what); }

Result<void> check_model(const PlanConfig& config) {
  const ModelShape& model = config.model;
  const FamilyTraits& traits = model.traits();
  if (traits.latent_attention) return no_cp_with("latent attention");
  if (!traits.rotates) return no_cp_with("learned positions");
  if (traits.sinks) return no_cp_with("attention sinks");
  if (model.qk_norm && traits.whole_qk_norms && !config.has_chunks())
    return no_cp_with("norms over all heads of queries and --cp-comm a2a");
  for (const auto& [has, what] : {std::pair{model.qk_norm, "norms of queries and keys"},
                                  {model.experts != 0, "experts"},
                                  {config.has_lora(), "--lora-rank"}})
    if (has && config.exact_sums) return no_cp_with(fmt::format("{} and --exact-sums", what));
  if (model.experts != 0 && model.router_aux_loss.num != 0)
    return no_cp_with("the experts' balance loss");
  return {};
}

/// Each rank has two chunks of a sequence.
Result<void> check_chunks(std::int64_t seq_len, std::int64_t ranks, ContextExchange exchange) {
  if (seq_len % checked_mul(2, ranks) == 0) return {};
  return fail("--cp",
              fmt::format("expected a number of ranks that divides half of the {} tokens of "
                          "a sequence (--seq-len) with --cp-comm {}, got {}",
                          seq_len, to_string(exchange), ranks));
}

/// Rules of ranks that have all heads.
Result<void> check_all_heads(const PlanConfig& config) {
  const std::string comm = fmt::format("--cp-comm {}", to_string(config.cp_comm));
  if (!config.exact_sums) return {};
  return fail("--exact-sums", fmt::format("cannot be combined with {}: gradients of keys and "
                                          "values are rounded on each rank before they are added",
                                          comm));
}

Result<void> check_ring(const PlanConfig& config) {
  const std::int64_t ranks = config.mesh.size(Axis::cp);
  if (ranks <= kMostRingRanks) return {};
  return fail("--cp", fmt::format("expected at most {} ranks with --cp-comm p2p, got {}",
                                  kMostRingRanks, ranks));
}

}  // namespace

Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len, std::int64_t ranks,
                                  ContextExchange exchange) {
  if (exchange != ContextExchange::a2a) return check_chunks(seq_len, ranks, exchange);
  return check_equal_shares("--cp", ranks,
                            {{"attention heads", model.heads},
                             {"key-value heads", model.kv_heads},
                             {"tokens of a sequence (--seq-len)", seq_len}});
}

Result<void> check_context_parallel(const PlanConfig& config) {
  const std::int64_t ranks = config.mesh.size(Axis::cp);
  if (ranks == 1 && config.cp_comm != ContextExchange::a2a)
    return fail("--cp-comm",
                fmt::format("expected a2a without --cp, got {}", to_string(config.cp_comm)));
  if (ranks == 1) return {};
  MFSDP_TRY(check_context_shares(config.model, config.seq_len, ranks, config.cp_comm));
  MFSDP_TRY(check_model(config));
  if (config.micro_batch > 1 && !config.passes_keys())
    return fail("--micro-batch", fmt::format("expected 1 with --cp and --cp-comm {}, got {}",
                                             to_string(config.cp_comm), config.micro_batch));
  if (orthogonalises(config.optimizer))
    return no_cp_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  if (config.has_chunks()) MFSDP_TRY(check_all_heads(config));
  if (config.passes_keys()) MFSDP_TRY(check_ring(config));
  return check_without_windows("--cp", config);
}

}  // namespace mfsdp
