#include "sim/engines/rank_model.hpp"

#include <fmt/format.h>

namespace mfsdp {

PlanConfig config_of_rank(const PlanConfig& config, std::int64_t unit) {
  const std::int64_t tp = config.mesh.size(Axis::tp);
  if (tp == 1) return config;
  PlanConfig own = config;
  ModelShape& model = own.model;
  for (std::int64_t* share : {&model.heads, &model.kv_heads, &model.intermediate}) *share /= tp;
  model.vocab = round_up(model.vocab, checked_mul(unit, tp)) / tp;
  return own;
}

void check_shares(const char* flag, std::int64_t ranks, std::initializer_list<ShareOf> shares,
                  Reasons& reasons) {
  for (const auto& [what, size] : shares)
    if (size % ranks != 0)
      reasons.add(
          fail(flag, fmt::format("expected a number of ranks that divides the {} {}, got {}", size,
                                 what, ranks)));
}

}  // namespace mfsdp
