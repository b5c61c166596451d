// Matrix products by OpenBLAS on the calling thread, in float and double alike.
#pragma once

#include <cstdint>

namespace mfsdp {

/// A matrix in row-major memory, of which a product uses the transpose where `transposed`.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row = 0;  ///< elements from one stored row to the next
  bool transposed = false;
};

/// c[m, n] = a[m, k] * b[k, n] (+ c where `adds`); m, n, k are of the product, after transposing.
/// Equal shapes and values give equal bits on one machine.
void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);
void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds = false);

}  // namespace mfsdp
