// Draws the configurations of recorded results. Own arithmetic on mt19937_64, whose numbers the
// standard fixes: every compiler and library draws the same.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "tests/support/recorded_lines.hpp"

namespace mfsdp::test {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  /// From `low` to `high`; no bias worth speaking of for so few values.
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t cases) { return pick(1, cases) == 1; }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<std::int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

/// A model in the form of models.csv. Every fourth has sizes of a usable model, the others reach
/// for odd ones.
inline Cells draw_model(Draw& draw, const std::string& name) {
  const bool usable = draw.one_in(4);
  const std::int64_t kv_heads = draw.pick(1, usable ? 4 : 2);
  const std::int64_t heads = kv_heads * draw.pick(1, 3);
  const std::int64_t head_dim = usable ? 8 * draw.pick(1, 8) : 2 * draw.pick(1, 4);
  const auto size = [&](std::int64_t most) {
    return std::to_string(usable ? 8 * draw.pick(1, 4 * most) : draw.pick(1, most));
  };
  Cells cells{{"model", name},
              {"layers", std::to_string(draw.pick(1, usable ? 6 : 4))},
              {"heads", std::to_string(heads)},
              {"kv_heads", std::to_string(kv_heads)},
              {"head_dim", std::to_string(head_dim)}};
  cells.emplace_back("hidden", size(12));
  cells.emplace_back("intermediate", size(20));
  cells.emplace_back("vocab", std::to_string(draw.pick(2, usable ? 2000 : 40)));
  cells.emplace_back("max_seq_len", "1024");
  for (const char* flag : {"tied", "qkv_bias", "qk_norm"})
    cells.emplace_back(flag, std::to_string(draw.pick(0, 1)));
  return cells;
}

inline void draw_dtypes(Draw& draw, PlanConfig& config) {
  using enum DType;
  config.param_dtype = draw.one_of({bf16, bf16, bf16, fp16, fp32, fp64});
  if (config.param_dtype == fp64) {
    config.main_dtype = config.grad_dtype = config.reduce_dtype = fp64;
    return;
  }
  config.main_dtype = draw.one_of({fp32, fp32, config.param_dtype});
  config.grad_dtype = draw.one_of({fp32, fp32, bf16});
  config.reduce_dtype = draw.one_of({fp32, fp32, bf16, fp16});
  if (!draw.one_in(5)) return;
  config.exact_sums = true;
  config.grad_dtype = config.reduce_dtype = fp32;
  config.logits_chunk = config.seq_len * draw.pick(1, 3);
}

inline void draw_schedule(Draw& draw, PlanConfig& config) {
  config.microbatches = draw.pick(1, 5);
  config.recompute.kind = static_cast<Recompute>(draw.pick(0, 2));
  if (config.recompute.kind == Recompute::full)
    config.recompute.full_blocks = draw.pick(0, config.model.layers);
  config.prefetch = draw.pick(0, 3);
  config.grad_slots = draw.pick(config.model.tied_embeddings ? 2 : 1, 4);
  config.allocator = static_cast<AllocatorPolicy>(draw.pick(0, 3));
  config.optimizer = draw.one_of({Optimizer::adamw, Optimizer::adamw, Optimizer::sgd});
  config.clip = {draw.pick(0, 1), 1};
  config.deterministic = draw.one_in(2);
  if (draw.one_in(4))
    config.frozen = draw.one_of<std::vector<std::string>>(
        {{"embed_tokens"}, {"layers.0."}, {"layernorm", "mlp"}, {"embed_tokens", "layernorm"}});
}

/// World sizes of 1 to `most_ranks`, powers of two and others.
inline void draw_mesh(Draw& draw, PlanConfig& config, std::int64_t most_ranks) {
  do {
    config.mesh.resize(Axis::dp_shard,
                       draw.one_of<std::int64_t>({1,  2,  3,  4,  5,  7,   8,   8,   12,  16,
                                                  24, 31, 32, 48, 64, 100, 128, 256, 509, 512}));
    config.mesh.resize(Axis::dp_outer, draw.one_of<std::int64_t>({1, 1, 1, 2, 3, 4, 8, 16}));
  } while (config.mesh.world_size() > most_ranks);
  config.strategy = static_cast<Strategy>(draw.pick(0, 3));
  if (config.strategy == Strategy::optim_grads_params && config.mesh.size(Axis::dp_outer) > 1)
    config.outer_strategy = draw.one_of({Strategy::no_shard, Strategy::optim});
}

/// May be invalid: fields are drawn without regard to each other.
inline PlanConfig draw_config(Draw& draw, const ModelShape& model, std::int64_t most_ranks,
                              std::int64_t most_tokens) {
  PlanConfig config;
  config.model = model;
  draw_mesh(draw, config, most_ranks);
  config.seq_len = draw.pick(1, most_tokens);
  if (most_tokens > 64) config.seq_len = draw.one_of<std::int64_t>({64, 100, 128});
  config.micro_batch = draw.pick(1, 3);
  config.logits_chunk = draw.pick(1, 30);
  if (most_tokens > 64) config.logits_chunk = draw.one_of<std::int64_t>({50, 128, 1024});
  draw_dtypes(draw, config);
  draw_schedule(draw, config);
  return config;
}

}  // namespace mfsdp::test
