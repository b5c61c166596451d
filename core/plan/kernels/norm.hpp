// RMS norms, layer norms, and column sums, which end their weights' gradients.
#pragma once

#include <cstdint>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/pieces.hpp"

namespace mfsdp::kernels {

/// normed = x * rstd * (weight_offset + weight) of each row x, with rstd = 1 / sqrt(mean(x^2) +
/// epsilon). x is the residual or, where there is a delta, the stored sum of both; where there is a
/// skip, that is added to what is normed.
template <class T>
struct RmsNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Real<T> epsilon = 0;
  const T* residual = nullptr;
  const T* delta = nullptr;  ///< added to the residual; null with residual_out
  const T* weight = nullptr;
  Real<T> weight_offset = 0;  ///< 1 of norms whose weights are centred on 0
  const T* skip = nullptr;    ///< or null
  T* residual_out = nullptr;
  T* normed = nullptr;
  Real<T>* rstd = nullptr;
  float* amax = nullptr;  ///< [1]: the largest |normed|; null where not wanted

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("epsilon", epsilon);
    op.attribute("rows", rows);
    op.attribute_if_any("zero_centered", weight_offset);
    op.reads("residual", residual, {"rows", "cols"});
    op.reads("delta", delta, {"rows", "cols"}, {.optional = true});
    op.reads("weight", weight, {"cols"});
    op.reads("skip", skip, {"rows", "cols"}, {.optional = true});
    op.writes("residual_out", residual_out, {"rows", "cols"}, {.optional = true});
    op.writes("normed", normed, {"rows", "cols"});
    op.writes("rstd", rstd, {"rows"});
    op.writes("amax", amax, {1}, {.optional = true, .element = Element::fp32});
    op.expect((delta == nullptr) == (residual_out == nullptr), "residual_out",
              "expected together with delta, or neither");
  }
};

/// The gradient of x, and the first stage of the weight's.
template <class T>
struct RmsNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  Real<T> weight_offset = 0;
  bool adds = false;  ///< to d_residual
  T* d_residual = nullptr;
  T* normed = nullptr;  ///< may be d_normed: each row is read first; null where not wanted
  /// Of the weight's gradient; row i adds to row i % partial_rows.
  Real<T>* partials = nullptr;
  float* amax = nullptr;  ///< [1]: the largest |d_residual|; null where not wanted
  Pieces pieces = {};

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.attribute_if_any("zero_centered", weight_offset);
    op.yields("d_normed", d_normed, normed, {"rows", "cols"});
    op.reads("input", input, {"rows", "cols"});
    op.reads("rstd", rstd, {"rows"});
    op.reads("weight", weight, {"cols"});
    op.adds("d_residual", d_residual, adds, {"rows", "cols"});
    op.writes("partials", partials, {"partial_rows", "cols"});
    op.writes("amax", amax, {1}, {.optional = true, .element = Element::fp32});
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "input", rows, pieces);
    op.expect(partial_rows >= 1, "partials", "expected at least one row");
  }
};

/// RMS norm of the first `cols` elements of each row of `width`.
template <class T>
struct LatentNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t width = 0;
  Real<T> epsilon = 0;
  const T* input = nullptr;
  const T* weight = nullptr;
  T* normed = nullptr;
  Real<T>* rstd = nullptr;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("epsilon", epsilon);
    op.attribute("latent_width", width);
    op.attribute("rows", rows);
    op.reads("input", input, {"rows", "latent_width"});
    op.reads("weight", weight, {"cols"});
    op.writes("normed", normed, {"rows", "cols"});
    op.writes("rstd", rstd, {"rows"});
    op.expect(cols <= width, "input", "expected rows that the norm's columns fit in");
  }
};

/// Writes whole rows: the gradient of the norm's columns, then that of the others, which it copies.
template <class T>
struct LatentNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t width = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  const T* d_rest = nullptr;  ///< [rows, width - cols]
  T* d_input = nullptr;
  T* normed = nullptr;  ///< may be d_normed; null where not wanted
  Real<T>* partials = nullptr;
  Pieces pieces = {};

  void state(auto& op) {
    std::int64_t rest = 0;
    op.attribute("cols", cols);
    op.attribute("latent_width", width);
    op.attribute("rotated_dim", rest);
    op.attribute("rows", rows);
    op.yields("d_normed", d_normed, normed, {"rows", "cols"});
    op.reads("input", input, {"rows", "latent_width"});
    op.reads("rstd", rstd, {"rows"});
    op.reads("weight", weight, {"cols"});
    op.reads("d_turned", d_rest, {"rows", "rotated_dim"});
    op.writes("d_input", d_input, {"rows", "latent_width"});
    op.writes("partials", partials, {"partial_rows", "cols"});
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "input", rows, pieces);
    op.expect(partial_rows >= 1, "partials", "expected at least one row");
    op.expect(cols < width, "input", "expected rows with more than the norm's columns");
    op.expect(cols + rest == width, "d_turned", "expected the ", width - cols,
              " columns that the norm leaves, got ", rest);
  }
};

