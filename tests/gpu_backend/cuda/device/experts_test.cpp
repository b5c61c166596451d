// Routing, rows in the order of experts and the weighted activation, against the CPU's in fp64.
#include "verify/cpu/kernels/experts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/plan/loss_scale.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "tests/gpu_backend/cuda/device/wrong_elements.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::RoutingSizes;
using Numbers = std::vector<std::int32_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
class DeviceExperts : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceExperts, Elements);

std::string name_of(const RoutingSizes& s) {
  return fmt::format("{} tokens in sequences of {}, {} of {} experts{}", s.tokens, s.seq, s.top_k,
                     s.experts, s.normalised ? ", normalised" : "");
}

std::vector<RoutingSizes> all_sizes() {
  std::vector<RoutingSizes> all;
  for (const bool normalised : {false, true}) {
    all.push_back({.tokens = 1, .experts = 1, .top_k = 1, .seq = 1, .normalised = normalised});
    all.push_back({.tokens = 12, .experts = 4, .top_k = 2, .seq = 4, .normalised = normalised});
    all.push_back({.tokens = 33, .experts = 8, .top_k = 8, .seq = 11, .normalised = normalised});
    all.push_back(
        {.tokens = 700, .experts = 128, .top_k = 8, .seq = 100, .normalised = normalised});
    all.push_back({.tokens = 40, .experts = 60, .top_k = 40, .seq = 40, .normalised = normalised});
    all.push_back({.tokens = 9, .experts = 1000, .top_k = 3, .seq = 3, .normalised = normalised});
  }
  return all;
}

/// Logits rounded to multiples of 1/2. Many of them are equal.
template <class T>
std::vector<T> rough_logits(const RoutingSizes& s) {
  std::vector<T> logits = random_values<T>(s.tokens * s.experts, 3, 2);
  for (T& logit : logits) logit = narrow<T>(std::round(2 * widen(logit)) / 2);
  return logits;
}

struct Routed {
  Numbers indices;
  std::vector<double> weights;
  Numbers counts;
};

template <class T>
Routed route_on_cpu(const RoutingSizes& s, const std::vector<T>& logits) {
  const std::vector<double> wide = widened(logits);
  Routed made{.indices = Numbers(at(s.tokens * s.top_k)),
              .weights = std::vector<double>(at(s.tokens * s.top_k)),
              .counts = Numbers(at(s.tokens / s.seq * s.experts))};
  kernels::router_forward(kernels::RouterForward<double>{.sizes = s,
                                                         .logits = wide.data(),
                                                         .indices = made.indices.data(),
                                                         .weights = made.weights.data(),
                                                         .counts = made.counts.data()});
  return made;
}

TYPED_TEST(DeviceExperts, RouterChoosesTheLargestAndTheLowerOfEqualOnes) {
  using T = TypeParam;
  for (const RoutingSizes& s : all_sizes()) {
    SCOPED_TRACE(name_of(s));
    const std::vector<T> logits = rough_logits<T>(s);
    const Routed expected = route_on_cpu(s, logits);
    const DeviceArray<T> d_logits(logits);
    const DeviceArray<std::int32_t> indices(s.tokens * s.top_k),
        counts(s.tokens / s.seq * s.experts);
    const DeviceArray<float> weights(s.tokens * s.top_k);
    expect_runs(router_forward(kernels::RouterForward<T>{.sizes = s,
                                                         .logits = d_logits.data(),
                                                         .indices = indices.data(),
                                                         .weights = weights.data(),
                                                         .counts = counts.data()},
                               nullptr));
    EXPECT_EQ(indices.download(), expected.indices);
    EXPECT_EQ(counts.download(), expected.counts);
    EXPECT_LT(relative_error(weights.download(), expected.weights), 1e-5);
    EXPECT_TRUE(indices.margin_is_whole() && counts.margin_is_whole() && weights.margin_is_whole());
  }
}

