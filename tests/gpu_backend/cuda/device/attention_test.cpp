#include "gpu_backend/cuda/attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/warpgroup_attention.hpp"
#include "tests/gpu_backend/cuda/device/attention_reference.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

/// Columns [begin, end) of rows.
template <class V>
std::vector<V> columns(const std::vector<V>& rows, std::int64_t row, std::int64_t begin,
                       std::int64_t end) {
  std::vector<V> part;
  for (auto at = rows.begin(); at != rows.end(); at += row)
    part.insert(part.end(), at + begin, at + end);
  return part;
}

/// A call's memory, with as much workspace as a plan of this layout should have.
template <class T>
struct AttentionCall {
  AttentionCall(const AttentionSizes& sizes, bool deterministic)
      : s(sizes),
        qkv_values(random_values<T>(s.tokens() * s.row(), 1)),
        d_output_values(random_values<T>(s.tokens() * s.width(), 2)),
        qkv(qkv_values),
        d_output(d_output_values),
        output(s.tokens() * s.width()),
        log_sum_exp(s.tokens() * s.heads),
        d_qkv(s.tokens() * s.row()),
        d_query_sum(s.tokens() * s.width()),
        row_sums(s.tokens() * s.heads),
        forward_workspace(kAttentionWorkspaceBytes),
        backward_workspace(0),
        positions(s.positions()),
        deterministic_(deterministic) {}

  [[nodiscard]] kernels::AttentionShape shape() const {
    return {.batch = s.batch,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .seq_len = s.seq_len,
            .head_dim = s.head_dim,
            .window = s.window,
            .query_scalar = s.query_scalar,
            .score_cap = s.score_cap,
            .positions = s.document > 0 ? positions.data() + 1 : nullptr};
  }
  template <class U>
  [[nodiscard]] kernels::HeadView<U> in_rows(U* data, std::int64_t row, std::int64_t head) const {
    return {data + head * s.head_dim, s.seq_len * row, s.head_dim, row};
  }
  [[nodiscard]] kernels::AttentionForward<T> forward() const {
    const T* const packed = qkv.data();
    return {.shape = shape(),
            .query = in_rows(packed, s.row(), 0),
            .key = in_rows(packed, s.row(), s.heads),
            .value = in_rows(packed, s.row(), s.heads + s.kv_heads),
            .output = in_rows(output.data(), s.width(), 0),
            .log_sum_exp = log_sum_exp.data(),
            .workspace = forward_workspace.as_bytes()};
  }
  [[nodiscard]] kernels::AttentionBackward<T> backward() const {
    const kernels::AttentionForward<T> f = forward();
    return {.shape = f.shape,
            .query = f.query,
            .key = f.key,
            .value = f.value,
            .output = {f.output.data, f.output.batch, f.output.head, f.output.position},
            .d_output = in_rows<const T>(d_output.data(), s.width(), 0),
            .log_sum_exp = log_sum_exp.data(),
            .d_query = in_rows(d_qkv.data(), s.row(), 0),
            .d_key = in_rows(d_qkv.data(), s.row(), s.heads),
            .d_value = in_rows(d_qkv.data(), s.row(), s.heads + s.kv_heads),
            .deterministic = deterministic_,
            .d_query_sum = d_query_sum.data(),
            .row_sums = row_sums.data(),
            .workspace = backward_workspace.as_bytes()};
  }

  void prepare(AttentionPlanner& planner) {
    if constexpr (sizeof(T) == 2)
      backward_workspace.resize(attention_backward_workspace(layout_of(backward())));
    const auto first = planner.prepare(forward());
    ASSERT_TRUE(first) << first.error().message();
    const auto second = planner.prepare(backward());
    ASSERT_TRUE(second) << second.error().message();
  }
  void run_forward(AttentionPlanner& planner) {
    const auto ran = planner.run(forward(), nullptr);
    ASSERT_TRUE(ran) << ran.error().message();
  }
  /// Into poison.
  void run_backward(AttentionPlanner& planner) {
    d_qkv.poison();
    d_query_sum.poison();
    row_sums.poison();
    backward_workspace.poison();
    const auto ran = planner.run(backward(), nullptr);
    ASSERT_TRUE(ran) << ran.error().message();
  }
  /// As a run does it.
  void bind_and_run(AttentionPlanner& planner) {
    const auto first = planner.bind(forward(), nullptr);
    ASSERT_TRUE(first) << first.error().message();
    const auto second = planner.bind(backward(), nullptr);
    ASSERT_TRUE(second) << second.error().message();
    output.poison();
    log_sum_exp.poison();
    const auto ran = (*first)();
    ASSERT_TRUE(ran) << ran.error().message();
    d_qkv.poison();
    d_query_sum.poison();
    row_sums.poison();
    backward_workspace.poison();
    const auto back = (*second)();
    ASSERT_TRUE(back) << back.error().message();
  }
  void expect_margins() const {
    for (const bool whole :
         {output.margin_is_whole(), log_sum_exp.margin_is_whole(), d_qkv.margin_is_whole(),
          d_query_sum.margin_is_whole(), row_sums.margin_is_whole(),
          forward_workspace.margin_is_whole(), backward_workspace.margin_is_whole()})
      EXPECT_TRUE(whole);
  }

