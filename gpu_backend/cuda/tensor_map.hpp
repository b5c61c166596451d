// TMA descriptors: the shape of memory from which boxes are loaded and stored.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// Elements of 16 bits. The first dimension is contiguous; strides, in elements, are those of the
/// second and third. In shared memory a box has rows of 128 bytes with 128-byte swizzling.
struct TensorMapShape {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  std::array<std::int64_t, 3> dims{};
  std::array<std::int64_t, 2> strides{};
  std::array<int, 3> box{};
};

/// Elements outside the tensor are loaded as zero. Errors name `what`: the driver has no such
/// function, or refuses the shape (strides or addresses that are no multiples of 16 bytes).
[[nodiscard]] Result<CUtensorMap> tensor_map(const void* data, const TensorMapShape& shape,
                                             std::string_view what);

}  // namespace mfsdp::cuda
