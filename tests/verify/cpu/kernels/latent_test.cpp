#include "verify/cpu/kernels/latent.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::finite_differences;
using test::RandomValues;
using test::relative_error;
using test::Values;

std::size_t place(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t any_of(std::int64_t low, std::int64_t high) {
  return *rc::gen::inRange(low, high + 1);
}

/// Two sequences, heads and what they are made of.
struct Heads {
  LatentShape s;
  std::int64_t width;  ///< of the latent row
  Values query, key_value, latent;
  std::vector<float> table;

  explicit Heads(std::uint32_t seed) {
    s.seq_len = any_of(1, 3);
    s.rows = 2 * s.seq_len;
    s.heads = any_of(1, 3);
    s.turned = 2 * any_of(1, 2);
    s.head_dim = s.turned + any_of(0, 2);
    s.value_dim = any_of(1, 4);
    width = any_of(1, 3) + s.turned;
    RandomValues random(seed);
    query = random(s.rows * s.heads * s.head_dim);
    key_value = random(s.rows * s.heads * (s.kept() + s.value_dim));
    latent = random(s.rows * width);
    for (std::int64_t p = 0; p < s.seq_len; ++p) {
      Values angles = random(s.turned / 2);
      for (const double angle : angles) table.push_back(static_cast<float>(std::cos(angle)));
      for (const double angle : angles) table.push_back(static_cast<float>(std::sin(angle)));
    }
  }

  [[nodiscard]] std::int64_t row() const { return s.heads * (2 * s.head_dim + s.value_dim); }

  /// Numbers 2i and 2i + 1 as a complex number, times the position's.
  [[nodiscard]] double turned(const Values& from, std::int64_t begin, std::int64_t i,
                              std::int64_t token) const {
    const std::int64_t pair = i / 2;
    const std::int64_t angles = token % s.seq_len * s.turned;
    const double cosine = table[place(angles + pair)];
    const double sine = table[place(angles + s.turned / 2 + pair)];
    const double a = from[place(begin + 2 * pair)];
    const double b = from[place(begin + 2 * pair + 1)];
    return i % 2 == 0 ? a * cosine - b * sine : a * sine + b * cosine;
  }

  [[nodiscard]] Values naive() const {
    Values made;
    for (std::int64_t t = 0; t < s.rows; ++t) {
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.head_dim; ++i) {
          const std::int64_t begin = (t * s.heads + h) * s.head_dim;
          made.push_back(i < s.kept() ? query[place(begin + i)]
                                      : turned(query, begin + s.kept(), i - s.kept(), t));
        }
      const auto of_head = [&](std::int64_t h) {
        return (t * s.heads + h) * (s.kept() + s.value_dim);
      };
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.head_dim; ++i)
          made.push_back(i < s.kept()
                             ? key_value[place(of_head(h) + i)]
                             : turned(latent, (t + 1) * width - s.turned, i - s.kept(), t));
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.value_dim; ++i)
          made.push_back(key_value[place(of_head(h) + s.kept() + i)]);
    }
    return made;
  }
};

RC_GTEST_PROP(LatentHeads, ForwardAndBackward, (std::uint32_t seed)) {
  Heads h(seed);
  Values output(place(h.s.rows * h.row()));
  latent_heads_forward(LatentHeadsForward<double>{.shape = h.s,
                                                  .latent_width = h.width,
                                                  .query = h.query.data(),
                                                  .key_value = h.key_value.data(),
                                                  .latent = h.latent.data(),
                                                  .table = h.table.data(),
                                                  .output = output.data()});
  RC_ASSERT(relative_error(output, h.naive()) < 1e-14);

  const Values d_output = RandomValues(seed + 1)(std::ssize(output));
  Values d_query(h.query.size());
  Values d_key_value(h.key_value.size());
  Values d_turned(place(h.s.rows * h.s.turned));
  latent_heads_backward(LatentHeadsBackward<double>{.shape = h.s,
                                                    .d_output = d_output.data(),
                                                    .table = h.table.data(),
                                                    .d_query = d_query.data(),
                                                    .d_key_value = d_key_value.data(),
                                                    .d_turned = d_turned.data()});
  const auto loss = [&] { return test::dot(h.naive(), d_output); };
  RC_ASSERT(relative_error(d_query, finite_differences(h.query, loss)) < 1e-8);
  RC_ASSERT(relative_error(d_key_value, finite_differences(h.key_value, loss)) < 1e-8);
  const Values d_latent = finite_differences(h.latent, loss);
  for (std::int64_t t = 0; t < h.s.rows; ++t)
    for (std::int64_t i = 0; i < h.s.turned; ++i)
      RC_ASSERT(std::fabs(d_turned[place(t * h.s.turned + i)] -
                          d_latent[place((t + 1) * h.width - h.s.turned + i)]) < 1e-8);
}

RC_GTEST_PROP(LatentNorm, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  const std::int64_t rows = any_of(1, 5);
  const std::int64_t cols = any_of(1, 5);
  const std::int64_t rest = any_of(1, 3);
  const std::int64_t width = cols + rest;
  RandomValues random(seed);
  Values input = random(rows * width);
  Values weight = random(cols);
  const auto naive = [&] {
    Values made;
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < cols; ++c) squares += std::pow(input[place(r * width + c)], 2);
      const double root = std::sqrt(squares / static_cast<double>(cols) + test::kEpsilon);
      for (std::int64_t c = 0; c < cols; ++c)
        made.push_back(input[place(r * width + c)] / root * weight[place(c)]);
    }
    return made;
  };
  Values normed(place(rows * cols));
  Values rstd(place(rows));
  latent_norm_forward(LatentNormForward<double>{.rows = rows,
                                                .cols = cols,
                                                .width = width,
                                                .epsilon = test::kEpsilon,
                                                .input = input.data(),
                                                .weight = weight.data(),
                                                .normed = normed.data(),
                                                .rstd = rstd.data()});
  RC_ASSERT(relative_error(normed, naive()) < 1e-13);

  const Values d_normed = random(rows * cols);
  const Values d_rest = random(rows * rest);
  Values in_place = d_normed;
  Values d_input(input.size());
  Values partials(place(2 * cols));
  latent_norm_backward(LatentNormBackward<double>{.rows = rows,
                                                  .cols = cols,
                                                  .width = width,
                                                  .partial_rows = 2,
                                                  .d_normed = in_place.data(),
                                                  .input = input.data(),
                                                  .rstd = rstd.data(),
                                                  .weight = weight.data(),
                                                  .d_rest = d_rest.data(),
                                                  .d_input = d_input.data(),
                                                  .normed = again ? in_place.data() : nullptr,
                                                  .partials = partials.data()},
                       nullptr);
  RC_ASSERT(in_place == (again ? normed : d_normed));
  const auto loss = [&] {
    double sum = test::dot(naive(), d_normed);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < rest; ++i)
        sum += input[place(r * width + cols + i)] * d_rest[place(r * rest + i)];
    return sum;
  };
  const Values expected = finite_differences(input, loss);
  for (std::size_t i = 0; i < expected.size(); ++i)
    RC_ASSERT(std::fabs(d_input[i] - expected[i]) < 1e-7);
  const Values d_weight = finite_differences(weight, loss);
  for (std::int64_t c = 0; c < cols; ++c)
    RC_ASSERT(std::fabs(partials[place(c)] + partials[place(cols + c)] - d_weight[place(c)]) <
              1e-7);
}

}  // namespace
}  // namespace mfsdp::kernels
