#include "gpu_backend/cuda/tensor_map.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, loaded because the program does not link the driver.
Result<EncodeTiled> encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  MFSDP_TRY(check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                   cudaEnableDefault, &found),
                  "cudaGetDriverEntryPointByVersion"));
  if (found != cudaDriverEntryPointSuccess)
    return fail("cuTensorMapEncodeTiled", "expected a driver that has it", Fault::environment);
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

Result<CUtensorMap> tensor_map(const void* data, const TensorMapShape& shape,
                               std::string_view what) {
  constexpr std::int64_t kElement = 2;
  MFSDP_LET(encode, encode_tiled());
  const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const std::array dims{size(shape.dims[0]), size(shape.dims[1]), size(shape.dims[2])};
  const std::array strides{size(shape.strides[0] * kElement), size(shape.strides[1] * kElement)};
  const std::array box{static_cast<cuuint32_t>(shape.box[0]), static_cast<cuuint32_t>(shape.box[1]),
                       static_cast<cuuint32_t>(shape.box[2])};
  constexpr std::array<cuuint32_t, 3> kSteps{1, 1, 1};
  CUtensorMap map{};
  // The driver takes mutable memory, because maps also serve stores.
  const CUresult status =
      encode(&map, shape.type, 3, const_cast<void*>(data), dims.data(), strides.data(), box.data(),
             kSteps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    return fail("cuTensorMapEncodeTiled", fmt::format("the driver refuses {}", what),
                Fault::environment);
  return map;
}

}  // namespace mfsdp::cuda
