// What the kernels of SwiGLU take, and those of GELU without a gate.
#pragma once

#include <cstdint>

namespace mfsdp::kernels {

/// product = silu(gate) * up.
template <class T>
struct SwigluForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* gate_up = nullptr;  ///< [rows, 2 cols], gates first
  T* product = nullptr;        ///< [rows, cols]
};

/// Overwrites gate_up with its gradient.
template <class T>
struct SwigluBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* gate_up = nullptr;          ///< [rows, 2 cols], gates first
  const T* d_product = nullptr;  ///< [rows, cols]
  T* product = nullptr;  ///< made again over d_product, which is read first; null where not wanted
};

/// product = gelu(input), in its tanh form.
template <class T>
struct GeluForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* input = nullptr;  ///< [rows, cols], as all here
  T* product = nullptr;
};

/// Overwrites the input with its gradient.
template <class T>
struct GeluBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* input = nullptr;
  const T* d_product = nullptr;
  T* product = nullptr;  ///< made again as above; null where not wanted
};

}  // namespace mfsdp::kernels