  AttentionSizes s;
  std::vector<T> qkv_values, d_output_values;
  DeviceArray<T> qkv, d_output, output;
  DeviceArray<float> log_sum_exp;
  DeviceArray<T> d_qkv;
  DeviceArray<float> d_query_sum, row_sums;
  DeviceArray<std::uint8_t> forward_workspace, backward_workspace;
  DeviceArray<std::int32_t> positions;

 private:
  bool deterministic_;
};

/// Gradients of a call against doubles.
template <class T>
void expect_results(const AttentionCall<T>& call) {
  const AttentionSizes& s = call.s;
  const Reference want = reference(s, widened(call.qkv_values), widened(call.d_output_values));
  EXPECT_LT(relative_error(call.output.download(), want.output), kTolerance<T>);
  EXPECT_LT(relative_error(call.log_sum_exp.download(), want.log_sum_exp), 1e-5);
  const std::vector<T> d_qkv = call.d_qkv.download();
  const std::int64_t key = s.width();
  const std::int64_t value = key + s.kv_heads * s.head_dim;
  for (const auto& [name, begin, end] :
       {std::tuple{"dQ", std::int64_t{0}, key}, std::tuple{"dK", key, value},
        std::tuple{"dV", value, s.row()}})
    EXPECT_LT(relative_error(columns(d_qkv, s.row(), begin, end),
                             columns(want.d_qkv, s.row(), begin, end)),
              kTolerance<T>)
        << name;
  call.expect_margins();
}

template <class T>
void expect_right(const AttentionSizes& s, bool deterministic) {
  SCOPED_TRACE(s.text() + (deterministic ? " deterministic" : ""));
  auto planner = AttentionPlanner::create();
  ASSERT_TRUE(planner) << planner.error().message();
  AttentionCall<T> call(s, deterministic);
  ASSERT_NO_FATAL_FAILURE(call.prepare(*planner));
  ASSERT_NO_FATAL_FAILURE(call.run_forward(*planner));
  ASSERT_NO_FATAL_FAILURE(call.run_backward(*planner));
  expect_results(call);
}

const std::vector<AttentionSizes> kAttentionSizes{
    {1, 8, 2, 256, 128}, {2, 8, 2, 200, 64}, {2, 4, 4, 200, 128}, {1, 4, 1, 1024, 64},
    {3, 6, 3, 33, 40},   {2, 4, 2, 32, 16},  {1, 2, 2, 7, 8}};

TEST(Attention, AgreesWithDoubles) {
  for (const AttentionSizes& sizes : kAttentionSizes) expect_right<Bf16>(sizes, false);
}

/// Twice, as sums of dQ are to begin at zero each time.
void expect_right_by_warpgroups(const std::vector<AttentionSizes>& all) {
  const auto has = has_warpgroups();
  ASSERT_TRUE(has) << has.error().message();
  if (!*has) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const AttentionSizes& sizes : all) {
    SCOPED_TRACE(sizes.text());
    auto planner = AttentionPlanner::create(AttentionKernels::warpgroups);
    ASSERT_TRUE(planner) << planner.error().message();
    AttentionCall<Bf16> call(sizes, false);
    ASSERT_NO_FATAL_FAILURE(call.prepare(*planner));
    const auto takes = warpgroups_take(call.backward());
    ASSERT_TRUE(takes && *takes);
    for (int times = 0; times < 2; ++times) {
      ASSERT_NO_FATAL_FAILURE(call.bind_and_run(*planner));
      expect_results(call);
    }
  }
}

