#include "verify/cpu/kernels/sums.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "gpu_backend/cuda/kernels/grid_scratch.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

template <class In, class Out>
void check_accumulate() {
  for (const std::int64_t count : {1, 7, 4096, 100003})
    for (const std::int64_t begin : {0, 1})  // with and without alignment
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(testing::Message() << count << " from " << begin << " adds " << adds);
        const auto in = random_values<In>(count + begin, 1);
        const auto before = random_values<Out>(count + begin, 2);
        const DeviceArray<In> d_in(in);
        const DeviceArray<Out> out(before);
        expect_runs(accumulate(
            kernels::Accumulate<In, Out>{
                .count = count, .in = d_in.data() + begin, .adds = adds, .out = out.data() + begin},
            nullptr));
        // One rounding of one sum: no order to differ in.
        auto expected = before;
        kernels::accumulate(count, in.data() + begin, adds, expected.data() + begin);
        EXPECT_TRUE(same_bits(out.download(), expected));
        EXPECT_TRUE(out.margin_is_whole());
      }
}

TEST(DeviceSums, AccumulateHasTheBitsOfTheCpu) {
  check_accumulate<Bf16, Bf16>();
  check_accumulate<Bf16, float>();
  check_accumulate<float, Bf16>();
  check_accumulate<Fp16, float>();
  check_accumulate<float, Fp16>();
  check_accumulate<float, float>();
}

template <class In, class Out>
void check_sum_ranks() {
  for (const std::int64_t ranks : {1, 2, 5, 9})            // batches of four, and what is left
    for (const std::int64_t count : {1, 7, 4096, 100008})  // whole packs, and not
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(testing::Message() << ranks << " of " << count << " adds " << adds);
        const auto in = random_values<In>(ranks * count, 1);
        const auto before = random_values<Out>(count, 2);
        const DeviceArray<In> d_in(in);
        const DeviceArray<Out> out(before);
        expect_runs(sum_ranks(
            kernels::SumRanks<In, Out>{
                .ranks = ranks, .count = count, .in = d_in.data(), .adds = adds, .out = out.data()},
            nullptr));
        // Ranks are added in their order, microbatches to their sum.
        std::vector<float> sums(static_cast<std::size_t>(count));
        auto expected = before;
        kernels::sum_parts(ranks, count, count, in.data(), sums.data());
        kernels::accumulate(count, sums.data(), adds, expected.data());
        EXPECT_TRUE(same_bits(out.download(), expected));
        EXPECT_TRUE(out.margin_is_whole());
      }
}

TEST(DeviceSums, SumOfRanksHasTheBitsOfTheCpu) {
  check_sum_ranks<Bf16, Bf16>();
  check_sum_ranks<Bf16, float>();
  check_sum_ranks<Fp16, Bf16>();
  check_sum_ranks<Fp16, float>();
  check_sum_ranks<float, Bf16>();
  check_sum_ranks<float, float>();
}

template <class T>
void check_norm_partial() {
  const DeviceArray<GridScratch> workspace(1);  // of any contents
  for (const std::int64_t count : {1, 5, 1000, 4194307})
    for (const std::int64_t begin : {0, 1}) {
      const auto values = random_values<T>(count + begin, 3);
      const DeviceArray<T> d_values(values);
      DeviceArray<float> partial(1);
      std::vector<float> first;
      for (int run = 0; run < 2; ++run) {
        partial.poison();
        expect_runs(norm_partial(
            kernels::NormPartial<T>{
                .values = {d_values.data() + begin, static_cast<std::size_t>(count)},
                .partial = partial.data(),
                .workspace = workspace.as_bytes()},
            nullptr));
        const std::vector<double> expected{kernels::sum_of_squares(count, values.data() + begin)};
        EXPECT_LT(relative_error(partial.download(), expected), 1e-6) << count;
        if (run == 0) first = partial.download();
        EXPECT_TRUE(same_bits(partial.download(), first));
      }
    }
}

TEST(DeviceSums, NormPartialSumsSquaresInOneOrder) {
  check_norm_partial<Bf16>();
  check_norm_partial<float>();
}

