// A model's parameters in the order of Megatron-Core's modules, and hooks that a step calls for
// them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "core/plan/config.hpp"
#include "sim/engines/mcore_buffer.hpp"
#include "sim/engines/mcore_stage.hpp"

namespace mfsdp {

/// Weights of latent attention, by their positions among all weights.
struct LatentWeights {
  std::optional<std::size_t> query_down{};  ///< if queries have a latent vector
  std::optional<std::size_t> query_norm{};
  std::size_t query = 0;  ///< of heads, from the latent vector or from the row
  std::size_t kv_down = 0;
  std::size_t kv_norm = 0;
  std::size_t kv = 0;
};

/// Weights of a layer with experts.
struct ExpertWeights {
  std::size_t router = 0;
  std::optional<std::size_t> router_bias{};
  std::vector<std::size_t> gate_up{};  ///< of each expert that the rank has, with its bias
  std::vector<std::size_t> down{};
  std::optional<std::size_t> shared_gate_up{};
  std::optional<std::size_t> shared_down{};
  std::optional<std::size_t> shared_gate{};
};

/// Weights of one layer, by their positions among all weights. Some models lack some of them.
struct LayerWeights {
  std::int64_t layer = 0;
  std::size_t out = 0;
  std::optional<std::size_t> out_bias{};
  std::size_t norm1 = 0;
  std::optional<std::size_t> norm1_bias{};
  std::size_t qkv = 0;
  std::optional<std::size_t> qkv_bias{};
  std::optional<std::size_t> query_norm{};
  std::optional<std::size_t> key_norm{};
  std::optional<std::size_t> sinks{};
  std::optional<LatentWeights> latent{};  ///< in place of query, key and value at once
  std::size_t norm2 = 0;
  std::optional<std::size_t> norm2_bias{};
  std::size_t gate_up = 0;  ///< without a gate: up alone
  std::optional<std::size_t> gate_up_bias{};
  std::size_t down = 0;
  std::optional<std::size_t> down_bias{};
  std::optional<ExpertWeights> experts{};  ///< in place of gate, up and down
};

struct McoreWeights {
  std::vector<BufferedWeight> all{};   ///< in the order of modules
  std::vector<LayerWeights> layers{};  ///< of chunk after chunk
  std::size_t embedding = 0;
  std::optional<std::size_t> positions{};  ///< where they are learned
  std::size_t norm = 0;
  std::optional<std::size_t> norm_bias{};
  std::size_t head = 0;  ///< the embedding if tied and in the same stage
};

/// Those of a stage's chunks. `units`: of all layers. Experts are those of one rank.
[[nodiscard]] McoreWeights mcore_weights(const PlanConfig& config, const McoreStage& stage,
                                         UnitId root, const std::vector<UnitId>& units);

/// Callbacks of the schedule when the host reaches a weight.
struct WeightHooks {
  /// The forward of its module begins.
  std::function<void(std::size_t weight)> use{};
  /// Its gradient is in the buffer.
  std::function<void(std::size_t weight)> ready{};
};

}  // namespace mfsdp
