// The ways to train one model whose results must be equal: layouts over ranks and microbatches, and
// schedules that may not change a bit.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/config.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp::test {

/// Sequences of a step: the least number that every world size times three microbatches divides.
inline constexpr std::int64_t kGlobalBatch = 360;
inline constexpr std::int64_t kTokens = 4;  ///< of a sequence

inline bool runs_all() {
  const char* value = std::getenv("MFSDP_EQUALITY");
  return value != nullptr && std::string_view(value) == "full";
}

/// Strategies on flat meshes, HSDP under each of them, HFSDP; with one and three microbatches.
inline std::vector<PlanConfig> layouts(const ModelShape& model) {
  constexpr std::array strategies{Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                  Strategy::optim_grads_params};
  std::vector<PlanConfig> all;
  const auto add = [&](Mesh mesh, Strategy strategy, Strategy outer = Strategy::no_shard) {
    for (const std::int64_t microbatches : {1, 3}) {
      PlanConfig& config = all.emplace_back();
      config.model = model;
      config.mesh = mesh;
      config.strategy = strategy;
      config.outer_strategy = outer;
      config.seq_len = kTokens;
      config.microbatches = microbatches;
      config.micro_batch = kGlobalBatch / (mesh.world_size() * microbatches);
    }
  };
  for (const std::int64_t ranks : {1, 2, 3, 4, 5, 8})
    for (const Strategy strategy : strategies) add(data_parallel_mesh(1, ranks), strategy);
  for (const std::int64_t shards : {2, 4}) {
    const Mesh mesh = data_parallel_mesh(2, shards);
    for (const Strategy strategy : strategies) add(mesh, strategy);
    add(mesh, Strategy::optim_grads_params, Strategy::optim);
  }
  return all;
}

/// When collectives run and by what, and how long weights stay: chosen by a number.
inline void set_collectives(PlanConfig& config, std::int64_t number) {
  config.placement = static_cast<CollectivePlacement>((number + number / 4) % 4);
  config.keep_gathered = number % (config.model.layers + 1);
  if (config.strategy == Strategy::optim_grads_params)
    config.gather = static_cast<Transport>((number / 2) % 3);
  if (config.strategy >= Strategy::optim_grads)
    config.reduce = static_cast<Transport>((number / 3) % 3);
}

/// Settings that must not change results, chosen by a number: 0 to 143 are all choices except those
/// of set_collectives(), and consecutive numbers differ in each.
inline void set_schedule(PlanConfig& config, std::int64_t number) {
  constexpr std::array<RecomputePolicy, 4> recomputes{
      RecomputePolicy{.kind = Recompute::none}, RecomputePolicy{.kind = Recompute::selective},
      RecomputePolicy{.kind = Recompute::full},
      RecomputePolicy{.kind = Recompute::full, .full_blocks = 1}};
  config.recompute = recomputes[static_cast<std::size_t>(number % 4)];
  config.prefetch = number % 3;
  config.allocator = static_cast<AllocatorPolicy>((number / 12 + number) % 4);
  const bool needs_two = config.model.tied_embeddings && config.strategy >= Strategy::optim_grads;
  config.grad_slots = std::max<std::int64_t>(1 + (number / 48 + number) % 3, needs_two ? 2 : 1);
  set_collectives(config, number);
}

/// Every layout with five schedules: 340 combinations, which hold each of the 144 schedules twice.
/// By default every seventh of them, under sanitizers three.
inline std::vector<PlanConfig> combinations(const ModelShape& model) {
  constexpr std::int64_t schedules = 5;
  const std::int64_t every = runs_all() ? 1 : kOneCase ? 113 : 7;
  std::vector<PlanConfig> all;
  std::int64_t number = 0;
  for (const PlanConfig& layout : layouts(model))
    for (std::int64_t i = 0; i < schedules; ++i, ++number) {
      if (number % every != 0) continue;
      set_schedule(all.emplace_back(layout), number);
    }
  return all;
}

/// Tokens as of text, some much more frequent than others; every seventh label is left out.
/// A sample is one document, or every third token or so begins one.
class Skewed final : public Dataset {
 public:
  Skewed(std::int64_t vocab, std::int64_t samples, bool documents = false)
      : vocab_(vocab), samples_(samples), documents_(documents) {}

  [[nodiscard]] std::string describe() const override { return "skewed"; }
  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }
  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    std::mt19937 random(static_cast<std::uint32_t>(index));
    for (std::size_t t = 0; t <= tokens.size(); ++t) {
      const double uniform = static_cast<double>(random()) * 0x1p-32;
      const auto token = static_cast<std::int32_t>(uniform * uniform * static_cast<double>(vocab_));
      if (t < tokens.size()) tokens[t] = token;
      if (t > 0) labels[t - 1] = random() % 7 == 0 ? kIgnoreIndex : token;
    }
    for (std::size_t t = 1; documents_ && t < positions.size(); ++t)
      positions[t] = random() % 3 == 0 ? 0 : positions[t - 1] + 1;
    return {};
  }

 private:
  std::int64_t vocab_;
  std::int64_t samples_;
  bool documents_;
};

/// Those that share one add gradients in one order, without --exact-sums.
inline std::string class_of(const PlanConfig& config) {
  const bool each_microbatch = config.strategy >= Strategy::optim_grads;
  std::string name =
      fmt::format("{} x {}", config.mesh.size(Axis::dp_outer), config.mesh.size(Axis::dp_shard));
  if (config.outer_strategy == Strategy::optim)
    name += " HFSDP";
  else if (config.mesh.size(Axis::dp_outer) > 1)
    name += " HSDP";
  name +=
      fmt::format(", {} microbatch{}", config.microbatches, config.microbatches > 1 ? "es" : "");
  if (config.microbatches > 1 && config.mesh.size(Axis::dp_shard) > 1)
    name += each_microbatch ? ", reduced in each" : ", reduced in the last";
  if (config.is_expert_parallel()) name += fmt::format(", ep {}", config.expert_parallel);
  return name;
}

inline std::string describe(const PlanConfig& c) {
  return fmt::format(
      "{} x {}, {}, outer {}, {}, {} microbatches of {}, recompute {}:{}, allocator {}, "
      "prefetch {}, slots {}",
      c.mesh.size(Axis::dp_outer), c.mesh.size(Axis::dp_shard), to_string(c.strategy),
      to_string(c.outer_strategy), to_string(c.layout), c.microbatches, c.micro_batch,
      to_string(c.recompute.kind), c.recompute.full_blocks, to_string(c.allocator), c.prefetch,
      c.grad_slots);
}

}  // namespace mfsdp::test
