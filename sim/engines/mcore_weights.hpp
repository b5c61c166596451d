// A Llama's parameters as Megatron-Core's modules have them, and what is told of them on the way.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "core/plan/config.hpp"
#include "sim/engines/mcore_buffer.hpp"

namespace mfsdp {

/// Of one layer, by their positions among all weights. Not every model has all of them.
struct LayerWeights {
  std::size_t out = 0;
  std::size_t norm1 = 0;
  std::size_t qkv = 0;
  std::optional<std::size_t> qkv_bias{};
  std::optional<std::size_t> query_norm{};
  std::optional<std::size_t> key_norm{};
  std::size_t norm2 = 0;
  std::size_t gate_up = 0;
  std::size_t down = 0;
};

struct McoreWeights {
  std::vector<BufferedWeight> all{};  ///< in the order of modules
  std::vector<LayerWeights> layers{};
  std::size_t embedding = 0;
  std::size_t norm = 0;
  std::size_t head = 0;  ///< the embedding where that is the head, too
};

/// `units`: of the layers.
[[nodiscard]] McoreWeights mcore_weights(const ModelShape& model, UnitId root,
                                         const std::vector<UnitId>& units);

/// What the schedule does when the host comes to a weight.
struct WeightHooks {
  /// A module that has it begins its forward.
  std::function<void(std::size_t weight)> use{};
  /// Its gradient is in the buffer.
  std::function<void(std::size_t weight)> ready{};
};

}  // namespace mfsdp
