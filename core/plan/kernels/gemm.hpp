// GEMMs: the three of a linear layer (GemmKind of core/plan/kernel_spec.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/matrix.hpp"
#include "core/plan/kernels/pieces.hpp"

namespace mfsdp::kernels {

/// c[rows, cols] = scale * a[rows, inner] * b[inner, cols] (+ bias[cols]) (+ c).
template <class T, class C>
struct Gemm {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  Matrix<const T> a = {};
  Matrix<const T> b = {};
  const T* bias = nullptr;
  C* c = nullptr;
  std::int64_t c_row = 0;  ///< elements from one row of c to the next; 0: it is contiguous
  bool adds = false;
  Real<T> scale = 1;
  std::span<std::byte> workspace = {};  ///< scratch
  /// Rows that are one GEMM of the library, whose bits may depend on how many there are; 0: all.
  std::int64_t piece_rows = 0;
  /// For a weight gradient: how its inner dim, the tokens, is divided.
  Pieces pieces = {};

  [[nodiscard]] C* row_of_c(std::int64_t row) const { return c + row * pitch(); }
  /// Elements from one row of c to the next.
  [[nodiscard]] std::int64_t pitch() const { return c_row == 0 ? cols : c_row; }
};

/// Sizes of a linear layer's GEMM.
struct GemmSizes {
  std::int64_t m = 0;  ///< tokens
  std::int64_t n = 0;  ///< output features
  std::int64_t k = 0;  ///< input features

  void state(auto& op) {
    op.unread("kind");
    op.attribute("m", m);
    op.attribute("n", n);
    op.attribute("k", k);
    op.flops(costs::gemm);
  }
};

/// output = input * weight^T (+ bias) (+ output).
template <class T>
struct GemmForward : Gemm<T, T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    const T* input = nullptr;
    const T* weight = nullptr;
    Matrix<T> output;
    op.reads("input", input, {"m", "k"});
    op.reads("weight", weight, {"n", "k"});
    op.reads("weight", this->bias, {"n"}, {.optional = true});
    op.adds("output", output, this->adds, {"m", "n"});
    op.attribute_if_any("scale", this->scale);
    op.piece_rows("m", "workspace", s.m, this->piece_rows);
    op.workspace(this->workspace);
    this->rows = s.m, this->cols = s.n, this->inner = s.k;
    this->a = {.data = input, .row = s.k};
    this->b = {.data = weight, .row = s.k, .transposed = true};
    this->c = output.data;
    if (output.row != s.n) this->c_row = output.row;
  }
};

/// d_input = d_output * weight (+ d_input).
template <class T>
struct GemmInputGradient : Gemm<T, T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    const T* weight = nullptr;
    op.reads("d_output", this->a, {"m", "n"});
    op.reads("weight", weight, {"n", "k"});
    op.adds("d_input", this->c, this->adds, {"m", "k"});
    op.attribute_if_any("scale", this->scale);
    op.piece_rows("m", "workspace", s.m, this->piece_rows);
    op.workspace(this->workspace);
    this->rows = s.m, this->cols = s.k, this->inner = s.n;
    this->b = {.data = weight, .row = s.k};
  }
};

/// weight_grad = d_output^T * input (+ weight_grad).
template <class T, class C>
struct GemmWeightGradient : Gemm<T, C> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    const T* input = nullptr;
    op.reads("d_output", this->a, {"m", "n"});
    op.reads("input", input, {"m", "k"});
    op.adds("weight_grad", this->c, this->adds, {"n", "k"});
    op.attribute_if_any("scale", this->scale);
    op.pieces("m", "input", s.m, this->pieces);
    op.workspace(this->workspace);
    this->rows = s.n, this->cols = s.k, this->inner = s.m;
    this->a.transposed = true;
    this->b = {.data = input, .row = s.k};
  }
};

}  // namespace mfsdp::kernels