TYPED_TEST(DeviceExperts, RouterGoesOnWhereLogitsAreNoNumbers) {
  using T = TypeParam;
  const auto nan = narrow<T>(std::numeric_limits<float>::quiet_NaN());
  const auto infinite = narrow<T>(std::numeric_limits<float>::infinity());
  const auto least = narrow<T>(-std::numeric_limits<float>::infinity());
  const T one = narrow<T>(1);
  const T zero = narrow<T>(0);
  const T minus_zero = narrow<T>(-0.0F);
  const std::vector<T> logits{
      nan,        one,      nan,        zero,   // the first stays, whatever follows
      one,        nan,      zero,       nan,    //
      nan,        nan,      nan,        nan,    //
      one,        infinite, nan,        least,  //
      one,        least,    nan,        least,  //
      minus_zero, zero,     minus_zero, one};
  const RoutingSizes s{.tokens = 6, .experts = 4, .top_k = 4, .seq = 6};
  const DeviceArray<T> d_logits(logits);
  const DeviceArray<std::int32_t> indices(24);
  const DeviceArray<float> weights(24);
  expect_runs(router_forward(kernels::RouterForward<T>{.sizes = s,
                                                       .logits = d_logits.data(),
                                                       .indices = indices.data(),
                                                       .weights = weights.data()},
                             nullptr));
  EXPECT_EQ(indices.download(), route_on_cpu(s, logits).indices);
}

TYPED_TEST(DeviceExperts, RouterBackward) {
  using T = TypeParam;
  for (const RoutingSizes& s : all_sizes())
    for (const bool balances : {false, true}) {
      SCOPED_TRACE(name_of(s) + (balances ? ", with losses" : ""));
      const auto logits = random_values<T>(s.tokens * s.experts, 4);
      const Routed routed = route_on_cpu(s, logits);
      const auto d_weights = random_values<float>(s.tokens * s.top_k, 5);
      const LossScaleState scale{.scale = 4};
      const std::vector<double> wide = widened(logits), wide_d = widened(d_weights);
      std::vector<double> expected(wide.size());
      kernels::router_backward(
          kernels::RouterBackward<double>{.sizes = s,
                                          .logits = wide.data(),
                                          .indices = routed.indices.data(),
                                          .d_weights = wide_d.data(),
                                          .counts = balances ? routed.counts.data() : nullptr,
                                          .loss_scale = balances ? &scale : nullptr,
                                          .aux_loss = balances ? 0.25 : 0,
                                          .z_loss = balances ? 0.125 : 0,
                                          .d_logits = expected.data()});
      const DeviceArray<T> d_logits_in(logits), d_logits(s.tokens * s.experts);
      const DeviceArray<std::int32_t> indices(routed.indices), counts(routed.counts);
      const DeviceArray<float> d_d_weights(d_weights);
      const DeviceArray<LossScaleState> d_scale(std::vector<LossScaleState>{scale});
      expect_runs(router_backward(
          kernels::RouterBackward<T>{.sizes = s,
                                     .logits = d_logits_in.data(),
                                     .indices = indices.data(),
                                     .d_weights = d_d_weights.data(),
                                     .counts = balances ? counts.data() : nullptr,
                                     .loss_scale = balances ? d_scale.data() : nullptr,
                                     .aux_loss = balances ? 0.25F : 0,
                                     .z_loss = balances ? 0.125F : 0,
                                     .d_logits = d_logits.data()},
          nullptr));
      const double norm =
          std::sqrt(std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0));
      // Softmax of one expert, or weights that always sum to 1, have a gradient of nothing.
      if (norm > 1e-10) {
        EXPECT_LT(relative_error(d_logits.download(), expected), kTolerance<T>);
      } else {
        for (const T value : d_logits.download()) EXPECT_LT(std::abs(widen(value)), 1e-5);
      }
      EXPECT_TRUE(d_logits.margin_is_whole());
    }
}

// ---- order -------------------------------------------------------------------------------------

struct Order {
  Numbers ends, order, places;
};

