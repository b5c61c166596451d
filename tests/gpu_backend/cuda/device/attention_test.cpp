#include "gpu_backend/cuda/attention.hpp"

#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

struct Sizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t seq_len = 1;
  std::int64_t head_dim = 8;

  [[nodiscard]] std::int64_t tokens() const { return batch * seq_len; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct Reference {
  std::vector<double> output, log_sum_exp, d_qkv;
};

/// In double, one query row at a time, from packed rows [query heads, key heads, value heads].
Reference reference(const Sizes& s, const std::vector<double>& qkv,
                    const std::vector<double>& d_output) {
  Reference r;
  r.output.assign(static_cast<std::size_t>(s.tokens() * s.width()), 0);
  r.log_sum_exp.assign(static_cast<std::size_t>(s.tokens() * s.heads), 0);
  r.d_qkv.assign(qkv.size(), 0);
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  std::vector<double> p(static_cast<std::size_t>(s.seq_len));
  std::vector<double> dp(p.size());
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t group = h / (s.heads / s.kv_heads);
      const std::int64_t q_col = h * s.head_dim;
      const std::int64_t k_col = (s.heads + group) * s.head_dim;
      const std::int64_t v_col = (s.heads + s.kv_heads + group) * s.head_dim;
      const auto at = [&](std::int64_t position, std::int64_t col) {
        return static_cast<std::size_t>((b * s.seq_len + position) * s.row() + col);
      };
      for (std::int64_t i = 0; i < s.seq_len; ++i) {
        const auto out = static_cast<std::size_t>((b * s.seq_len + i) * s.width() + q_col);
        double largest = -INFINITY;
        for (std::int64_t j = 0; j <= i; ++j) {
          double sum = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d)
            sum += qkv[at(i, q_col + d)] * qkv[at(j, k_col + d)];
          p[static_cast<std::size_t>(j)] = sum * scale;
          largest = std::max(largest, sum * scale);
        }
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double& score = p[static_cast<std::size_t>(j)];
          score = std::exp(score - largest);
          total += score;
        }
        r.log_sum_exp[static_cast<std::size_t>((b * s.seq_len + i) * s.heads + h)] =
            largest + std::log(total);
        double row_sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double& probability = p[static_cast<std::size_t>(j)];
          probability /= total;
          double sum = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            const auto e = static_cast<std::size_t>(d);
            r.output[out + e] += probability * qkv[at(j, v_col + d)];
            sum += d_output[out + e] * qkv[at(j, v_col + d)];
            r.d_qkv[at(j, v_col + d)] += probability * d_output[out + e];
          }
          dp[static_cast<std::size_t>(j)] = sum;
          row_sum += probability * sum;
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double ds = p[n] * (dp[n] - row_sum) * scale;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            r.d_qkv[at(i, q_col + d)] += ds * qkv[at(j, k_col + d)];
            r.d_qkv[at(j, k_col + d)] += ds * qkv[at(i, q_col + d)];
          }
        }
      }
    }
  return r;
}

/// Columns [begin, end) of rows.
template <class V>
std::vector<V> columns(const std::vector<V>& rows, std::int64_t row, std::int64_t begin,
                       std::int64_t end) {
  std::vector<V> part;
  for (auto at = rows.begin(); at != rows.end(); at += row)
    part.insert(part.end(), at + begin, at + end);
  return part;
}

class Attention : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS); }
  void TearDown() override { cudnnDestroy(handle_); }

  cudnnHandle_t handle_ = nullptr;
};

/// A call's memory, and its plans for as much workspace as cuDNN likes.
struct Call {
  Call(cudnnHandle_t handle, const Sizes& sizes, bool deterministic)
      : s(sizes),
        qkv_values(random_values<Bf16>(s.tokens() * s.row(), 1)),
        d_output_values(random_values<Bf16>(s.tokens() * s.width(), 2)),
        qkv(qkv_values),
        d_output(d_output_values),
        output(s.tokens() * s.width()),
        log_sum_exp(s.tokens() * s.heads),
        d_qkv(s.tokens() * s.row()),
        d_query_sum(s.tokens() * s.width()),
        row_sums(s.tokens() * s.heads),
        workspace(attention_backward_workspace(layout(), deterministic)),
        forward(layout()),
        backward(layout(), {.deterministic = deterministic, .d_row = s.row()}),
        handle_(handle) {}

  [[nodiscard]] AttentionLayout layout() const {
    const HeadStrides strides{s.seq_len * s.row(), s.head_dim, s.row()};
    return {.batch = s.batch,
            .heads = s.heads,
            .kv_heads = s.kv_heads,
            .seq_len = s.seq_len,
            .head_dim = s.head_dim,
            .query = strides,
            .key = strides,
            .value = strides};
  }
  [[nodiscard]] Bf16* key() const { return qkv.data() + s.width(); }
  [[nodiscard]] Bf16* value() const { return key() + s.kv_heads * s.head_dim; }

