#include "verify/cpu/kernels/blas.hpp"

#include <cblas.h>

namespace mfsdp {
namespace {

/// Ranks are threads already: a product stays on the thread that asks for it.
void use_one_thread() {
  [[maybe_unused]] static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
}

CBLAS_TRANSPOSE transpose(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

/// A leading dimension: BLAS wants at least 1, for an empty matrix too.
blasint leading(std::int64_t row) { return static_cast<blasint>(row < 1 ? 1 : row); }

}  // namespace

void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds) {
  use_one_thread();
  cblas_sgemm(CblasRowMajor, transpose(a.transposed), transpose(b.transposed),
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F,
              a.data, leading(a.row), b.data, leading(b.row), adds ? 1.0F : 0.0F, c.data,
              leading(c.row));
}

void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds) {
  use_one_thread();
  cblas_dgemm(CblasRowMajor, transpose(a.transposed), transpose(b.transposed),
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0,
              a.data, leading(a.row), b.data, leading(b.row), adds ? 1.0 : 0.0, c.data,
              leading(c.row));
}

}  // namespace mfsdp
