// Kernels that only GPT-OSS and DeepSeek need, against the CPU's in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/attention_graphs.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/latent.hpp"
#include "gpu_backend/cuda/kernels/sinks.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/attention.hpp"
#include "verify/cpu/kernels/experts.hpp"
#include "verify/cpu/kernels/latent.hpp"

namespace mfsdp::cuda {
namespace {

using Numbers = std::vector<std::int32_t>;
using Doubles = std::vector<double>;

std::size_t size_of_array(std::int64_t count) { return static_cast<std::size_t>(count); }

template <class T>
class DeviceFamilies : public testing::Test {};
using FamilyElements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceFamilies, FamilyElements);

TYPED_TEST(DeviceFamilies, SinksTakeTheirShare) {
  using T = TypeParam;
  constexpr std::int64_t rows = 37, heads = 5, head_dim = 72;
  const auto output = random_values<T>(rows * heads * head_dim, 1);
  const auto d_output = random_values<T>(rows * heads * head_dim, 2);
  const auto sums = random_values<float>(rows * heads, 3, 3);
  const auto sinks = random_values<T>(heads, 4, 2);
  Doubles wide = widened(output), wide_sums = widened(sums), d_sinks(size_of_array(rows * heads));
  const Doubles wide_sinks = widened(sinks), wide_d = widened(d_output);
  kernels::sink_forward(kernels::SinkForward<double>{.rows = rows,
                                                     .heads = heads,
                                                     .head_dim = head_dim,
                                                     .output = wide.data(),
                                                     .log_sum_exp = wide_sums.data(),
                                                     .sinks = wide_sinks.data()});
  const DeviceArray<T> made(output), on_sinks(sinks), on_d(d_output), by_row(rows * heads);
  const DeviceArray<float> made_sums(sums);
  expect_runs(sink_forward(kernels::SinkForward<T>{.rows = rows,
                                                   .heads = heads,
                                                   .head_dim = head_dim,
                                                   .output = made.data(),
                                                   .log_sum_exp = made_sums.data(),
                                                   .sinks = on_sinks.data()},
                           nullptr));
  EXPECT_LT(relative_error(made.download(), wide), kTolerance<T>);
  EXPECT_LT(relative_error(made_sums.download(), wide_sums), 1e-6);
  kernels::sink_backward(kernels::SinkBackward<double>{.rows = rows,
                                                       .heads = heads,
                                                       .head_dim = head_dim,
                                                       .output = wide.data(),
                                                       .d_output = wide_d.data(),
                                                       .log_sum_exp = wide_sums.data(),
                                                       .sinks = wide_sinks.data(),
                                                       .d_sinks = d_sinks.data()});
  expect_runs(sink_backward(kernels::SinkBackward<T>{.rows = rows,
                                                     .heads = heads,
                                                     .head_dim = head_dim,
                                                     .output = made.data(),
                                                     .d_output = on_d.data(),
                                                     .log_sum_exp = made_sums.data(),
                                                     .sinks = on_sinks.data(),
                                                     .d_sinks = by_row.data()},
                            nullptr));
  EXPECT_LT(relative_error(by_row.download(), d_sinks), 2 * kTolerance<T>);
  EXPECT_TRUE(made.margin_is_whole() && made_sums.margin_is_whole() && by_row.margin_is_whole());
}

TYPED_TEST(DeviceFamilies, BiasesOfExperts) {
  using T = TypeParam;
  constexpr std::int64_t rows = 40, experts = 4;
  const Numbers ends{7, 7, 30, 36};  // one expert without rows, and four unused rows
  for (const std::int64_t cols : {1L, 333L, 768L})
    for (const bool weighted : {false, true}) {
      const auto output = random_values<T>(36 * cols, 1);
      const auto bias = random_values<T>(experts * cols, 2);
      const auto weights = random_values<float>(36, 3);
      Doubles wide = widened(output), d_bias(size_of_array(experts * cols)), dots(36, 2.0);
      const Doubles before = wide, wide_bias = widened(bias), wide_weights = widened(weights);
      const double* const by = weighted ? wide_weights.data() : nullptr;
      kernels::expert_bias_forward(kernels::ExpertBiasForward<double>{.rows = rows,
                                                                      .cols = cols,
                                                                      .experts = experts,
                                                                      .output = wide.data(),
                                                                      .bias = wide_bias.data(),
                                                                      .ends = ends.data(),
                                                                      .row_weights = by});
      const DeviceArray<std::int32_t> on_ends(ends);
      const DeviceArray<T> made(rows * cols), d_output(rows * cols), on_bias(bias);
      const DeviceArray<float> on_weights(rows), gradient(experts * cols), on_dots(rows);
      made.upload(output);
      d_output.upload(output);
      on_weights.upload(weights);
      on_dots.upload(std::vector<float>(36, 2.0F));
      const float* const device_by = weighted ? on_weights.data() : nullptr;
      expect_runs(expert_bias_forward(kernels::ExpertBiasForward<T>{.rows = rows,
                                                                    .cols = cols,
                                                                    .experts = experts,
                                                                    .output = made.data(),
                                                                    .bias = on_bias.data(),
                                                                    .ends = on_ends.data(),
                                                                    .row_weights = device_by},
                                      nullptr));
      EXPECT_LT(relative_error(made.download(), wide), kTolerance<T>);
      EXPECT_TRUE(is_poison_from(made.download(), 36 * cols));
      kernels::expert_bias_gradient(
          kernels::ExpertBiasGradient<double, double>{.rows = rows,
                                                      .cols = cols,
                                                      .experts = experts,
                                                      .d_output = before.data(),
                                                      .ends = ends.data(),
                                                      .row_weights = by,
                                                      .bias_grad = d_bias.data()},
          nullptr);
      expect_runs(cuda::expert_bias_gradient(
          kernels::ExpertBiasGradient<T, float>{.rows = rows,
                                                .cols = cols,
                                                .experts = experts,
                                                .d_output = d_output.data(),
                                                .ends = on_ends.data(),
                                                .row_weights = device_by,
                                                .bias_grad = gradient.data()},
          nullptr));
      EXPECT_LT(relative_error(gradient.download(), d_bias), 1e-5);
      kernels::expert_bias_dots(kernels::ExpertBiasDots<double>{.rows = rows,
                                                                .cols = cols,
                                                                .experts = experts,
                                                                .d_output = before.data(),
                                                                .bias = wide_bias.data(),
                                                                .ends = ends.data(),
                                                                .d_row_weights = dots.data()});
      expect_runs(expert_bias_dots(kernels::ExpertBiasDots<T>{.rows = rows,
                                                              .cols = cols,
                                                              .experts = experts,
                                                              .d_output = d_output.data(),
                                                              .bias = on_bias.data(),
                                                              .ends = on_ends.data(),
                                                              .d_row_weights = on_dots.data()},
                                   nullptr));
      EXPECT_LT(relative_error(on_dots.download(), dots), 1e-5);
      EXPECT_TRUE(is_poison_from(on_dots.download(), 36));
    }
}

/// Clamped or not, gate and up in turn or side by side, with weights of rows or without.
TYPED_TEST(DeviceFamilies, Activations) {
  using T = TypeParam;
  constexpr std::int64_t rows = 11;
  for (const std::int64_t cols : {1L, 24L, 333L, 2880L})
    for (int which = 0; which < 8; ++which) {
      const bool in_turn = which % 2 == 1;
      const bool weighted = which / 2 % 2 == 1;
      const float limit = which >= 4 ? 1.5F : 0.0F;
      const auto gate_up = random_values<T>(rows * 2 * cols, 1, 2);
      const auto weights = random_values<float>(rows, 2);
      const auto d = random_values<T>(rows * cols, 3);
      Doubles wide = widened(gate_up), product(size_of_array(rows * cols)),
              d_weights(size_of_array(rows));
      const Doubles wide_weights = widened(weights), wide_d = widened(d);
      const kernels::SwigluClamp<double> clamp{.alpha = limit > 0 ? 1.702 : 1, .limit = limit};
      const kernels::SwigluClamp<float> narrow_clamp{.alpha = limit > 0 ? 1.702F : 1.0F,
                                                     .limit = limit};
      kernels::weighted_swiglu_forward(
          kernels::WeightedSwigluForward<double>{
              .cols = cols,
              .gate_up = wide.data(),
              .row_weights = weighted ? wide_weights.data() : nullptr,
              .product = product.data(),
              .interleaved = in_turn,
              .clamp = clamp},
          rows);
      const DeviceArray<T> in_place(gate_up), made(rows * cols), d_product(d);
      const DeviceArray<float> on_weights(weights), d_on_weights(rows);
      expect_runs(weighted_swiglu_forward(
          kernels::WeightedSwigluForward<T>{.rows = rows,
                                            .cols = cols,
                                            .experts = 1,
                                            .gate_up = in_place.data(),
                                            .row_weights = weighted ? on_weights.data() : nullptr,
                                            .product = made.data(),
                                            .interleaved = in_turn,
                                            .clamp = narrow_clamp},
          nullptr));
      EXPECT_LT(relative_error(made.download(), product), kTolerance<T>) << which;
      kernels::weighted_swiglu_backward(
          kernels::WeightedSwigluBackward<double>{
              .cols = cols,
              .gate_up = wide.data(),
              .row_weights = weighted ? wide_weights.data() : nullptr,
              .d_product = wide_d.data(),
              .d_row_weights = weighted ? d_weights.data() : nullptr,
              .interleaved = in_turn,
              .clamp = clamp},
          rows);
      expect_runs(weighted_swiglu_backward(
          kernels::WeightedSwigluBackward<T>{
              .rows = rows,
              .cols = cols,
              .experts = 1,
              .gate_up = in_place.data(),
              .row_weights = weighted ? on_weights.data() : nullptr,
              .d_product = d_product.data(),
              .product = d_product.data(),
              .d_row_weights = weighted ? d_on_weights.data() : nullptr,
              .interleaved = in_turn,
              .clamp = narrow_clamp},
          nullptr));
      EXPECT_LT(relative_error(in_place.download(), wide), kTolerance<T>) << which;
      EXPECT_TRUE(same_bits(d_product.download(), made.download())) << which;
      if (weighted) {
        EXPECT_LT(relative_error(d_on_weights.download(), d_weights), 1e-4) << which;
      }
      EXPECT_TRUE(in_place.margin_is_whole() && made.margin_is_whole());
    }
}

TYPED_TEST(DeviceFamilies, SigmoidsOfOneNumberARow) {
  using T = TypeParam;
  constexpr std::int64_t rows = 700;
  const auto input = random_values<T>(rows, 1, 3);
  const auto d_output = random_values<float>(rows, 2);
  const Doubles wide = widened(input), wide_d = widened(d_output);
  Doubles output(size_of_array(rows)), d_input(size_of_array(rows));
  kernels::sigmoid_forward(
      kernels::SigmoidForward<double>{.rows = rows, .input = wide.data(), .output = output.data()});
  kernels::sigmoid_backward(kernels::SigmoidBackward<double>{
      .rows = rows, .output = output.data(), .d_output = wide_d.data(), .d_input = d_input.data()});
  const DeviceArray<T> on(input), d_on(rows);
  const DeviceArray<float> made(rows), d_made(d_output);
  expect_runs(sigmoid_forward(
      kernels::SigmoidForward<T>{.rows = rows, .input = on.data(), .output = made.data()},
      nullptr));
  EXPECT_LT(relative_error(made.download(), output), 1e-6);
  expect_runs(sigmoid_backward(
      kernels::SigmoidBackward<T>{
          .rows = rows, .output = made.data(), .d_output = d_made.data(), .d_input = d_on.data()},
      nullptr));
  EXPECT_LT(relative_error(d_on.download(), d_input), kTolerance<T>);
}

/// V3's 256 experts in 8 groups, V2's 160, and odd ones; of sigmoids and of softmax.
TYPED_TEST(DeviceFamilies, RoutersOfGroups) {
  using T = TypeParam;
  struct Case {
    std::int64_t experts, groups, chosen, top_k;
  };
  for (const auto [experts, groups, chosen, top_k] :
       {Case{256, 8, 4, 8}, {160, 8, 3, 6}, {12, 6, 1, 2}, {10, 5, 3, 5}, {64, 0, 0, 6}})
    for (int which = 0; which < 4; ++which) {
      const kernels::RoutingSizes s{.tokens = 65,
                                    .experts = experts,
                                    .top_k = top_k,
                                    .normalised = which % 2 == 1,
                                    .sigmoid = which >= 2,
                                    .groups = groups,
                                    .chosen_groups = chosen,
                                    .scale = 2.5};
      const auto logits = random_values<T>(s.tokens * experts, 5, 2);
      const auto correction = random_values<T>(experts, 6);
      const auto d_weights = random_values<float>(s.tokens * top_k, 7);
      const Doubles wide = widened(logits), wide_correction = widened(correction),
                    wide_d = widened(d_weights);
      Numbers indices(size_of_array(s.tokens * top_k));
      Doubles weights(indices.size()), d_logits(wide.size());
      kernels::router_forward(
          kernels::RouterForward<double>{.sizes = s,
                                         .logits = wide.data(),
                                         .correction = s.sigmoid ? wide_correction.data() : nullptr,
                                         .indices = indices.data(),
                                         .weights = weights.data()});
      const DeviceArray<T> on(logits), on_correction(correction), d_on(s.tokens * experts);
      const DeviceArray<std::int32_t> made(s.tokens * top_k);
      const DeviceArray<float> made_weights(s.tokens * top_k), d_made(d_weights);
      expect_runs(router_forward(
          kernels::RouterForward<T>{.sizes = s,
                                    .logits = on.data(),
                                    .correction = s.sigmoid ? on_correction.data() : nullptr,
                                    .indices = made.data(),
                                    .weights = made_weights.data()},
          nullptr));
      EXPECT_EQ(made.download(), indices) << experts << " experts, " << which;
      EXPECT_LT(relative_error(made_weights.download(), weights), 1e-5);
      kernels::router_backward(kernels::RouterBackward<double>{.sizes = s,
                                                               .logits = wide.data(),
                                                               .indices = indices.data(),
                                                               .d_weights = wide_d.data(),
                                                               .d_logits = d_logits.data()});
      expect_runs(router_backward(kernels::RouterBackward<T>{.sizes = s,
                                                             .logits = on.data(),
                                                             .indices = made.data(),
                                                             .d_weights = d_made.data(),
                                                             .d_logits = d_on.data()},
                                  nullptr));
      EXPECT_LT(relative_error(d_on.download(), d_logits), kTolerance<T>);
    }
}

TYPED_TEST(DeviceFamilies, LatentHeads) {
  using T = TypeParam;
  for (const auto [head_dim, value_dim, turned, latent] :
       {std::array<std::int64_t, 4>{192, 128, 64, 512}, {12, 8, 4, 16}, {6, 3, 2, 5}}) {
    const kernels::LatentShape s{.rows = 30,
                                 .seq_len = 10,
                                 .heads = 5,
                                 .head_dim = head_dim,
                                 .value_dim = value_dim,
                                 .turned = turned};
    const std::int64_t width = latent + turned;
    const std::int64_t of_vector = s.heads * (s.kept() + value_dim);
    const std::int64_t row = s.heads * (2 * head_dim + value_dim);
    const auto query = random_values<T>(s.rows * s.heads * head_dim, 1);
    const auto key_value = random_values<T>(s.rows * of_vector, 2);
    const auto vector = random_values<T>(s.rows * width, 3);
    const auto table = random_values<float>(s.seq_len * turned, 4);
    const auto d_output = random_values<T>(s.rows * row, 5);
    const Doubles wide_query = widened(query), wide_key_value = widened(key_value),
                  wide_vector = widened(vector), wide_d = widened(d_output);
    Doubles output(size_of_array(s.rows * row)), d_query(wide_query.size()),
        d_key_value(wide_key_value.size()), d_turned(size_of_array(s.rows * turned));
    kernels::latent_heads_forward(
        kernels::LatentHeadsForward<double>{.shape = s,
                                            .latent_width = width,
                                            .query = wide_query.data(),
                                            .key_value = wide_key_value.data(),
                                            .latent = wide_vector.data(),
                                            .table = table.data(),
                                            .output = output.data()});
    kernels::latent_heads_backward(
        kernels::LatentHeadsBackward<double>{.shape = s,
                                             .d_output = wide_d.data(),
                                             .table = table.data(),
                                             .d_query = d_query.data(),
                                             .d_key_value = d_key_value.data(),
                                             .d_turned = d_turned.data()});
    const DeviceArray<T> on_query(query), on_key_value(key_value), on_vector(vector),
        on_d(d_output), made(s.rows * row), made_query(s.rows * s.heads * head_dim),
        made_key_value(s.rows * of_vector), made_turned(s.rows * turned);
    const DeviceArray<float> on_table(table);
    expect_runs(
        latent_heads_forward(kernels::LatentHeadsForward<T>{.shape = s,
                                                            .latent_width = width,
                                                            .query = on_query.data(),
                                                            .key_value = on_key_value.data(),
                                                            .latent = on_vector.data(),
                                                            .table = on_table.data(),
                                                            .output = made.data()},
                             nullptr));
    EXPECT_LT(relative_error(made.download(), output), kTolerance<T>);
    expect_runs(
        latent_heads_backward(kernels::LatentHeadsBackward<T>{.shape = s,
                                                              .d_output = on_d.data(),
                                                              .table = on_table.data(),
                                                              .d_query = made_query.data(),
                                                              .d_key_value = made_key_value.data(),
                                                              .d_turned = made_turned.data()},
                              nullptr));
    EXPECT_LT(relative_error(made_query.download(), d_query), kTolerance<T>);
    EXPECT_LT(relative_error(made_key_value.download(), d_key_value), kTolerance<T>);
    EXPECT_LT(relative_error(made_turned.download(), d_turned), kTolerance<T>);
    EXPECT_TRUE(made.margin_is_whole() && made_query.margin_is_whole() &&
                made_key_value.margin_is_whole() && made_turned.margin_is_whole());
  }
}

TYPED_TEST(DeviceFamilies, LatentNorms) {
  using T = TypeParam;
  for (const auto [cols, rest] : {std::array<std::int64_t, 2>{512, 64}, {16, 4}, {333, 1}}) {
    constexpr std::int64_t rows = 40, partial_rows = 7;
    const std::int64_t width = cols + rest;
    const auto input = random_values<T>(rows * width, 1);
    const auto weight = random_values<T>(cols, 2);
    const auto d_normed = random_values<T>(rows * cols, 3);
    const auto d_rest = random_values<T>(rows * rest, 4);
    const Doubles wide = widened(input), wide_weight = widened(weight), wide_d = widened(d_normed),
                  wide_rest = widened(d_rest);
    Doubles normed(wide_d.size()), rstd(rows), d_input(wide.size()),
        partials(size_of_array(partial_rows * cols));
    kernels::latent_norm_forward(kernels::LatentNormForward<double>{.rows = rows,
                                                                    .cols = cols,
                                                                    .width = width,
                                                                    .epsilon = 1e-6,
                                                                    .input = wide.data(),
                                                                    .weight = wide_weight.data(),
                                                                    .normed = normed.data(),
                                                                    .rstd = rstd.data()});
    kernels::latent_norm_backward(kernels::LatentNormBackward<double>{.rows = rows,
                                                                      .cols = cols,
                                                                      .width = width,
                                                                      .partial_rows = partial_rows,
                                                                      .d_normed = wide_d.data(),
                                                                      .input = wide.data(),
                                                                      .rstd = rstd.data(),
                                                                      .weight = wide_weight.data(),
                                                                      .d_rest = wide_rest.data(),
                                                                      .d_input = d_input.data(),
                                                                      .partials = partials.data()},
                                  nullptr);
    const DeviceArray<T> on(input), on_weight(weight), on_d(d_normed), on_rest(d_rest),
        made(rows * cols), made_input(rows * width);
    const DeviceArray<float> made_rstd(rows), made_partials(partial_rows * cols);
    expect_runs(latent_norm_forward(kernels::LatentNormForward<T>{.rows = rows,
                                                                  .cols = cols,
                                                                  .width = width,
                                                                  .epsilon = 1e-6F,
                                                                  .input = on.data(),
                                                                  .weight = on_weight.data(),
                                                                  .normed = made.data(),
                                                                  .rstd = made_rstd.data()},
                                    nullptr));
    EXPECT_LT(relative_error(made.download(), normed), kTolerance<T>);
    EXPECT_LT(relative_error(made_rstd.download(), rstd), 1e-5);
    expect_runs(
        cuda::latent_norm_backward(kernels::LatentNormBackward<T>{.rows = rows,
                                                                  .cols = cols,
                                                                  .width = width,
                                                                  .partial_rows = partial_rows,
                                                                  .d_normed = on_d.data(),
                                                                  .input = on.data(),
                                                                  .rstd = made_rstd.data(),
                                                                  .weight = on_weight.data(),
                                                                  .d_rest = on_rest.data(),
                                                                  .d_input = made_input.data(),
                                                                  .normed = on_d.data(),
                                                                  .partials = made_partials.data()},
                                   nullptr));
    EXPECT_LT(relative_error(made_input.download(), d_input), kTolerance<T>);
    EXPECT_TRUE(same_bits(on_d.download(), made.download()));
    Doubles sums(size_of_array(cols)), expected(size_of_array(cols));
    const auto parts = made_partials.download();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      sums[i % sums.size()] += parts[i];
      expected[i % sums.size()] += partials[i];
    }
    EXPECT_LT(relative_error(sums, expected), 1e-4);
  }
}

