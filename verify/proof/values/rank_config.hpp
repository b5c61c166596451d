// The model as the kernels of one rank have it.
#pragma once

#include <utility>

#include "core/plan/config.hpp"

namespace mfsdp {

/// Ranks of tp that hold the columns of one head of keys together, and of one of values; 1: none do.
[[nodiscard]] inline std::int64_t holders_of_key(const PlanConfig& config) {
  const std::int64_t ranks = config.mesh.size(Axis::tp);
  const std::int64_t heads = config.model.kv_heads;
  return heads > 0 && ranks > heads && ranks % heads == 0 ? ranks / heads : 1;
}

/// With tp each rank has an equal number of heads and of the MLP's features. Everything else is as
/// configured. A size that the ranks do not divide stays whole, which no kernel of a rank then has.
[[nodiscard]] inline PlanConfig linear_config_on_rank(PlanConfig config) {
  const std::int64_t ranks = config.mesh.size(Axis::tp);
  ModelShape& model = config.model;
  if (holders_of_key(config) > 1)
    model.kv_heads = 1;
  else if (model.kv_heads % ranks == 0)
    model.kv_heads /= ranks;
  for (std::int64_t* size : {&model.heads, &model.intermediate})
    if (*size % ranks == 0) *size /= ranks;
  return config;
}
/// The same of attention, where ranks of cp have other heads if these are what they exchange.
[[nodiscard]] inline PlanConfig config_on_rank(PlanConfig config) {
  config = linear_config_on_rank(std::move(config));
  ModelShape& model = config.model;
  const std::int64_t parts = config.has_chunks() ? 1 : config.mesh.size(Axis::cp);
  for (std::int64_t* size : {&model.heads, &model.kv_heads})
    if (*size % parts == 0) *size /= parts;
  return config;
}

}  // namespace mfsdp
