#include "verify/cpu/kernels/newton_schulz.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mfsdp::kernels {
namespace {

std::vector<double> random_matrix(std::int64_t rows, std::int64_t cols) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> matrix(static_cast<std::size_t>(rows * cols));
  for (double& value : matrix) value = normal(random);
  return matrix;
}

/// The singular values of a diagonal matrix are its elements, and each is mapped on its own: five
/// times s (a + b s^2 + c s^4), from s over the root of the sum of squares.
TEST(NewtonSchulz, SingularValuesGoTheirWay) {
  const std::vector<double> values{3, -2, 0.5, 0};
  std::vector<double> matrix(4 * 6, 0);
  for (std::size_t i = 0; i < 4; ++i) matrix[i * 6 + i] = values[i];
  orthogonalise<double>(4, 6, matrix.data());
  const double norm = std::sqrt(9 + 4 + 0.25);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 6; ++j) {
      double expected = i == j ? values[i] / norm : 0;
      for (int step = 0; step < 5; ++step) {
        const double square = expected * expected;
        expected *= 3.4445 - 4.7750 * square + 2.0315 * square * square;
      }
      EXPECT_NEAR(matrix[i * 6 + j], 0.2 * std::sqrt(6) * expected, 1e-12) << i << ", " << j;
    }
  EXPECT_NEAR(std::fabs(matrix[0]) / (0.2 * std::sqrt(6)), 1, 0.35);  // none is far from 1
}

TEST(NewtonSchulz, TheTransposeBecomesTheTranspose) {
  std::vector<double> wide = random_matrix(3, 7);
  std::vector<double> tall(wide.size());
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 7; ++j) tall[j * 3 + i] = wide[i * 7 + j];
  orthogonalise<double>(3, 7, wide.data());
  orthogonalise<double>(7, 3, tall.data());
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 7; ++j) EXPECT_NEAR(tall[j * 3 + i], wide[i * 7 + j], 1e-12);
}

TEST(NewtonSchulz, SizeDoesNotMatterAndZerosStay) {
  std::vector<double> one = random_matrix(4, 4);
  std::vector<double> small = one;
  for (double& value : small) value *= 1e-12;
  orthogonalise<double>(4, 4, one.data());
  orthogonalise<double>(4, 4, small.data());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], small[i], 1e-9);
  std::vector<float> zeros(12, 0);
  orthogonalise<float>(3, 4, zeros.data());
  for (const float value : zeros) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace mfsdp::kernels
