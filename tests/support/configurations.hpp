// Small configurations for tests.
#pragma once

#include "core/plan/config.hpp"

namespace mfsdp::test {

/// A model of a few thousand parameters.
inline ModelShape small_model(std::int64_t layers = 2) {
  ModelShape shape;
  shape.vocab = 24;
  shape.hidden = 8;
  shape.layers = layers;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 4;
  shape.intermediate = 12;
  shape.max_seq_len = 64;
  return shape;
}

inline PlanConfig small_config(std::int64_t ranks = 4, std::int64_t layers = 2) {
  PlanConfig config;
  config.model = small_model(layers);
  config.mesh = data_parallel_mesh(1, ranks);
  config.seq_len = 16;
  config.logits_chunk = 8;
  return config;
}

/// Embedding, one block and the head on two ranks with two gradient slots: small enough for a
/// search through all interleavings. Eight variants: strategies, one or two microbatches.
inline PlanConfig three_units(int variant) {
  PlanConfig config = small_config(2, 1);
  config.logits_chunk = 16;
  config.strategy = static_cast<Strategy>(variant % 4);
  config.microbatches = 1 + variant / 4 % 2;
  if (variant % 3 == 0) config.clip = Rational{0, 1};
  return config;
}

}  // namespace mfsdp::test
