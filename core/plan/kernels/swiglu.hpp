// Activations of an MLP: SwiGLU and GeGLU, which multiply by a gate, and GELU, which has none.
#pragma once

#include <cstdint>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp::kernels {

/// `product` = silu(gate) * up, or gelu(gate) * up.
template <class T>
struct SwigluForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* gate_up = nullptr;  ///< gates first
  T* product = nullptr;
  float* amax = nullptr;  ///< [1]: the largest |`product`|; null where not wanted

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("gate_up", gate_up, {"rows", {2, "cols"}});
    op.writes("product", product, {"rows", "cols"});
    op.writes("amax", amax, {1}, {.optional = true, .element = Element::fp32});
  }
};

/// Overwrites gate_up with its gradient.
template <class T>
struct SwigluBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* gate_up = nullptr;  ///< gates first
  const T* d_product = nullptr;
  T* product = nullptr;   ///< recomputed over d_product, which is read first; null where not wanted
  float* amax = nullptr;  ///< [1]: the largest magnitude of the gradient; null where not wanted

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.updates("gate_up", gate_up, {"rows", {2, "cols"}});
    op.yields("d_product", d_product, product, {"rows", "cols"});
    op.writes("amax", amax, {1}, {.optional = true, .element = Element::fp32});
  }
};

/// `product` = gelu(input), in its tanh form.
template <class T>
struct GeluForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* input = nullptr;
  T* product = nullptr;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("input", input, {"rows", "cols"});
    op.writes("product", product, {"rows", "cols"});
  }
};

/// Overwrites the input with its gradient.
template <class T>
struct GeluBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* input = nullptr;
  const T* d_product = nullptr;
  T* product = nullptr;  ///< recomputed as in SwigluBackward; null where not wanted

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.updates("input", input, {"rows", "cols"});
    op.yields("d_product", d_product, product, {"rows", "cols"});
  }
};

}  // namespace mfsdp::kernels
