// SwiGLU (Shazeer, arXiv 2002.05202): product = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// The one rounding of a product: backward makes the very same bits again.
template <class T>
[[nodiscard]] T swiglu_value(T gate, T up) {
  const Real<T> g = widen(gate);
  return narrow<T>(g / (1 + exponential(-g)) * widen(up));
}

/// gate_up: [rows, 2 cols], gates first; product: [rows, cols].
template <class T>
MFSDP_VECTOR_CLONES void swiglu_forward(std::int64_t rows, std::int64_t cols, const T* gate_up,
                                        T* product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* gate = gate_up + i * 2 * cols;
    for (std::int64_t j = 0; j < cols; ++j)
      product[i * cols + j] = swiglu_value(gate[j], gate[cols + j]);
  }
}

/// Overwrites gate_up with its gradient and, where D is not const, d_product with the product.
template <class T, class D>
MFSDP_VECTOR_CLONES void swiglu_backward(std::int64_t rows, std::int64_t cols, T* gate_up,
                                         D* d_product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* gates = gate_up + i * 2 * cols;
    T* ups = gates + cols;
    for (std::int64_t j = 0; j < cols; ++j) {
      const T gate = gates[j];
      const T up = ups[j];
      D& d = d_product[i * cols + j];
      const Real<T> gradient = widen(d);
      const Real<T> sigmoid = 1 / (1 + exponential(-widen(gate)));
      const Real<T> silu = widen(gate) * sigmoid;
      gates[j] = narrow<T>(gradient * widen(up) * (sigmoid + silu * (1 - sigmoid)));
      ups[j] = narrow<T>(gradient * silu);
      if constexpr (!std::is_const_v<D>) d = swiglu_value(gate, up);
    }
  }
}

}  // namespace mfsdp::kernels