Numbers random_indices(const RoutingSizes& s, bool skewed) {
  std::mt19937 bits(6);
  Numbers indices;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    Numbers chosen;
    while (static_cast<std::int64_t>(chosen.size()) < s.top_k) {
      auto e = static_cast<std::int32_t>(bits() % static_cast<std::uint32_t>(s.experts));
      if (skewed && bits() % 4 != 0) e %= 3;
      if (std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
    }
    indices.insert(indices.end(), chosen.begin(), chosen.end());
  }
  return indices;
}

Order order_on_cpu(const RoutingSizes& s, const Numbers& indices) {
  Order made{.ends = Numbers(at(s.experts)),
             .order = Numbers(indices.size()),
             .places = Numbers(indices.size())};
  kernels::expert_order({.sizes = s,
                         .indices = indices.data(),
                         .ends = made.ends.data(),
                         .order = made.order.data(),
                         .places = made.places.data()});
  return made;
}

TEST(DeviceExpertOrder, SortsAsTheCpu) {
  const std::vector<RoutingSizes> all{
      {.tokens = 1, .experts = 1, .top_k = 1},      {.tokens = 5, .experts = 3, .top_k = 3},
      {.tokens = 256, .experts = 8, .top_k = 2},    {.tokens = 257, .experts = 128, .top_k = 8},
      {.tokens = 8192, .experts = 128, .top_k = 8}, {.tokens = 1000, .experts = 1024, .top_k = 1}};
  for (const RoutingSizes& s : all)
    for (const bool skewed : {false, true}) {
      if (skewed && s.top_k > s.experts - 3 && s.experts > 3) continue;
      SCOPED_TRACE(name_of(s) + (skewed ? ", skewed" : ""));
      const Numbers numbers = random_indices(s, skewed);
      const Order expected = order_on_cpu(s, numbers);
      const DeviceArray<std::int32_t> indices(numbers), ends(s.experts), order(s.tokens * s.top_k),
          places(s.tokens * s.top_k);
      const DeviceArray<std::uint8_t> workspace(expert_order_workspace(s));
      expect_runs(expert_order({.sizes = s,
                                .indices = indices.data(),
                                .ends = ends.data(),
                                .order = order.data(),
                                .places = places.data(),
                                .workspace = workspace.as_bytes()},
                               nullptr));
      EXPECT_EQ(ends.download(), expected.ends);
      EXPECT_TRUE(order.download() == expected.order);
      EXPECT_TRUE(places.download() == expected.places);
      EXPECT_TRUE(ends.margin_is_whole() && order.margin_is_whole() && places.margin_is_whole() &&
                  workspace.margin_is_whole());
    }
}

TEST(DeviceExpertOrder, SaysWhichWorkspaceItNeeds) {
  // 4 bytes of each of 8 experts in ceil(300 / 256) = 2 blocks.
  const RoutingSizes s{.tokens = 300, .experts = 8, .top_k = 2};
  EXPECT_EQ(expert_order_workspace(s), 64);
  const Result<void> made = expert_order({.sizes = s}, nullptr);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("64 bytes"), std::string::npos) << made.error().message();
}

// ---- rows --------------------------------------------------------------------------------------

