// Common to both versions of Megatron-FSDP: parameters that are gathered together are in one flat
// buffer, of which every rank owns an equal shard (core/shard/flat_layout.hpp).
#pragma once

#include <optional>
#include <vector>

#include "core/shard/flat_layout.hpp"
#include "sim/engines/adamw.hpp"
#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/llama_weights.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

struct FlatUnit {
  UnitId unit;
  std::vector<Weight> weights;      ///< in the order of modules
  std::vector<std::size_t> placed;  ///< positions of weights, in the order of the layout
  FlatLayout layout;
  std::vector<std::int64_t> owned;  ///< elements of each weight that rank 0 has
  Tensor compute_weights{};         ///< of this rank
  Tensor whole_weights{};           ///< of all ranks, if they are kept
  Tensor main_gradients{};          ///< of this rank, or not yet reduced
  // While it is gathered.
  std::optional<Tensor> gathered{};
  std::optional<Mark> gather{};
  /// The reduced main gradients, if those of a microbatch are not reduced.
  std::optional<Tensor> reduced{};

  [[nodiscard]] std::int64_t shard() const { return layout.shard(); }
  [[nodiscard]] std::int64_t whole() const { return layout.elements; }
  [[nodiscard]] std::int64_t padding() const;
};

/// Embedding, final norm and head are one unit; each block is another.
struct FlatUnits {
  FlatUnit root;
  std::vector<FlatUnit> blocks;
};

/// Whether weights are in the order of modules, or those with the longest rows first.
enum class UnitOrder { modules, longest_rows };

[[nodiscard]] FlatUnits flat_units(StepBuilder& step, const PlanConfig& config, UnitOrder order);

/// In the order of optimizers: embedding, blocks, norm, head.
[[nodiscard]] std::vector<OwnedWeight> owned_weights(const FlatUnits& units);

}  // namespace mfsdp
