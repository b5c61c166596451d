#include "core/plan/context_parallel.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/plan/transport.hpp"

namespace mfsdp {
namespace {

Result<void> not_with(std::string_view what) {
  return fail("--cp", fmt::format("cannot be combined with {} so far", what));
}

Result<void> check_model(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  if (traits.latent_attention) return not_with("latent attention");
  if (!traits.rotates) return not_with("learned positions");
  if (traits.sinks) return not_with("attention sinks");
  if (model.qk_norm) return not_with("norms of queries and keys");
  if (model.experts != 0) return not_with("experts");
  return {};
}

}  // namespace

Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len,
                                  std::int64_t ranks) {
  for (const auto& [what, size] :
       {std::pair{"attention heads", model.heads}, std::pair{"key-value heads", model.kv_heads},
        std::pair{"tokens of a sequence (--seq-len)", seq_len}})
    if (size % ranks != 0)
      return fail("--cp", fmt::format("expected a number of ranks that divides the {} {}, got {}",
                                      size, what, ranks));
  return {};
}

Result<void> check_context_parallel(const PlanConfig& config) {
  if (config.mesh.size(Axis::cp) == 1) return {};
  MFSDP_TRY(check_context_shares(config.model, config.seq_len, config.mesh.size(Axis::cp)));
  MFSDP_TRY(check_model(config.model));
  for (const Axis axis : {Axis::pp, Axis::tp})
    if (config.mesh.size(axis) > 1) return not_with(fmt::format("ranks on {}", to_string(axis)));
  if (config.micro_batch > 1)
    return fail("--micro-batch", fmt::format("expected 1 with --cp, got {}", config.micro_batch));
  if (config.has_lora()) return not_with("--lora-rank");
  if (orthogonalises(config.optimizer))
    return not_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  for (const auto& [flag, transport] :
       {std::pair{"--gather", config.gather}, std::pair{"--reduce", config.reduce}})
    if (traits_of(transport).uses_windows)
      return not_with(fmt::format("{} {}", flag, to_string(transport)));
  return {};
}

}  // namespace mfsdp
