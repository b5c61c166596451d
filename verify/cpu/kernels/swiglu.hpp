// SwiGLU (Shazeer, arXiv 2002.05202): product = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

/// The one rounding of a product: backward makes the very same bits again.
template <class T>
[[nodiscard]] T swiglu_value(T gate, T up) {
  const Real<T> g = widen(gate);
  return narrow<T>(g / (1 + std::exp(-g)) * widen(up));
}

/// gate_up: [rows, 2 cols], gates first; product: [rows, cols].
template <class T>
void swiglu_forward(std::int64_t rows, std::int64_t cols, const T* gate_up, T* product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* gate = gate_up + i * 2 * cols;
    for (std::int64_t j = 0; j < cols; ++j)
      product[i * cols + j] = swiglu_value(gate[j], gate[cols + j]);
  }
}

/// Overwrites gate_up with its gradient. `product`: written again where it is not null; may be
/// d_product, whose elements are read first.
template <class T>
void swiglu_backward(std::int64_t rows, std::int64_t cols, T* gate_up, const T* d_product,
                     T* product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* gates = gate_up + i * 2 * cols;
    T* ups = gates + cols;
    for (std::int64_t j = 0; j < cols; ++j) {
      const T gate = gates[j];
      const T up = ups[j];
      const Real<T> gradient = widen(d_product[i * cols + j]);
      const Real<T> sigmoid = 1 / (1 + std::exp(-widen(gate)));
      const Real<T> silu = widen(gate) * sigmoid;
      gates[j] = narrow<T>(gradient * widen(up) * (sigmoid + silu * (1 - sigmoid)));
      ups[j] = narrow<T>(gradient * silu);
      if (product != nullptr) product[i * cols + j] = swiglu_value(gate, up);
    }
  }
}

}  // namespace mfsdp::kernels
