// A Llama's parameters, in the order of its modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// Where in a block a weight is.
enum class BlockPart { norms, attention, mlp };

struct Weight {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  BlockPart part = BlockPart::norms;  ///< of weights of blocks
  bool dealt = false;                 ///< of expert-parallel experts
  bool in_fp8 = false;                ///< as it is gathered

  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
};

[[nodiscard]] std::vector<Weight> block_weights(const ModelShape& model);
/// Embedding, learned positions, final norm with its bias and, if it is untied, head.
[[nodiscard]] std::vector<Weight> root_weights(const ModelShape& model);

}  // namespace mfsdp