/// Values that are narrower than keys: DeepSeek's own sizes, forward and backward.
TYPED_TEST(DeviceFamilies, AttentionWithNarrowValues) {
  using T = TypeParam;
  constexpr std::int64_t seq = 128, heads = 3, head_dim = 192, value_dim = 128;
  const std::int64_t keys = heads * head_dim;
  const std::int64_t row = 2 * keys + heads * value_dim;
  const std::int64_t width = heads * value_dim;
  const kernels::AttentionShape shape{.batch = 1,
                                      .heads = heads,
                                      .kv_heads = heads,
                                      .seq_len = seq,
                                      .head_dim = head_dim,
                                      .value_dim = value_dim};
  const auto view = [&]<class U>(U* data, std::int64_t of_row, std::int64_t begin,
                                 std::int64_t columns) {
    return kernels::HeadView<U>{
        .data = data + begin, .batch = seq * of_row, .head = columns, .position = of_row};
  };
  const auto call = [&]<class U>(U* qkv, U* output, auto* sums) {
    using V = std::remove_const_t<U>;
    const U* const packed = qkv;
    return kernels::AttentionForward<V>{.shape = shape,
                                        .query = view(packed, row, 0, head_dim),
                                        .key = view(packed, row, keys, head_dim),
                                        .value = view(packed, row, 2 * keys, value_dim),
                                        .output = view(output, width, 0, value_dim),
                                        .log_sum_exp = sums};
  };
  const auto back = [&]<class V>(const kernels::AttentionForward<V>& f, const V* d_output,
                                 V* d_qkv) {
    return kernels::AttentionBackward<V>{
        .shape = shape,
        .query = f.query,
        .key = f.key,
        .value = f.value,
        .output = {f.output.data, f.output.batch, f.output.head, f.output.position},
        .d_output = view(d_output, width, 0, value_dim),
        .log_sum_exp = f.log_sum_exp,
        .d_query = view(d_qkv, row, 0, head_dim),
        .d_key = view(d_qkv, row, keys, head_dim),
        .d_value = view(d_qkv, row, 2 * keys, value_dim)};
  };
  const auto qkv = random_values<T>(seq * row, 1);
  const auto d = random_values<T>(seq * width, 2);
  Doubles wide = widened(qkv), output(size_of_array(seq * width)), sums(size_of_array(seq * heads)),
          d_qkv(size_of_array(seq * row));
  const Doubles wide_d = widened(d);
  const auto reference = call(wide.data(), output.data(), sums.data());
  kernels::attention_forward(reference);
  kernels::attention_backward(back(reference, wide_d.data(), d_qkv.data()));

  const DeviceArray<T> on(qkv), on_d(d), made(seq * width), d_made(seq * row);
  const DeviceArray<float> made_sums(seq * heads), d_query_sum(seq * keys), row_sums(seq * heads);
  const DeviceArray<std::uint8_t> forward_workspace(kAttentionWorkspaceBytes);
  kernels::AttentionForward<T> f = call(on.data(), made.data(), made_sums.data());
  f.workspace = forward_workspace.as_bytes();
  kernels::AttentionBackward<T> b = back(f, static_cast<const T*>(on_d.data()), d_made.data());
  b.d_query_sum = d_query_sum.data();
  b.row_sums = row_sums.data();
  DeviceArray<std::uint8_t> backward_workspace(kAttentionWorkspaceBytes);
  if constexpr (sizeof(T) == 2)
    backward_workspace.resize(attention_backward_workspace(layout_of(b)));
  b.workspace = backward_workspace.as_bytes();
  auto planner = AttentionPlanner::create();
  ASSERT_TRUE(planner) << planner.error().message();
  const auto prepared = planner->prepare(f);
  ASSERT_TRUE(prepared) << prepared.error().message();
  const auto prepared_backward = planner->prepare(b);
  ASSERT_TRUE(prepared_backward) << prepared_backward.error().message();
  expect_runs(planner->run(f, nullptr));
  EXPECT_LT(relative_error(made.download(), output), kTolerance<T>);
  EXPECT_LT(relative_error(made_sums.download(), sums), 1e-4);
  expect_runs(planner->run(b, nullptr));
  EXPECT_LT(relative_error(d_made.download(), d_qkv), 2 * kTolerance<T>);
  EXPECT_TRUE(made.margin_is_whole() && d_made.margin_is_whole());
}

}  // namespace
}  // namespace mfsdp::cuda
