#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/verify/cpu/kernels/expert_numbers.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/experts.hpp"

namespace mfsdp::kernels {
namespace {

using experts_test::at;
using experts_test::between;
using experts_test::Numbers;
using test::RandomValues;
using test::Values;

/// Some rows more than experts have, which nothing touches; experts without rows among them.
struct Products {
  GroupedSizes sizes;
  Numbers ends;
  Values input;
  Values weight;
  Values d_output;

  explicit Products(std::uint32_t seed) {
    sizes.experts = between(1, 4);
    sizes.n = between(1, 5);
    sizes.k = between(1, 5);
    std::int32_t end = 0;
    for (std::int64_t e = 0; e < sizes.experts; ++e)
      ends.push_back(end += static_cast<std::int32_t>(between(0, 4)));
    sizes.m = end + between(0, 3);
    RandomValues random(seed);
    input = random(sizes.m * sizes.k);
    weight = random(sizes.experts * sizes.n * sizes.k);
    d_output = random(sizes.m * sizes.n);
  }

  [[nodiscard]] Values output(double rest) const {
    Values made(at(sizes.m * sizes.n), rest);
    each([&](std::int64_t e, std::int64_t r, std::int64_t i) {
      double sum = 0;
      for (std::int64_t j = 0; j < sizes.k; ++j)
        sum += input[at(r * sizes.k + j)] * weight[at((e * sizes.n + i) * sizes.k + j)];
      made[at(r * sizes.n + i)] = sum;
    });
    return made;
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    const Values made = output(0);
    each([&](std::int64_t, std::int64_t r, std::int64_t i) {
      sum += made[at(r * sizes.n + i)] * d_output[at(r * sizes.n + i)];
    });
    return sum;
  }

