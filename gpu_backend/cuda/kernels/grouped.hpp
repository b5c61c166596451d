// Grouped GEMMs of experts with their rows: one launch each, which reads on the device where every
// expert's rows end. The version is chosen before the first step (grouped_products.hpp).
//
//   version      operands         what it is
//   plain        all              fused multiply-adds in fp32; --exact-sums
//   warps        bf16, fp16       tensor cores by mma.sync
//   warpgroups   bf16, fp16       tensor cores by wgmma, operands by TMA: compute capability 9.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/plan/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

enum class GroupedKind { forward, input_gradient, weight_gradient };
enum class GroupedVersion { plain, warps, warpgroups };

/// Arguments that the three versions share. c = a * b for each expert e with its R rows, which come
/// after those of expert e - 1:
///
///   kind              a               b            c            summed over
///   forward           [R, k]          [n, k], e's  [R, n]       k
///   input_gradient    [R, n]          [n, k], e's  [R, k]       n
///   weight_gradient   [R, n]          [R, k]       [n, k], e's  R
template <class T, class G>
struct GroupedCall {
  kernels::GroupedSizes sizes = {};
  const T* a = nullptr;
  const T* b = nullptr;
  const std::int32_t* ends = nullptr;
  G* c = nullptr;
  bool adds = false;  ///< to c; only weight gradients
};

template <class T>
[[nodiscard]] GroupedCall<T, T> grouped_call(const kernels::GroupedProduct<T>& p) {
  return {.sizes = p.sizes, .a = p.input, .b = p.weight, .ends = p.ends, .c = p.output};
}
template <class T, class G>
[[nodiscard]] GroupedCall<T, G> grouped_call(const kernels::GroupedWeightGradient<T, G>& p) {
  return {.sizes = p.sizes,
          .a = p.d_output,
          .b = p.input,
          .ends = p.ends,
          .c = p.weight_grad,
          .adds = p.adds};
}

template <GroupedKind kind, class T, class G>
[[nodiscard]] Result<void> grouped_plain(const GroupedCall<T, G>& call, cudaStream_t stream);

/// Weight gradients under --exact-sums: every term a * b is rounded to the grid before it is added.
template <class T>
[[nodiscard]] Result<void> grouped_exact(const kernels::GroupedWeightGradient<T, float>& p,
                                         cudaStream_t stream, ExactOutlier* outlier);

/// T: bf16 or fp16. n and k are multiples of 8, operands begin on multiples of 16 bytes.
template <GroupedKind kind, class T, class G>
[[nodiscard]] Result<void> grouped_warps(const GroupedCall<T, G>& call, cudaStream_t stream);

/// TMA descriptors of a and b, with the boxes that grouped_warpgroups() loads.
struct GroupedMaps {
  CUtensorMap a;
  CUtensorMap b;
};
inline constexpr int kWarpgroupTileRows = 128;
inline constexpr int kWarpgroupTileCols = 256;
inline constexpr int kWarpgroupInner = 64;  ///< elements of a 128-byte row of shared memory

/// As grouped_warps().
template <GroupedKind kind, class T, class G>
[[nodiscard]] Result<void> grouped_warpgroups(const GroupedCall<T, G>& call,
                                              const GroupedMaps& maps, cudaStream_t stream);

/// Whether the current device runs grouped_warpgroups().
[[nodiscard]] Result<bool> has_warpgroups();

}  // namespace mfsdp::cuda