TYPED_TEST(DeviceExperts, RowsGoToTheirPlacesAndComeBack) {
  using T = TypeParam;
  struct Case {
    std::int64_t tokens, experts, top_k, cols;
  };
  for (const auto [tokens, experts, top_k, cols] :
       {Case{1, 1, 1, 1}, {7, 4, 3, 8}, {50, 8, 2, 333}, {64, 16, 8, 2048}, {5, 6, 5, 5000}}) {
    const RoutingSizes s{.tokens = tokens, .experts = experts, .top_k = top_k, .seq = tokens};
    SCOPED_TRACE(fmt::format("{}, {} columns", name_of(s), cols));
    const std::int64_t rows = tokens * top_k;
    const Order order = order_on_cpu(s, random_indices(s, false));
    const auto input = random_values<T>(tokens * cols, 1);
    const auto weights = random_values<float>(rows, 2);
    std::vector<T> expected(at(rows * cols));
    std::vector<float> expected_weights(at(rows));
    kernels::permute_rows(kernels::PermuteRows<T>{.tokens = tokens,
                                                  .rows = tokens * top_k,
                                                  .cols = cols,
                                                  .top_k = top_k,
                                                  .input = input.data(),
                                                  .order = order.order.data(),
                                                  .weights = weights.data(),
                                                  .row_weights = expected_weights.data(),
                                                  .output = expected.data()});
    const DeviceArray<T> d_input(input), permuted(rows * cols);
    const DeviceArray<std::int32_t> d_order(order.order), d_places(order.places);
    const DeviceArray<float> d_weights(weights), row_weights(rows), back(rows);
    expect_runs(permute_rows(kernels::PermuteRows<T>{.tokens = tokens,
                                                     .rows = tokens * top_k,
                                                     .cols = cols,
                                                     .top_k = top_k,
                                                     .input = d_input.data(),
                                                     .order = d_order.data(),
                                                     .weights = d_weights.data(),
                                                     .row_weights = row_weights.data(),
                                                     .output = permuted.data()},
                             nullptr));
    EXPECT_TRUE(same_bits(permuted.download(), expected));
    EXPECT_TRUE(same_bits(row_weights.download(), expected_weights));
    EXPECT_TRUE(permuted.margin_is_whole() && row_weights.margin_is_whole());
    const auto of_experts = random_values<T>(rows * cols, 3);
    for (const bool adds : {false, true}) {
      std::vector<T> sums = adds ? input : std::vector<T>(input.size());
      std::vector<float> weights_back(at(rows));
      const DeviceArray<T> d_of_experts(of_experts), output(tokens * cols);
      if (adds) output.upload(input);
      kernels::CombineRows<T> call{.tokens = tokens,
                                   .rows = tokens * top_k,
                                   .cols = cols,
                                   .top_k = top_k,
                                   .adds = adds,
                                   .input = of_experts.data(),
                                   .places = order.places.data(),
                                   .row_weights = expected_weights.data(),
                                   .weights = weights_back.data(),
                                   .output = sums.data()};
      kernels::combine_rows(call);
      call.input = d_of_experts.data();
      call.places = d_places.data();
      call.row_weights = row_weights.data();
      call.weights = back.data();
      call.output = output.data();
      expect_runs(combine_rows(call, nullptr));
      // The same additions in the same order: the same bits.
      EXPECT_TRUE(same_bits(output.download(), sums));
      EXPECT_TRUE(same_bits(back.download(), weights));
      EXPECT_TRUE(output.margin_is_whole() && back.margin_is_whole());
    }
  }
}

TYPED_TEST(DeviceExperts, RowsGoWithoutWeightsToo) {
  using T = TypeParam;
  const auto input = random_values<T>(2 * 8, 1);
  const DeviceArray<T> d_input(input), output(2 * 8);
  const DeviceArray<std::int32_t> swapped(Numbers{1, 0});
  expect_runs(permute_rows(kernels::PermuteRows<T>{.tokens = 2,
                                                   .rows = 2 * 1,
                                                   .cols = 8,
                                                   .top_k = 1,
                                                   .input = d_input.data(),
                                                   .order = swapped.data(),
                                                   .output = output.data()},
                           nullptr));
  expect_runs(combine_rows(kernels::CombineRows<T>{.tokens = 2,
                                                   .rows = 2 * 1,
                                                   .cols = 8,
                                                   .top_k = 1,
                                                   .input = output.data(),
                                                   .places = swapped.data(),
                                                   .output = d_input.data()},
                           nullptr));
  EXPECT_TRUE(same_bits(d_input.download(), input));
}

// ---- the activation ----------------------------------------------------------------------------

