// Layout of parameters in Megatron-Core's DistributedDataParallel: one buffer, the last parameters
// first, divided into buckets. A rank's optimizer has an equal shard of each bucket; shards may
// split parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/quantity.hpp"

namespace mfsdp {

struct BufferedWeight {
  UnitId unit;
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 1;  ///< 1: a vector, which does not decay
  bool dealt = false;        ///< expert-parallel: in a separate buffer
  bool whole = false;        ///< on all ranks of tp, which divide the others
  bool of_heads = false;     ///< a norm of heads, of which ranks of tp have others
  std::size_t chunk = 0;     ///< of the stage
  // Position, set by the buffer.
  std::int64_t begin = 0;
  std::size_t bucket = 0;

  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] bool is_vector() const { return columns == 1; }
};

struct Bucket {
  std::int64_t begin = 0;  ///< elements of the buffer
  std::int64_t end = 0;    ///< padded
  std::size_t weights = 0;

  [[nodiscard]] std::int64_t elements() const { return end - begin; }
};

struct ParameterBuffer {
  std::vector<BufferedWeight> weights;  ///< in the order of modules
  std::vector<Bucket> buckets;          ///< from the last modules to the first
  std::int64_t elements = 0;

  /// Number of that weight's elements that rank 0's optimizer has.
  [[nodiscard]] std::int64_t owned(std::size_t weight, std::int64_t ranks) const;
  /// Number of elements that belong to no weight.
  [[nodiscard]] std::int64_t padding() const;
};

/// A bucket ends with the weight that fills it: 40 million elements, or, with many ranks, a million
/// for each rank. Weights begin at multiples of 64; buckets end at multiples of the ranks and of
/// 128.
/// `is_one_bucket`: whatever its size.
[[nodiscard]] ParameterBuffer parameter_buffer(std::vector<BufferedWeight> weights,
                                               std::int64_t ranks, bool is_one_bucket = false);

}  // namespace mfsdp
