// Where Megatron-Core's DistributedDataParallel puts parameters: in one buffer, last ones first,
// cut into buckets. Of each bucket a rank's optimizer has an equal part, whatever parameters it
// cuts.
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
  bool dealt = false;        ///< of an expert that only some ranks have: in a buffer of their own
  // Where it lies, as the buffer decides.
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

  /// Elements of that weight that rank 0's optimizer has.
  [[nodiscard]] std::int64_t owned(std::size_t weight, std::int64_t ranks) const;
  /// Elements that are none of any weight.
  [[nodiscard]] std::int64_t padding() const;
};

/// A bucket ends with the weight that fills it: 40 million elements or, of many ranks, a million
/// for each. Weights begin at multiples of 64, buckets end at multiples of the ranks and of 128.
[[nodiscard]] ParameterBuffer parameter_buffer(std::vector<BufferedWeight> weights,
                                               std::int64_t ranks);

}  // namespace mfsdp