/// Rows after the last expert's end are neither read nor written.
TYPED_TEST(DeviceExperts, WeightedSwigluMakesTheVeryProductAgain) {
  using T = TypeParam;
  struct Case {
    std::int64_t rows, valid, cols;
  };
  for (const auto [rows, valid, cols] :
       {Case{1, 1, 1}, {9, 7, 8}, {40, 40, 768}, {13, 0, 16}, {20, 11, 333}, {3, 2, 5000}}) {
    SCOPED_TRACE(fmt::format("{} of {} rows, {} columns", valid, rows, cols));
    const auto gate_up = random_values<T>(valid * 2 * cols, 1, 2);
    const auto weights = random_values<float>(valid, 2);
    const auto d = random_values<T>(valid * cols, 3);
    const DeviceArray<std::int32_t> ends(
        Numbers{static_cast<std::int32_t>(valid / 2), static_cast<std::int32_t>(valid)});
    const auto front = []<class V>(std::int64_t count, const std::vector<V>& values) {
      auto made = std::make_unique<DeviceArray<V>>(count);
      made->upload(values);
      return made;
    };
    const auto gates = front(rows * 2 * cols, gate_up);
    const auto row_weights = front(rows, weights);
    const DeviceArray<T> product(rows * cols);
    expect_runs(weighted_swiglu_forward(
        kernels::WeightedSwigluForward<T>{.rows = rows,
                                          .cols = cols,
                                          .experts = 2,
                                          .gate_up = gates->data(),
                                          .row_weights = row_weights->data(),
                                          .ends = ends.data(),
                                          .product = product.data()},
        nullptr));
    std::vector<double> wide = widened(gate_up);
    const std::vector<double> wide_weights = widened(weights), wide_d = widened(d);
    std::vector<double> expected(at(valid * cols)), d_weights(at(valid));
    kernels::weighted_swiglu_forward(
        kernels::WeightedSwigluForward<double>{.cols = cols,
                                               .gate_up = wide.data(),
                                               .row_weights = wide_weights.data(),
                                               .product = expected.data()},
        valid);
    const std::vector<T> made = product.download();
    if (valid > 0) {
      EXPECT_LT(relative_error(made, expected), kTolerance<T>);
    }
    EXPECT_TRUE(is_poison_from(made, valid * cols));
    kernels::weighted_swiglu_backward(
        kernels::WeightedSwigluBackward<double>{.cols = cols,
                                                .gate_up = wide.data(),
                                                .row_weights = wide_weights.data(),
                                                .d_product = wide_d.data(),
                                                .d_row_weights = d_weights.data()},
        valid);
    for (const bool makes_product : {false, true}) {
      const auto in_place = front(rows * 2 * cols, gate_up);
      const auto d_product = front(rows * cols, d);
      const DeviceArray<float> d_row_weights(rows);
      expect_runs(weighted_swiglu_backward(
          kernels::WeightedSwigluBackward<T>{.rows = rows,
                                             .cols = cols,
                                             .experts = 2,
                                             .gate_up = in_place->data(),
                                             .row_weights = row_weights->data(),
                                             .ends = ends.data(),
                                             .d_product = d_product->data(),
                                             .product = makes_product ? d_product->data() : nullptr,
                                             .d_row_weights = d_row_weights.data()},
          nullptr));
      const std::vector<float> d_of_weights = d_row_weights.download();
      if (valid > 0) {
        EXPECT_LT(relative_error(in_place->download(), wide), kTolerance<T>);
        EXPECT_LT(relative_error(d_of_weights, d_weights), 10 * kTolerance<float>);
      }
      EXPECT_TRUE(is_poison_from(in_place->download(), valid * 2 * cols));
      EXPECT_TRUE(is_poison_from(d_of_weights, valid));
      std::vector<T> again = d_product->download();
      const std::vector<T>& right = makes_product ? made : d;
      EXPECT_TRUE(is_poison_from(again, valid * cols));
      again.resize(at(valid * cols));
      EXPECT_TRUE(same_bits(again, {right.begin(), right.begin() + valid * cols}));
      EXPECT_TRUE(in_place->margin_is_whole() && d_row_weights.margin_is_whole());
    }
  }
}

}  // namespace
}  // namespace mfsdp::cuda