/// normed = (x - mean) * rstd * weight + bias of each row x, with rstd = 1 / sqrt(mean of (x -
/// mean)^2 + epsilon). x as of RmsNormForward, without a skip.
template <class T>
struct LayerNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Real<T> epsilon = 0;
  const T* residual = nullptr;
  const T* delta = nullptr;  ///< added to the residual; null with residual_out
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* residual_out = nullptr;
  T* normed = nullptr;
  Real<T>* mean = nullptr;
  Real<T>* rstd = nullptr;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("epsilon", epsilon);
    op.attribute("rows", rows);
    op.reads("residual", residual, {"rows", "cols"});
    op.reads("delta", delta, {"rows", "cols"}, {.optional = true});
    op.reads("weight", weight, {"cols"});
    op.reads("weight", bias, {"cols"});
    op.writes("residual_out", residual_out, {"rows", "cols"}, {.optional = true});
    op.writes("normed", normed, {"rows", "cols"});
    op.writes("mean", mean, {"rows"});
    op.writes("rstd", rstd, {"rows"});
    op.expect((delta == nullptr) == (residual_out == nullptr), "residual_out",
              "expected together with delta, or neither");
  }
};

template <class T>
struct LayerNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;
  const Real<T>* mean = nullptr;
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  bool adds = false;  ///< to d_residual
  T* d_residual = nullptr;
  T* normed = nullptr;  ///< as of RmsNormBackward
  /// Of the weight's gradient, then as many rows of the bias's; rows as of RmsNormBackward.
  Real<T>* partials = nullptr;
  Pieces pieces = {};

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.yields("d_normed", d_normed, normed, {"rows", "cols"});
    op.reads("input", input, {"rows", "cols"});
    op.reads("mean", mean, {"rows"});
    op.reads("rstd", rstd, {"rows"});
    op.reads("weight", weight, {"cols"});
    op.reads("weight", bias, {"cols"});
    op.adds("d_residual", d_residual, adds, {"rows", "cols"});
    op.writes("partials", partials, {{2, "partial_rows"}, "cols"});
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "input", rows, pieces);
    op.expect(partial_rows >= 1, "partials", "expected at least two rows");
  }
};

/// output[row] += bias of each row: where the rows are sums of terms of several ranks.
template <class T>
struct AddBias {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* bias = nullptr;  ///< [cols]
  T* output = nullptr;      ///< [rows, cols]

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("weight", bias, {"cols"});
    op.updates("output", output, {"rows", "cols"});
  }
};

/// out[cols] = (out +) sum over the rows of in, rounded once: a bias's gradient.
template <class T, class G>
struct ColumnSums {
  std::int64_t rows = 0;  ///< at least 1
  std::int64_t cols = 0;
  const T* in = nullptr;
  bool adds = false;
  G* out = nullptr;
  std::int64_t partial_rows = 0;  ///< at least 1 where there are partials
  Real<T>* partials = nullptr;    ///< scratch; null for norm_weight_grad
  Pieces pieces = {};

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("d_output", in, {"rows", "cols"});
    op.scratch("partials", partials, {"partial_rows", "cols"});
    op.adds("weight_grad", out, adds, {"cols"});
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "d_output", rows, pieces);
    op.expect(rows >= 1, "d_output", "expected at least one row");
    op.expect(partial_rows >= 1, "partials", "expected at least one row");
  }
};

/// The second stage of a norm's weight gradient: the sums of its partials.
template <class G>
struct NormWeightGradient : ColumnSums<Real<G>, G> {
  void state(auto& op) {
    op.attribute("cols", this->cols);
    op.attribute("rows", this->rows);
    op.reads("partials", this->in, {"rows", "cols"});
    op.adds("weight_grad", this->out, this->adds, {"cols"}, {.element = Element::gradient});
    op.pieces("rows", "partials", this->rows, this->pieces, {.rows_are_sums = true});
    op.expect(this->rows >= 1, "partials", "expected at least one row");
  }
};

}  // namespace mfsdp::kernels
