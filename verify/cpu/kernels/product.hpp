// GEMMs on the calling thread, in float and double.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/plan/kernels/gemm.hpp"

namespace mfsdp {

/// c[m, n] = a[m, k] * b[k, n] (+ c if `adds`); m, n, k are the sizes after transposing.
///
/// Each element of c is one chain: it begins with 0 (or c), and in the order of k each rounded
/// a * b is added and the sum rounded. So its bits depend only on its row of a and its column of b,
/// and not on the number of rows and columns, on tiling, or on the CPU.
void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);
void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);

/// The GEMM compiled for one set of vector instructions. All variants have the same bits.
struct ProductVariant {
  using Multiply = void(Matrix<const float> a, Matrix<const float> b, Matrix<float> c,
                        std::int64_t m, std::int64_t n, std::int64_t k, bool adds);
  using MultiplyDouble = void(Matrix<const double> a, Matrix<const double> b, Matrix<double> c,
                              std::int64_t m, std::int64_t n, std::int64_t k, bool adds);

  std::string_view instructions;  ///< "AVX-512", "AVX2", or "baseline" (every CPU)
  Multiply* multiply;
  MultiplyDouble* multiply_double;
};

/// The variants that this CPU can run, fastest first; multiply() uses the first one.
[[nodiscard]] std::span<const ProductVariant> product_variants();

}  // namespace mfsdp
