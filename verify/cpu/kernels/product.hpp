// Matrix products on the calling thread, in float and double alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/plan/kernels/gemm.hpp"

namespace mfsdp {

/// c[m, n] = a[m, k] * b[k, n] (+ c where `adds`); m, n, k are of the product, after transposing.
///
/// Each element of c is one chain: 0 (or c), then for one k after the other the rounded product is
/// added and the sum rounded. So its bits depend on its row of a and its column of b alone: not on
/// how many rows and columns there are, where a product is cut, or which CPU computes it.
void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);
void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);

/// A product compiled for one set of vector instructions, all with the same bits.
struct ProductVariant {
  using Multiply = void(Matrix<const float> a, Matrix<const float> b, Matrix<float> c,
                        std::int64_t m, std::int64_t n, std::int64_t k, bool adds);
  using MultiplyDouble = void(Matrix<const double> a, Matrix<const double> b, Matrix<double> c,
                              std::int64_t m, std::int64_t n, std::int64_t k, bool adds);

  std::string_view instructions;  ///< "AVX-512", "AVX2", or "baseline": what every CPU has
  Multiply* multiply;
  MultiplyDouble* multiply_double;
};

/// Those that this CPU can run, the fastest first: multiply() uses that one.
[[nodiscard]] std::span<const ProductVariant> product_variants();

}  // namespace mfsdp