TEST(DeviceSums, FinishLossAndNorm) {
  const std::vector<float> sums{10, 4, 20.5F, 6, 0, 0};  // loss and tokens of three ranks
  const DeviceArray<float> d_sums(sums), loss(4), norm(4);
  expect_runs(loss_finish(
      kernels::LossFinish<float>{.sums = {d_sums.data(), sums.size()}, .report = loss.data()},
      nullptr));
  // 30.5 / 10 tokens
  EXPECT_EQ(loss.download(), (std::vector<float>{3.05F, 10, 0.1F, 0}));

  std::vector<float> partials(300, 4.0F);  // sqrt(300 * 4) / 10 = 3.4641
  const auto finish = [&](double limit) {
    const DeviceArray<float> d_partials(partials);
    expect_runs(norm_finish(kernels::NormFinish{.partials = {d_partials.data(), partials.size()},
                                                .exact_partials = {},
                                                .loss = loss.data(),
                                                .limit = limit,
                                                .report = norm.data()},
                            nullptr));
    return norm.download();
  };
  const double size = std::sqrt(1200.0) * static_cast<double>(0.1F);
  EXPECT_EQ(finish(0), (std::vector<float>{static_cast<float>(size), 1, 0, 0}));
  EXPECT_EQ(finish(1), (std::vector<float>{static_cast<float>(size),
                                           static_cast<float>(1 / (size + 1e-6)), 0, 0}));
  partials[299] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(finish(1)[2], 1);
}

/// 1 / (10 tokens * 8), a norm of 3.4641 by that, and the scale of the next step.
TEST(DeviceSums, TheLossScaleIsTakenOutAndKept) {
  const std::vector<float> sums{30.5F, 10};
  const DeviceArray<float> d_sums(sums), loss(4), norm(4);
  const DeviceArray<LossScaleState> scale(
      std::vector<LossScaleState>{{.scale = 8, .good_steps = 1}});
  std::vector<float> partials(300, 4.0F);
  const auto step = [&] {
    const DeviceArray<float> d_partials(partials);
    expect_runs(loss_finish(
        kernels::LossFinish<float>{
            .sums = {d_sums.data(), sums.size()}, .report = loss.data(), .scale = scale.data()},
        nullptr));
    expect_runs(norm_finish(kernels::NormFinish{.partials = {d_partials.data(), partials.size()},
                                                .exact_partials = {},
                                                .loss = loss.data(),
                                                .limit = 0,
                                                .report = norm.data(),
                                                .scale = scale.data(),
                                                .scale_window = 2},
                            nullptr));
    return scale.download().front();
  };
  EXPECT_EQ(step(), (LossScaleState{.scale = 16}));  // the second good step
  EXPECT_EQ(loss.download(), (std::vector<float>{3.05F, 10, 0.0125F, 0}));
  EXPECT_EQ(norm.download()[3], 8);
  EXPECT_FLOAT_EQ(norm.download()[0], std::sqrt(1200.0F) * 0.0125F);
  EXPECT_EQ(step(), (LossScaleState{.scale = 16, .good_steps = 1}));
  partials[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(step(), (LossScaleState{.scale = 8}));
  EXPECT_EQ(norm.download()[2], 1);
}

TEST(DeviceSums, ALossWithoutTokensIsZero) {
  const std::vector<float> sums{0, 0};
  const DeviceArray<float> d_sums(sums), loss(4);
  expect_runs(loss_finish(
      kernels::LossFinish<float>{.sums = {d_sums.data(), sums.size()}, .report = loss.data()},
      nullptr));
  EXPECT_EQ(loss.download(), (std::vector<float>{0, 0, 0, 0}));
}

TEST(DeviceSums, ZeroPaddingClearsGapsAlone) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const DeviceArray<float> data(values);
  const auto bytes = data.as_bytes();
  expect_runs(zero_padding({.gaps = {bytes.subspan(4, 4), bytes.subspan(12, 8)}}, nullptr));
  EXPECT_EQ(data.download(), (std::vector<float>{1, 0, 3, 0, 0, 6}));
}

}  // namespace
}  // namespace mfsdp::cuda
