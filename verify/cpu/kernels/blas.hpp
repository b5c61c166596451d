// Matrix products by OpenBLAS on the calling thread, in float and double alike.
#pragma once

#include <cstdint>

#include "core/runtime/calls/gemm.hpp"

namespace mfsdp {

/// c[m, n] = a[m, k] * b[k, n] (+ c where `adds`); m, n, k are of the product, after transposing.
/// Equal shapes and values give equal bits on one machine.
void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);
void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);

}  // namespace mfsdp
