// Device code that the kernels of gated activations share.
#pragma once

#include <type_traits>

#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

/// bf16 keeps 8 bits of a result, fp16 11: the fast exponential is exact enough for them.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>)
    return 1 / (1 + expf(-x));
  else
    return __fdividef(1, 1 + __expf(-x));
}

/// The result is rounded once, later. Backward computes the same bits again.
__device__ inline float gated_product(float gate, float sigmoid_of_gate, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoid_of_gate), up);
}

}  // namespace mfsdp::cuda
