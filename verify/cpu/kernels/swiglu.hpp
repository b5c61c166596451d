// Gated units (Shazeer, arXiv 2002.05202): output = g / (1 + exp(-z(g))) * up. SwiGLU has z = g;
// GeGLU with the tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415) has
// z = 2 sqrt(2 / pi) (g + 0.044715 g^3), as (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)). GELU alone has
// no up.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

struct Silu {
  template <class R>
  static R z(R gate) {
    return gate;
  }
  template <class R>
  static R slope(R /*gate*/) {
    return 1;
  }
};

struct GeluTanh {
  template <class R>
  static R z(R gate) {
    return R(kTwoRoots) * (gate + R(kCubic) * gate * gate * gate);
  }
  template <class R>
  static R slope(R gate) {
    return R(kTwoRoots) * (1 + 3 * R(kCubic) * gate * gate);
  }

 private:
  static constexpr double kTwoRoots = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
};

/// The only rounding of the output: backward recomputes the same bits.
template <class Gate, class T>
[[nodiscard]] T gated_value(T gate, T up) {
  const Real<T> g = widen(gate);
  return narrow<T>(g / (1 + exponential(-Gate::z(g))) * widen(up));
}

/// gate_up: [rows, 2 cols], gates first; `product`: [rows, cols].
template <class Gate, class T>
MFSDP_VECTOR_CLONES void gated_forward(std::int64_t rows, std::int64_t cols, const T* gate_up,
                                       T* product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* gate = gate_up + i * 2 * cols;
    for (std::int64_t j = 0; j < cols; ++j)
      product[i * cols + j] = gated_value<Gate>(gate[j], gate[cols + j]);
  }
}

/// Overwrites gate_up with its gradient and, if D is not const, d_product with the output.
template <class Gate, class T, class D>
MFSDP_VECTOR_CLONES void gated_backward(std::int64_t rows, std::int64_t cols, T* gate_up,
                                        D* d_product) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* gates = gate_up + i * 2 * cols;
    T* ups = gates + cols;
    for (std::int64_t j = 0; j < cols; ++j) {
      const T gate = gates[j];
      const T up = ups[j];
      D& d = d_product[i * cols + j];
      const Real<T> gradient = widen(d);
      const Real<T> sigmoid = 1 / (1 + exponential(-Gate::z(widen(gate))));
      const Real<T> activated = widen(gate) * sigmoid;
      const Real<T> slope = sigmoid + activated * (1 - sigmoid) * Gate::slope(widen(gate));
      gates[j] = narrow<T>(gradient * widen(up) * slope);
      ups[j] = narrow<T>(gradient * activated);
      if constexpr (!std::is_const_v<D>) d = gated_value<Gate>(gate, up);
    }
  }
}

// ---- without a gate ----------------------------------------------------------------------------

/// The one rounding, as above.
template <class T>
[[nodiscard]] T gelu_value(T x) {
  return narrow<T>(widen(x) / (1 + exponential(-GeluTanh::z(widen(x)))));
}

template <class T>
MFSDP_VECTOR_CLONES void gelu_forward(std::int64_t count, const T* input, T* product) {
  for (std::int64_t i = 0; i < count; ++i) product[i] = gelu_value(input[i]);
}

/// Overwrites the input with its gradient and, if D is not const, d_product with the output.
template <class T, class D>
MFSDP_VECTOR_CLONES void gelu_backward(std::int64_t count, T* input, D* d_product) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T before = input[i];
    const Real<T> x = widen(before);
    const Real<T> sigmoid = 1 / (1 + exponential(-GeluTanh::z(x)));
    const Real<T> slope = sigmoid + x * sigmoid * (1 - sigmoid) * GeluTanh::slope(x);
    input[i] = narrow<T>(widen(d_product[i]) * slope);
    if constexpr (!std::is_const_v<D>) d_product[i] = gelu_value(before);
  }
}

}  // namespace mfsdp::kernels
