// The layout of one FlatParameter of torch.distributed.fsdp with use_orig_params=True: parameters
// begin at multiples of 16 bytes in bf16, and the end is padded to a multiple of the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engines/llama_weights.hpp"

namespace mfsdp {

struct FlatParameter {
  std::vector<Weight> weights;
  std::vector<std::int64_t> begins;  ///< element at which each weight begins
  std::int64_t elements = 0;         ///< with padding: a multiple of the ranks
  std::int64_t ranks = 1;

  [[nodiscard]] std::int64_t shard() const { return elements / ranks; }
  [[nodiscard]] std::int64_t padding() const;
  /// Elements of a weight that rank 0 has.
  [[nodiscard]] std::int64_t owned(std::size_t weight) const;
};

[[nodiscard]] FlatParameter flat_parameter(std::vector<Weight> weights, std::int64_t ranks);

}  // namespace mfsdp
