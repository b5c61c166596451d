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

}  // namespace

Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len,
                                  std::int64_t ranks) {
  return check_equal_shares("--cp", ranks,
                            {{"attention heads", model.heads},
                             {"key-value heads", model.kv_heads},
                             {"tokens of a sequence (--seq-len)", seq_len}});
}

Result<void> check_context_parallel(const PlanConfig& config) {
  if (config.mesh.size(Axis::cp) == 1) return {};
  MFSDP_TRY(check_context_shares(config.model, config.seq_len, config.mesh.size(Axis::cp)));
  MFSDP_TRY(check_model(config.model));
  if (config.mesh.size(Axis::pp) > 1) return no_cp_with("ranks on pp");
  if (config.micro_batch > 1)
    return fail("--micro-batch", fmt::format("expected 1 with --cp, got {}", config.micro_batch));
  if (config.has_lora()) return no_cp_with("--lora-rank");
  if (orthogonalises(config.optimizer))
    return no_cp_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  return check_without_windows("--cp", config);
}

}  // namespace mfsdp