 private:
  template <class Visit>
  void each(const Visit& visit) const {
    for_each_expert(ends.data(), sizes.experts, [&](auto e, auto begin, auto rows) {
      for (std::int64_t r = begin; r < begin + rows; ++r)
        for (std::int64_t i = 0; i < sizes.n; ++i) visit(e, r, i);
    });
  }
};

RC_GTEST_PROP(GroupedProducts, AreThoseOfEachExpert, (std::uint32_t seed)) {
  Products p(seed);
  const auto run = [&](bool gradient, const Values& from, Values& to) {
    const GroupedProduct<double> product{.sizes = p.sizes,
                                         .gradient = gradient,
                                         .input = from.data(),
                                         .weight = p.weight.data(),
                                         .ends = p.ends.data(),
                                         .output = to.data()};
    for_each_expert(p.ends.data(), p.sizes.experts, [&](auto e, auto begin, auto rows) {
      if (rows > 0) gemm(product_of_expert(product, e, begin, rows));
    });
  };
  Values output(at(p.sizes.m * p.sizes.n), 7);
  run(false, p.input, output);
  RC_ASSERT(test::relative_error(output, p.output(7)) < 1e-13);

  Values d_input(p.input.size(), 0);
  run(true, p.d_output, d_input);
  RC_ASSERT(test::relative_error(
                d_input, test::finite_differences(p.input, [&] { return p.loss(); })) < 1e-8);

  Values d_weight(p.weight.size(), 0);
  const GroupedWeightGradient<double, double> wgrad{.sizes = p.sizes,
                                                    .d_output = p.d_output.data(),
                                                    .input = p.input.data(),
                                                    .ends = p.ends.data(),
                                                    .weight_grad = d_weight.data()};
  for_each_expert(p.ends.data(), p.sizes.experts, [&](auto e, auto begin, auto rows) {
    if (rows > 0) gemm(product_of_expert(wgrad, e, begin, rows));
  });
  RC_ASSERT(test::relative_error(
                d_weight, test::finite_differences(p.weight, [&] { return p.loss(); })) < 1e-8);
}

/// output += weight * bias of the row's expert; rows after the last expert's are unchanged.
RC_GTEST_PROP(ExpertBiases, ForwardAndBackward, (std::uint32_t seed, bool weighted, bool adds)) {
  Products p(seed);
  const GroupedSizes& s = p.sizes;
  RandomValues random(seed + 1);
  Values bias = random(s.experts * s.n);
  Values weights = random(s.m);
  const Values before = p.output(7);
  const auto naive = [&] {
    Values made = before;
    for_each_expert(p.ends.data(), s.experts, [&](auto e, auto begin, auto rows) {
      for (std::int64_t r = begin; r < begin + rows; ++r)
        for (std::int64_t i = 0; i < s.n; ++i)
          made[at(r * s.n + i)] += (weighted ? weights[at(r)] : 1) * bias[at(e * s.n + i)];
    });
    return made;
  };
  Values output = before;
  expert_bias_forward(
      ExpertBiasForward<double>{.rows = s.m,
                                .cols = s.n,
                                .experts = s.experts,
                                .output = output.data(),
                                .bias = bias.data(),
                                .ends = p.ends.data(),
                                .row_weights = weighted ? weights.data() : nullptr});
  RC_ASSERT(test::relative_error(output, naive()) < 1e-14);

  Values d_bias(bias.size(), 8);
  expert_bias_gradient(
      ExpertBiasGradient<double, double>{.rows = s.m,
                                         .cols = s.n,
                                         .experts = s.experts,
                                         .d_output = p.d_output.data(),
                                         .ends = p.ends.data(),
                                         .row_weights = weighted ? weights.data() : nullptr,
                                         .adds = adds,
                                         .bias_grad = d_bias.data()},
      nullptr);
  const auto loss = [&] { return test::dot(naive(), p.d_output); };
  Values expected = test::finite_differences(bias, loss);
  for (std::size_t i = 0; i < expected.size(); ++i)
    RC_ASSERT(std::fabs(d_bias[i] - expected[i] - (adds ? 8 : 0)) < 1e-8);
  if (!weighted) return;
  Values d_weights(weights.size(), 8);
  expert_bias_dots(ExpertBiasDots<double>{.rows = s.m,
                                          .cols = s.n,
                                          .experts = s.experts,
                                          .d_output = p.d_output.data(),
                                          .bias = bias.data(),
                                          .ends = p.ends.data(),
                                          .d_row_weights = d_weights.data()});
  expected = test::finite_differences(weights, loss);
  for (std::size_t i = 0; i < expected.size(); ++i)
    RC_ASSERT(std::fabs(d_weights[i] - expected[i] - 8) < 1e-8);
}

RC_GTEST_PROP(Sigmoid, ForwardAndBackward, (std::uint32_t seed)) {
  RandomValues random(seed);
  Values input = random(between(1, 9), 3);
  const auto rows = static_cast<std::int64_t>(input.size());
  const auto naive = [&] {
    Values output;
    for (const double x : input) output.push_back(1 / (1 + std::exp(-x)));
    return output;
  };
  Values output(input.size());
  sigmoid_forward(
      SigmoidForward<double>{.rows = rows, .input = input.data(), .output = output.data()});
  RC_ASSERT(test::relative_error(output, naive()) < 1e-14);
  const Values d_output = random(rows);
  Values d_input(input.size());
  sigmoid_backward(SigmoidBackward<double>{.rows = rows,
                                           .output = output.data(),
                                           .d_output = d_output.data(),
                                           .d_input = d_input.data()});
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double slope = std::exp(-input[i]) / std::pow(1 + std::exp(-input[i]), 2);
    RC_ASSERT(std::fabs(d_input[i] - slope * d_output[i]) <= 1e-15 * std::fabs(d_output[i]));
  }
}

RC_GTEST_PROP(WeightedSwiglu, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  const std::int64_t rows = between(1, 5);
  const std::int64_t cols = between(1, 6);
  RandomValues random(seed);
  Values gate_up = random(rows * 2 * cols, 2);
  Values weights = random(rows);
  const bool in_turn = *rc::gen::arbitrary<bool>();
  const bool weighted = *rc::gen::arbitrary<bool>();
  if (!weighted) std::ranges::fill(weights, 1);
  SwigluClamp<double> clamp;
  if (*rc::gen::arbitrary<bool>()) clamp = {.alpha = 1.702, .limit = 1.5};
  // Where the activation bends there is no difference to compare with.
  for (double& value : gate_up)
    if (std::fabs(std::fabs(value) - clamp.limit) < 0.01) value = 0.5;
  const auto naive = [&] {
    Values product;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        double gate = gate_up[at(r * 2 * cols + (in_turn ? 2 * c : c))];
        double up = gate_up[at(r * 2 * cols + (in_turn ? 2 * c + 1 : cols + c))];
        if (clamp.limit != 0) {
          gate = std::min(gate, 1.5);
          up = std::max(std::min(up, 1.5), -1.5) + 1;
        }
        const double alpha = clamp.limit != 0 ? 1.702 : 1;
        product.push_back(gate / (1 + std::exp(-alpha * gate)) * up * weights[at(r)]);
      }
    return product;
  };
  Values product(at(rows * cols));
  weighted_swiglu_forward(
      WeightedSwigluForward<double>{.rows = rows,
                                    .cols = cols,
                                    .experts = 1,
                                    .gate_up = gate_up.data(),
                                    .row_weights = weighted ? weights.data() : nullptr,
                                    .product = product.data(),
                                    .interleaved = in_turn,
                                    .clamp = clamp},
      rows);
  RC_ASSERT(test::relative_error(product, naive()) < 1e-14);

  const Values d_product = random(rows * cols);
  Values gradient = gate_up;
  Values in_place = d_product;
  Values d_weights(weights.size());
  weighted_swiglu_backward(
      WeightedSwigluBackward<double>{.rows = rows,
                                     .cols = cols,
                                     .experts = 1,
                                     .gate_up = gradient.data(),
                                     .row_weights = weighted ? weights.data() : nullptr,
                                     .d_product = in_place.data(),
                                     .product = again ? in_place.data() : nullptr,
                                     .d_row_weights = weighted ? d_weights.data() : nullptr,
                                     .interleaved = in_turn,
                                     .clamp = clamp},
      rows);
  RC_ASSERT(in_place == (again ? product : d_product));
  const auto loss = [&] { return test::dot(naive(), d_product); };
  RC_ASSERT(test::relative_error(gradient, test::finite_differences(gate_up, loss)) < 1e-6);
  if (!weighted) return;
  RC_ASSERT(test::relative_error(d_weights, test::finite_differences(weights, loss)) < 1e-6);
}

}  // namespace
}  // namespace mfsdp::kernels
