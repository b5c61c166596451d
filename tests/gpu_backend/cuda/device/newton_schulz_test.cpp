#include "gpu_backend/cuda/newton_schulz.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/plan/newton_schulz.hpp"
#include "core/runtime/step_report.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

/// By columns, in double: X (a I + b B + c B^2) with B = X^T X, five times.
std::vector<double> reference(std::vector<double> x, std::int64_t rows, std::int64_t cols) {
  const auto m = static_cast<std::size_t>(rows);
  const auto n = static_cast<std::size_t>(cols);
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::sqrt(squares);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> gram(n * n, 0), next(m * n, 0);
    for (std::size_t k = 0; k < m; ++k)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) gram[i * n + j] += x[k * n + i] * x[k * n + j];
    std::vector<double> polynomial(n * n, 0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t j = 0; j < n; ++j)
          polynomial[i * n + j] += 2.0315 * gram[i * n + k] * gram[k * n + j];
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        polynomial[i * n + j] += (i == j ? 3.4445 : 0) - 4.7750 * gram[i * n + j];
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t j = 0; j < n; ++j) next[i * n + j] += x[i * n + k] * polynomial[k * n + j];
    x = next;
  }
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
  for (double& value : x) value *= scale;
  return x;
}

/// |got - wanted| / |wanted|.
template <class T>
double relative(const std::vector<T>& got, const std::vector<double>& wanted) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double difference = static_cast<double>(widen(got[i])) - wanted[i];
    off += difference * difference;
    all += wanted[i] * wanted[i];
  }
  return std::sqrt(off / all);
}

/// `decay`: columns shrink by so much from the first to the last, and singular values with them.
template <class T>
void check_orthogonal(std::int64_t rows, std::int64_t cols, double bound, double decay = 1) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", decay " << decay);
  std::vector<T> values = random_values<T>(rows * cols, 7, 1e-3F);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const double part = static_cast<double>(i % cols) / static_cast<double>(cols);
    T& value = values[static_cast<std::size_t>(i)];
    value = narrow<T>(widen(value) * static_cast<float>(std::pow(decay, part)));
  }
  std::vector<double> wide;
  for (const T value : values) wide.push_back(widen(value));
  const DeviceArray<T> matrix(values);
  const DeviceArray<std::byte> workspace(newton_schulz_workspace_of(rows, cols, sizeof(T)).bytes);
  const kernels::NewtonSchulz<T> k{
      .rows = rows, .cols = cols, .matrix = matrix.data(), .workspace = workspace.as_bytes()};
  GemmPlanner planner = GemmPlanner::create({}).value();
  const auto prepared = prepare(planner, k, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  EXPECT_TRUE(same_bits(matrix.download(), values));  // without timing nothing runs
  expect_runs(run(planner, k, nullptr));
  const std::vector<T> once = matrix.download();
  EXPECT_LT(relative(once, reference(wide, rows, cols)), bound);
  EXPECT_TRUE(matrix.margin_is_whole());
  EXPECT_TRUE(workspace.margin_is_whole());
  const DeviceArray<T> again(values);
  kernels::NewtonSchulz<T> other = k;
  other.matrix = again.data();
  expect_runs(run(planner, other, nullptr));
  EXPECT_TRUE(same_bits(again.download(), once));
}

// bf16 results have a rounding error of 0.0017 on average; GEMMs in fp16 add some error.
TEST(NewtonSchulz, IsTheReference) {
  check_orthogonal<Bf16>(256, 256, 0.01);  // cut in parts
  check_orthogonal<Bf16>(256, 768, 0.01);
  check_orthogonal<Bf16>(768, 256, 0.01);  // worked on as its transpose
  check_orthogonal<Bf16>(64, 200, 0.01);   // whole
  check_orthogonal<Bf16>(100, 36, 0.01);
  check_orthogonal<Bf16>(5, 3, 0.02);
  check_orthogonal<float>(256, 320, 1e-4);
  check_orthogonal<float>(33, 20, 1e-4);
}

TEST(NewtonSchulz, BearsSmallSingularValues) {
  check_orthogonal<Bf16>(256, 256, 0.01, 1e-3);  // the plain form
  check_orthogonal<Bf16>(512, 256, 0.01, 1e-3);  // columns of the shorter side shrink
  check_orthogonal<Bf16>(256, 512, 0.1, 1e-3);   // 0.04 where this is emulated
}

