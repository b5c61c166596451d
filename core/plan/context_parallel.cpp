#include "core/plan/context_parallel.hpp"

#include <fmt/format.h>

#include "core/plan/parallel_checks.hpp"

namespace mfsdp {
namespace {

Result<void> no_cp_with(std::string_view what) { return cannot_combine("--cp", what); }

Result<void> check_model(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  if (traits.latent_attention) return no_cp_with("latent attention");
  if (!traits.rotates) return no_cp_with("learned positions");
  if (traits.sinks) return no_cp_with("attention sinks");
  if (model.qk_norm) return no_cp_with("norms of queries and keys");
  if (model.experts != 0) return no_cp_with("experts");
  return {};
}

/// Each rank has two chunks of a sequence.
Result<void> check_chunks(std::int64_t seq_len, std::int64_t ranks) {
  if (seq_len % checked_mul(2, ranks) == 0) return {};
  return fail("--cp",
              fmt::format("expected a number of ranks that divides half of the {} tokens of "
                          "a sequence (--seq-len) with --cp-comm all_gather, got {}",
                          seq_len, ranks));
}

Result<void> check_gathers(const PlanConfig& config) {
  if (config.cp_comm != ContextExchange::all_gather) return {};
  if (config.mesh.size(Axis::tp) > 1) return cannot_combine("--tp", "--cp-comm all_gather");
  if (!config.exact_sums) return {};
  return fail("--exact-sums",
              "cannot be combined with --cp-comm all_gather: gradients of keys and values are "
              "rounded on each rank before they are added");
}

}  // namespace

Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len, std::int64_t ranks,
                                  ContextExchange exchange) {
  if (exchange == ContextExchange::p2p)
    return fail("--cp-comm",
                "p2p is not modelled: expected a2a (Ulysses), which exchanges queries, keys and "
                "values by heads, or all_gather, which gathers keys and values");
  if (exchange == ContextExchange::all_gather) return check_chunks(seq_len, ranks);
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
  MFSDP_TRY(check_model(config.model));
  if (config.mesh.size(Axis::pp) > 1) return no_cp_with("--pp");
  if (config.micro_batch > 1)
    return fail("--micro-batch", fmt::format("expected 1 with --cp, got {}", config.micro_batch));
  if (config.has_lora()) return no_cp_with("--lora-rank");
  if (orthogonalises(config.optimizer))
    return no_cp_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  MFSDP_TRY(check_gathers(config));
  return check_without_windows("--cp", config);
}

}  // namespace mfsdp