  void build() {
    const auto bytes = static_cast<std::int64_t>(workspace.as_bytes().size());
    const auto first = forward.build(CudnnTarget(handle_), kAttentionForwardWorkspace);
    ASSERT_TRUE(first) << first.error().message();
    const auto second = backward.build(CudnnTarget(handle_), bytes);
    ASSERT_TRUE(second) << second.error().message();
  }
  void run_forward() {
    const auto ran = forward.run(handle_, {.query = qkv.data(),
                                           .key = key(),
                                           .value = value(),
                                           .output = output.data(),
                                           .log_sum_exp = log_sum_exp.data(),
                                           .workspace = workspace.data()});
    ASSERT_TRUE(ran) << ran.error().message();
  }
  void run_backward() {
    Bf16* const d_key = d_qkv.data() + s.width();
    const auto ran = backward.run(handle_, {.query = qkv.data(),
                                            .key = key(),
                                            .value = value(),
                                            .output = output.data(),
                                            .d_output = d_output.data(),
                                            .log_sum_exp = log_sum_exp.data(),
                                            .d_query = d_qkv.data(),
                                            .d_key = d_key,
                                            .d_value = d_key + s.kv_heads * s.head_dim,
                                            .d_query_sum = d_query_sum.data(),
                                            .row_sums = row_sums.data(),
                                            .workspace = workspace.data()});
    ASSERT_TRUE(ran) << ran.error().message();
  }
  void poison() {
    d_qkv.poison();
    d_query_sum.poison();
    row_sums.poison();
    workspace.poison();
  }
  void expect_margins() const {
    EXPECT_TRUE(output.margin_is_whole());
    EXPECT_TRUE(log_sum_exp.margin_is_whole());
    EXPECT_TRUE(d_qkv.margin_is_whole());
    EXPECT_TRUE(d_query_sum.margin_is_whole());
    EXPECT_TRUE(row_sums.margin_is_whole());
    EXPECT_TRUE(workspace.margin_is_whole());
  }

  Sizes s;
  std::vector<Bf16> qkv_values, d_output_values;
  DeviceArray<Bf16> qkv, d_output, output;
  DeviceArray<float> log_sum_exp;
  DeviceArray<Bf16> d_qkv;
  DeviceArray<float> d_query_sum, row_sums;
  DeviceArray<std::uint8_t> workspace;
  AttentionForwardPlan forward;
  AttentionBackwardPlan backward;

 private:
  cudnnHandle_t handle_;
};

void expect_right(cudnnHandle_t handle, const Sizes& s, bool deterministic) {
  SCOPED_TRACE(testing::Message() << "B " << s.batch << " H " << s.heads << " K " << s.kv_heads
                                  << " S " << s.seq_len << " D " << s.head_dim
                                  << (deterministic ? " deterministic" : ""));
  Call call(handle, s, deterministic);
  ASSERT_NO_FATAL_FAILURE(call.build());
  ASSERT_NO_FATAL_FAILURE(call.run_forward());
  call.poison();
  ASSERT_NO_FATAL_FAILURE(call.run_backward());
  const Reference want = reference(s, widened(call.qkv_values), widened(call.d_output_values));
  EXPECT_LT(relative_error(call.output.download(), want.output), kTolerance<Bf16>);
  EXPECT_LT(relative_error(call.log_sum_exp.download(), want.log_sum_exp), 1e-4);
  const std::vector<Bf16> d_qkv = call.d_qkv.download();
  const std::int64_t key = s.width();
  const std::int64_t value = key + s.kv_heads * s.head_dim;
  for (const auto& [name, begin, end] :
       {std::tuple{"dQ", std::int64_t{0}, key}, std::tuple{"dK", key, value},
        std::tuple{"dV", value, s.row()}})
    EXPECT_LT(relative_error(columns(d_qkv, s.row(), begin, end),
                             columns(want.d_qkv, s.row(), begin, end)),
              kTolerance<Bf16>)
        << name;
  call.expect_margins();
}

const std::vector<Sizes> kSizes{{1, 8, 2, 256, 128}, {2, 8, 2, 200, 64}, {2, 4, 4, 200, 128},
                                {1, 4, 1, 1024, 64}, {3, 6, 3, 33, 40},  {2, 4, 2, 32, 16},
                                {1, 2, 2, 7, 8}};

TEST_F(Attention, AgreesWithDoubles) {
  for (const Sizes& sizes : kSizes) expect_right(handle_, sizes, false);
}

TEST_F(Attention, DeterministicAgreesWithDoubles) {
  for (const Sizes& sizes : kSizes) expect_right(handle_, sizes, true);
}

TEST_F(Attention, DeterministicGradientsHaveEqualBits) {
  Call call(handle_, {2, 8, 2, 1000, 128}, true);
  ASSERT_NO_FATAL_FAILURE(call.build());
  ASSERT_NO_FATAL_FAILURE(call.run_forward());
  std::vector<double> first;
  for (int run = 0; run < 10; ++run) {
    call.poison();
    ASSERT_NO_FATAL_FAILURE(call.run_backward());
    const std::vector<double> got = widened(call.d_qkv.download());
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

TEST_F(Attention, TooLittleWorkspaceNamesBothNumbers) {
  AttentionBackwardPlan plan(Call(handle_, {1, 8, 2, 256, 128}, false).layout(),
                             {.deterministic = false, .d_row = 12 * 128});
  const auto built = plan.build(CudnnTarget(handle_), 1000);
  ASSERT_FALSE(built);
  // dK and dV of 8 query heads in bf16, and cuDNN's own 256 bytes.
  EXPECT_THAT(built.error().message(),
              testing::HasSubstr(std::to_string(2 * 256 * 8 * 128 * 2 + 256)));
  EXPECT_THAT(built.error().message(), testing::HasSubstr("1000"));
}

}  // namespace
}  // namespace mfsdp::cuda