TEST(NewtonSchulz, OfZerosAreZeros) {
  const std::vector<Bf16> zeros(256 * 256);
  const DeviceArray<Bf16> matrix(zeros);
  const DeviceArray<std::byte> workspace(newton_schulz_workspace_of(256, 256, 2).bytes);
  const kernels::NewtonSchulz<Bf16> k{
      .rows = 256, .cols = 256, .matrix = matrix.data(), .workspace = workspace.as_bytes()};
  GemmPlanner planner = GemmPlanner::create({}).value();
  ASSERT_TRUE(prepare(planner, k, nullptr));
  expect_runs(run(planner, k, nullptr));
  for (const Bf16 value : matrix.download()) EXPECT_EQ(widen(value), 0);
}

TEST(NewtonSchulz, TooSmallAWorkspaceIsAnError) {
  const DeviceArray<Bf16> matrix(4);
  const DeviceArray<std::byte> workspace(256);
  GemmPlanner planner = GemmPlanner::create({}).value();
  const auto prepared =
      prepare(planner,
              kernels::NewtonSchulz<Bf16>{
                  .rows = 2, .cols = 2, .matrix = matrix.data(), .workspace = workspace.as_bytes()},
              nullptr);
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().message().find("expected a workspace of"), std::string::npos);
}

template <class G, class D>
void check_momentum(bool finite) {
  for (const std::int64_t elements : {1, 63, 70001}) {
    const auto gradients = random_values<G>(elements, 1);
    const auto buffer = random_values<float>(elements, 2);
    const OptimizerSettings settings{.momentum = 0.9};
    const DeviceArray<G> d_gradients(gradients);
    const DeviceArray<float> d_buffer(buffer);
    const DeviceArray<D> directions(elements);
    const DeviceArray<StepBlock> block(std::vector<StepBlock>{{.learning_rate = 1}});
    const DeviceArray<LossReport> loss(std::vector<LossReport>{{.inverse_tokens = 0.25}});
    const DeviceArray<NormReport> norm(std::vector<NormReport>{
        {.norm = 3, .clip_factor = 0.5, .non_finite = finite ? 0.0F : 1.0F}});
    const DeviceArray<kernels::DecayRun> run(
        std::vector<kernels::DecayRun>{{.first = 0, .count = elements}});
    expect_runs(momentum(
        kernels::Update<G, D, D, float>{.elements = elements,
                                        .gradients = d_gradients.data(),
                                        .weights = directions.data(),
                                        .states = {d_buffer.data()},
                                        .step = block.data(),
                                        .loss = reinterpret_cast<const float*>(loss.data()),
                                        .norm = reinterpret_cast<const float*>(norm.data())},
        settings, {run.data(), 1}, nullptr));
    const auto made = directions.download();
    const auto kept = d_buffer.download();
    EXPECT_TRUE(directions.margin_is_whole());
    if (!finite) {
      EXPECT_TRUE(same_bits(kept, buffer));
      for (const D value : made) EXPECT_EQ(widen(value), 0);
      continue;
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double g = static_cast<double>(widen(gradients[i])) * 0.25 * 0.5;
      const double m = 0.9 * static_cast<double>(buffer[i]) + 0.1 * g;
      ASSERT_NEAR(kept[i], m, 1e-6 * std::fabs(m) + 1e-7) << i;
      const double ahead = 0.9 * m + 0.1 * g;
      ASSERT_NEAR(widen(made[i]), ahead, (sizeof(D) == 2 ? 4e-3 : 1e-6) * std::fabs(ahead) + 1e-7)
          << i;
    }
  }
}

TEST(MuonMomentum, LooksAhead) {
  check_momentum<float, Bf16>(true);
  check_momentum<float, float>(true);
  check_momentum<Bf16, Bf16>(true);
  check_momentum<Bf16, float>(true);
}

TEST(MuonMomentum, OfAGradientThatIsNotFiniteIsNone) { check_momentum<float, Bf16>(false); }

}  // namespace
}  // namespace mfsdp::cuda