// One tile and several, groups of one head and of four, sequences side by side.
TEST(Attention, ByWarpgroupsAgreesWithDoubles) {
  expect_right_by_warpgroups({{1, 4, 1, 128, 128},
                              {1, 8, 2, 512, 128},
                              {2, 4, 4, 384, 128},
                              {3, 6, 2, 256, 128, 0, 2.5},
                              {1, 4, 4, 128, 64},
                              {2, 8, 2, 384, 64},
                              {1, 96, 12, 256, 64},
                              {1, 4, 4, 128, 96},
                              {2, 8, 2, 384, 96},
                              {1, 2, 2, 128, 256},
                              {2, 4, 2, 384, 256}});
}

// At 256 tiles and more, whole attention processes the query heads of a group in one.
TEST(Attention, ByWarpgroupsInGroupsAgreesWithDoubles) {
  expect_right_by_warpgroups({{128, 4, 2, 128, 64}, {32, 8, 4, 256, 64}, {128, 4, 2, 128, 128}});
}

// Windows that end inside tiles and on their borders, less than a block of queries and more than a
// tile.
TEST(Attention, ByWarpgroupsWithWindowsAgreesWithDoubles) {
  for (const std::int64_t head_dim : {64, 96, 128, 256})
    expect_right_by_warpgroups({{1, 4, 1, 512, head_dim, 2},
                                {2, 4, 4, 384, head_dim, 64},
                                {1, 4, 2, 512, head_dim, 129},
                                {1, 4, 1, 512, head_dim, 300, 2.5}});
}

TEST(Attention, ByWarpgroupsWithCapsAgreesWithDoubles) {
  for (const std::int64_t head_dim : {128, 256})
    expect_right_by_warpgroups({{1, 4, 1, 512, head_dim, 0, 2.5, 3},
                                {2, 4, 4, 384, head_dim, 100, 0, 1.5},
                                {1, 4, 2, 384, head_dim, 90, 2.5, 3, 130}});
}

// Documents of one token and a few, and longer than a tile.
TEST(Attention, ByWarpgroupsBetweenDocumentsAgreesWithDoubles) {
  for (const std::int64_t head_dim : {64, 96, 128, 256})
    expect_right_by_warpgroups({{1, 4, 1, 384, head_dim, 0, 0, 0, 1},
                                {2, 4, 2, 512, head_dim, 0, 0, 0, 70},
                                {1, 4, 4, 512, head_dim, 0, 0, 0, 200},
                                {1, 4, 2, 512, head_dim, 90, 0, 0, 130}});
}

// Calls that warpgroups do not support go to cuDNN.
TEST(Attention, WarpgroupsTakeWholeTiles) {
  const auto takes = [](const AttentionSizes& sizes, bool deterministic) {
    AttentionCall<Bf16> call(sizes, deterministic);
    call.backward_workspace.resize(attention_backward_workspace(layout_of(call.backward())));
    const auto taken = warpgroups_take(call.backward());
    return taken && *taken;
  };
  EXPECT_FALSE(takes({1, 4, 1, 200, 128}, false));
  EXPECT_TRUE(takes({1, 4, 1, 256, 64}, false));
  EXPECT_FALSE(takes({1, 2, 1, 256, 64}, false));  // no room for statistics in rows of dQ
  EXPECT_FALSE(takes({1, 4, 1, 256, 80}, false));
  EXPECT_TRUE(takes({1, 4, 1, 256, 96, 100}, false));
  EXPECT_TRUE(takes({1, 4, 1, 256, 128, 0, 0, 3}, false));
  EXPECT_FALSE(takes({1, 4, 1, 256, 64, 0, 0, 3}, false));
  EXPECT_TRUE(takes({1, 4, 1, 256, 256, 0, 0, 0, 5}, false));
  EXPECT_FALSE(takes({1, 4, 1, 256, 128}, true));
}

TEST(Attention, DeterministicAgreesWithDoubles) {
  for (const AttentionSizes& sizes : kAttentionSizes) expect_right<Bf16>(sizes, true);
}

TEST(Attention, InFp16AgreesWithDoubles) {
  for (const AttentionSizes& sizes : kAttentionSizes) expect_right<Fp16>(sizes, false);
}

TEST(Attention, InSinglePrecisionAgreesWithDoubles) {
  for (const AttentionSizes& sizes : kAttentionSizes) expect_right<float>(sizes, false);
  expect_right<float>({2, 3, 1, 65, 20}, false);  // no multiple of anything
}

