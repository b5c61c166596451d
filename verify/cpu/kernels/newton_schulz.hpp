// The orthogonalisation of a matrix as defined in core/plan/newton_schulz.hpp, in float or double.
// It is the reference for GPUs, which use the Gram matrix and fp16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/plan/newton_schulz.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/product.hpp"

namespace mfsdp::kernels {

/// Added to the norm, so that a matrix of zeros stays zero.
inline constexpr double kNormEpsilon = 1e-30;

/// Orthogonalises X [m, n], m at most n, row by row: X is overwritten, and its norm need not be 1.
template <class R>
void newton_schulz(std::int64_t m, std::int64_t n, std::vector<R>& x) {
  const auto size = [](std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows * cols);
  };
  double squares = 0;
  for (const R value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  const auto shrink = static_cast<R>(1 / (std::sqrt(squares) + kNormEpsilon));
  for (R& value : x) value *= shrink;
  const NewtonSchulzCoefficients coefficients;
  const auto a = static_cast<R>(coefficients.a);
  const auto b = static_cast<R>(coefficients.b);
  const auto c = static_cast<R>(coefficients.c);
  std::vector<R> gram(size(m, m)), square(size(m, m)), next(size(m, n));
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    const Matrix<const R> of_x{.data = x.data(), .row = n};
    Matrix<const R> turned = of_x;
    turned.transposed = true;
    multiply(of_x, turned, {.data = gram.data(), .row = m}, m, m, n);
    const Matrix<const R> of_gram{.data = gram.data(), .row = m};
    multiply(of_gram, of_gram, {.data = square.data(), .row = m}, m, m, m);
    for (std::size_t i = 0; i < square.size(); ++i) square[i] = b * gram[i] + c * square[i];
    for (std::size_t i = 0; i < x.size(); ++i) next[i] = a * x[i];
    multiply({.data = square.data(), .row = m}, of_x, {.data = next.data(), .row = n}, m, n, m,
             true);
    x.swap(next);
  }
}

/// The matrix [rows, cols] of T in place, scaled: rounded to T once, at the end.
template <class T>
void orthogonalise(std::int64_t rows, std::int64_t cols, T* matrix) {
  using R = Real<T>;
  const bool turns = rows > cols;
  const std::int64_t m = std::min(rows, cols);
  const std::int64_t n = std::max(rows, cols);
  std::vector<R> x(static_cast<std::size_t>(rows * cols));
  const auto place = [&](std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(turns ? j * n + i : i * n + j);
  };
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) x[place(i, j)] = widen(matrix[i * cols + j]);
  newton_schulz<R>(m, n, x);
  const auto scale = static_cast<R>(orthogonal_scale(rows, cols));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      matrix[i * cols + j] = narrow<T>(scale * x[place(i, j)]);
}

}  // namespace mfsdp::kernels
