// What TMA is told of memory that it loads and stores boxes of.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// Elements of 16 bits. The first dimension is contiguous; strides, in elements, are those of the
/// second and third. In shared memory a box has rows of 128 bytes, turned (128-byte swizzling).
struct TensorMapShape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  std::array<std::int64_t, 3> dims{};
  std::array<std::int64_t, 2> strides{};
  std::array<int, 3> box{};
};

/// What lies outside is loaded as zero. Errors name `what`: the driver has no such function, or
/// refuses the shape (strides or addresses that are no multiples of 16 bytes).
[[nodiscard]] Result<CUtensorMap> tensor_map(const void* data, const TensorMapShape& shape,
                                             std::string_view what);

}  // namespace mfsdp::cuda