// A window of 1 leaves queries and keys without gradients, to which no error is relative.
const std::vector<AttentionSizes> kWindows{{1, 8, 2, 256, 128, 2},   {2, 8, 2, 200, 64, 17},
                                           {2, 4, 4, 200, 128, 128}, {1, 4, 1, 1024, 64, 300},
                                           {3, 6, 3, 33, 40, 32},    {2, 4, 2, 32, 16, 32}};

TEST(Attention, WithWindowsAgreesWithDoubles) {
  for (AttentionSizes sizes : kWindows)
    for (const bool deterministic : {false, true}) {
      expect_right<Bf16>(sizes, deterministic);
      sizes.query_scalar = 2.5;
      expect_right<Bf16>(sizes, deterministic);
    }
}

TEST(Attention, InSinglePrecisionWithWindowsAndCapsAgreesWithDoubles) {
  for (AttentionSizes sizes : kWindows) {
    sizes.query_scalar = 2.5;
    sizes.score_cap = 1.5;
    expect_right<float>(sizes, false);
  }
}

TEST(Attention, WithCapsAgreesWithDoubles) {
  for (const std::int64_t window : {0, 100})
    for (const bool deterministic : {false, true})
      for (const std::int64_t head_dim : {64, 128, 256})
        expect_right<Bf16>({.batch = 2,
                            .heads = 8,
                            .kv_heads = 2,
                            .seq_len = 200,
                            .head_dim = head_dim,
                            .window = window,
                            .query_scalar = 2.5,
                            .score_cap = 3},
                           deterministic);
}

// Documents of one token and a few, which begin and end within blocks; with windows and caps.
TEST(Attention, BetweenDocumentsAgreesWithDoubles) {
  constexpr std::array<std::int64_t, 3> documents{1, 5, 70};
  for (std::size_t i = 0; i < kAttentionSizes.size(); ++i)
    for (const bool limited : {false, true}) {
      AttentionSizes sizes = kAttentionSizes[i];
      sizes.document = documents.at(i % documents.size());
      sizes.window = limited ? 20 : 0;
      sizes.score_cap = limited && i % 2 == 0 ? 3 : 0;
      expect_right<float>(sizes, false);
      for (const bool deterministic : {false, true}) expect_right<Bf16>(sizes, deterministic);
    }
}

TEST(Attention, DeterministicGradientsHaveEqualBits) {
  auto planner = AttentionPlanner::create();
  ASSERT_TRUE(planner);
  AttentionCall<Bf16> call({2, 8, 2, 1000, 128}, true);
  ASSERT_NO_FATAL_FAILURE(call.prepare(*planner));
  ASSERT_NO_FATAL_FAILURE(call.run_forward(*planner));
  std::vector<double> first;
  for (int run = 0; run < 10; ++run) {
    ASSERT_NO_FATAL_FAILURE(call.run_backward(*planner));
    const std::vector<double> got = widened(call.d_qkv.download());
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

TEST(Attention, TooLittleWorkspaceNamesBothNumbers) {
  auto planner = AttentionPlanner::create();
  ASSERT_TRUE(planner);
  const AttentionCall<Bf16> call({1, 8, 2, 256, 128}, false);
  kernels::AttentionBackward<Bf16> backward = call.backward();
  backward.workspace = call.qkv.as_bytes().first(1000);
  const auto prepared = planner->prepare(backward);
  ASSERT_FALSE(prepared);
  // dK and dV of 8 query heads in bf16, and cuDNN's own 256 bytes.
  EXPECT_THAT(prepared.error().message(),
              testing::HasSubstr(std::to_string(2 * 256 * 8 * 128 * 2 + 256)));
  EXPECT_THAT(prepared.error().message(), testing::HasSubstr("the plan has 1000"));
}

TEST(Attention, ALayoutThatWasNotPreparedIsAnError) {
  auto planner = AttentionPlanner::create();
  ASSERT_TRUE(planner);
  const auto ran = planner->run(AttentionCall<Bf16>({1, 8, 2, 256, 128}, false).forward(), nullptr);
  ASSERT_FALSE(ran);
  EXPECT_THAT(ran.error().message(), testing::HasSubstr("heads 8 / 2, seq 256"));
}

}  // namespace
}  // namespace mfsdp::cuda
