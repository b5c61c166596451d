// A Llama's parameters in the order of its modules, and in that of their gradients.
#pragma once

#include <compare>
#include <cstddef>
#include <vector>

#include "sim/engines/llama_weights.hpp"

namespace mfsdp {

/// A parameter: unit 0 is embedding, norm and head, the others are blocks; by its position in
/// root_weights() or block_weights().
struct ParameterPlace {
  std::size_t unit = 0;
  std::size_t weight = 0;

  friend auto operator<=>(const ParameterPlace&, const ParameterPlace&) = default;
};

/// Embedding, blocks, norm, head: the order of modules and of optimizers.
[[nodiscard]] std::vector<ParameterPlace> module_order(const ModelShape& model);

/// The order in which backward ends gradients: head, norm, blocks from the last one, embedding. In a
/// block: MLP, second norm, attention, first norm. Heads have no norms.
[[nodiscard]] std::vector<ParameterPlace> ready_order(const ModelShape& model);

/// The weight at a place.
[[nodiscard]] Weight weight_at(const ModelShape& model, ParameterPlace place);

}  // namespace mfsdp
