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

// The activation of a gate, gate * sigmoid(z): see verify/cpu/kernels/swiglu.hpp.
struct Silu {
  __device__ static float z(float gate) { return gate; }
  __device__ static float slope(float /*gate*/) { return 1; }
};
struct GeluTanh {
  static constexpr float kTwoRoots = 1.5957691216F;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715F;
  __device__ static float z(float gate) { return kTwoRoots * (gate + kCubic * gate * gate * gate); }
  __device__ static float slope(float gate) { return kTwoRoots * (1 + 3 * kCubic * gate * gate); }
};

/// Replaces gate and up by their gradients. Returns what forward stored, before it was rounded.
template <class Gate, class T>
__device__ float gated_gradient(float& gate, float& up, float d_product) {
  const float s = sigmoid<T>(Gate::z(gate));
  const float product = gated_product(gate, s, up);
  const float activated = gate * s;
  gate = d_product * up * (s + activated * (1 - s) * Gate::slope(gate));
  up = d_product * activated;
  return product;
}

}  // namespace mfsdp::cuda
