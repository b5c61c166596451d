#include "verify/cpu/kernels/rope.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <complex>
#include <numbers>

#include "core/runtime/rope_table.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::finite_differences;
using test::kEpsilon;
using test::RandomValues;
using test::relative_error;
using test::Values;

struct RopeCase {
  RopeShape shape;
  std::int64_t query_heads = *rc::gen::inRange(1, 4);
  std::int64_t row = 0;  ///< elements of a token's qkv
  RandomValues random{*rc::gen::arbitrary<std::uint32_t>()};
  Values angles, table, qkv, query_weight, key_weight;
  bool by_rows = false;                 ///< norms go over all heads of a kind
  std::vector<std::int32_t> positions;  ///< of tokens, where the shape has them

  explicit RopeCase(bool norms_by_rows = false) : by_rows(norms_by_rows) {
    shape.seq_len = *rc::gen::inRange(1, 5);
    shape.tokens = shape.seq_len * *rc::gen::inRange(1, 3);
    shape.heads = query_heads + *rc::gen::inRange(1, 3);
    shape.head_dim = 2 * *rc::gen::inRange(1, 4);
    shape.turned = *rc::gen::element(shape.head_dim, std::int64_t{2});
    row = shape.heads * shape.head_dim + 3;
    angles = random(shape.seq_len * shape.turned / 2, 3);
    const auto half = static_cast<std::size_t>(shape.turned / 2);
    for (std::size_t at = 0; at < angles.size(); at += half) {
      for (std::size_t i = 0; i < half; ++i) table.push_back(std::cos(angles[at + i]));
      for (std::size_t i = 0; i < half; ++i) table.push_back(std::sin(angles[at + i]));
    }
    qkv = random(shape.tokens * row);
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      positions.push_back(*rc::gen::inRange<std::int32_t>(0, 4) %
                          static_cast<std::int32_t>(shape.seq_len));
    if (*rc::gen::arbitrary<bool>()) shape.positions = positions.data();
    query_weight = random(shape.head_dim * (by_rows ? query_heads : 1));
    key_weight = random(shape.head_dim * (by_rows ? shape.heads - query_heads : 1));
  }

  RopeCase(const RopeCase&) = delete;  // the shape points into it
  RopeCase& operator=(const RopeCase&) = delete;

  [[nodiscard]] std::int64_t position(std::int64_t token) const {
    return shape.positions == nullptr ? token % shape.seq_len
                                      : positions[static_cast<std::size_t>(token)];
  }

  [[nodiscard]] std::int64_t columns() const { return shape.heads * shape.head_dim; }

  /// Each pair as a complex number times e^(i angle), optionally of normed heads; contiguous.
  [[nodiscard]] Values naive(bool norm) const {
    Values out;
    const std::int64_t half = shape.turned / 2;
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const double* x = qkv.data() + t * row + h * shape.head_dim;
        const Values& weight = h < query_heads ? query_weight : key_weight;
        // The norm is over one head, with weights that all heads of its kind share, or over all
        // heads of its kind, each with weights of its own.
        const std::int64_t first = !by_rows || h < query_heads ? 0 : query_heads;
        const double* normed = by_rows ? qkv.data() + t * row + first * shape.head_dim : x;
        const std::int64_t own = by_rows ? (h - first) * shape.head_dim : 0;
        double squares = 0;
        for (std::size_t i = 0; i < weight.size(); ++i) squares += normed[i] * normed[i];
        const double root = std::sqrt(squares / static_cast<double>(weight.size()) + kEpsilon);
        const auto value = [&](std::int64_t i) {
          return norm ? x[i] / root * weight[static_cast<std::size_t>(own + i)] : x[i];
        };
        Values imaginary;
        Values kept;
        for (std::int64_t i = shape.turned; i < shape.head_dim; ++i) kept.push_back(value(i));
        for (std::int64_t i = 0; i < half; ++i) {
          const auto turned =
              std::complex(value(i), value(half + i)) *
              std::polar(1.0, angles[static_cast<std::size_t>(position(t) * half + i)]);
          out.push_back(turned.real());
          imaginary.push_back(turned.imag());
        }
        out.insert(out.end(), imaginary.begin(), imaginary.end());
        out.insert(out.end(), kept.begin(), kept.end());
      }
    return out;
  }

  /// The query and key columns of rows like qkv.
  [[nodiscard]] Values gathered(const Values& rows) const {
    Values out;
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      out.insert(out.end(), rows.begin() + t * row, rows.begin() + t * row + columns());
    return out;
  }
  [[nodiscard]] Values spread(const Values& values) {
    Values rows = random(shape.tokens * row);
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      std::copy_n(values.begin() + t * columns(), columns(), rows.begin() + t * row);
    return rows;
  }
};

RC_GTEST_PROP(Rope, TurnsEveryPairAndBack, ()) {
  RopeCase c;
  Values rows = c.qkv;
  rope<double>(c.shape, {.data = rows.data(), .row = c.row, .head = c.shape.head_dim},
               c.table.data(), false);
  RC_ASSERT(relative_error(c.gathered(rows), c.naive(false)) < 1e-14);
  rope<double>(c.shape, {.data = rows.data(), .row = c.row, .head = c.shape.head_dim},
               c.table.data(), true);
  // Value columns included, which rope must not touch.
  RC_ASSERT(relative_error(rows, c.qkv) < 1e-14);
}

RC_GTEST_PROP(Rope, BackwardIsTheForwardsDerivative, ()) {
  RopeCase c;
  const Values d_out = c.random(c.shape.tokens * c.columns());
  Values gradient = c.spread(d_out);
  rope<double>(c.shape, {.data = gradient.data(), .row = c.row, .head = c.shape.head_dim},
               c.table.data(), true);
  const Values expected =
      finite_differences(c.qkv, [&] { return test::dot(c.naive(false), d_out); });
  RC_ASSERT(relative_error(c.gathered(gradient), c.gathered(expected)) < 1e-6);
}

RC_GTEST_PROP(QkNormRope, ForwardAndBackward, ()) {
  RopeCase c;
  const std::int64_t head = c.shape.head_dim;
  Values out(static_cast<std::size_t>(c.shape.tokens * c.columns()));
  Values rstd(static_cast<std::size_t>(c.shape.tokens * c.shape.heads));
  qk_norm_rope_forward<double>({.shape = c.shape,
                                .query_heads = c.query_heads,
                                .epsilon = kEpsilon,
                                .in = {.data = c.qkv.data(), .row = c.row, .head = head},
                                .table = c.table.data(),
                                .query_weight = c.query_weight.data(),
                                .key_weight = c.key_weight.data(),
                                .out = {.data = out.data(), .row = c.columns(), .head = head},
                                .rstd = rstd.data()});
  RC_ASSERT(relative_error(out, c.naive(true)) < 1e-13);

  const Values d_out = c.random(c.shape.tokens * c.columns());
  Values gradient = c.spread(d_out);
  const std::int64_t partial_rows = *rc::gen::inRange<std::int64_t>(1, c.shape.tokens + 1);
  Values partials(static_cast<std::size_t>(2 * partial_rows * head), 7.0);
  qk_norm_rope_backward<double>({.shape = c.shape,
                                 .query_heads = c.query_heads,
                                 .partial_rows = partial_rows,
                                 .gradient = {.data = gradient.data(), .row = c.row, .head = head},
                                 .in = {.data = c.qkv.data(), .row = c.row, .head = head},
                                 .table = c.table.data(),
                                 .rstd = rstd.data(),
                                 .query_weight = c.query_weight.data(),
                                 .key_weight = c.key_weight.data(),
                                 .partials = partials.data()});
  const auto loss = [&] { return test::dot(c.naive(true), d_out); };
  RC_ASSERT(relative_error(c.gathered(gradient), c.gathered(finite_differences(c.qkv, loss))) <
            1e-6);
  Values d_weight(static_cast<std::size_t>(head));
  Values sums(d_weight.size());
  column_sums(partial_rows, head, partials.data(), sums.data(), false, d_weight.data());
  RC_ASSERT(relative_error(d_weight, finite_differences(c.query_weight, loss)) < 1e-6);
  column_sums(partial_rows, head, partials.data() + partial_rows * head, sums.data(), false,
              d_weight.data());
  RC_ASSERT(relative_error(d_weight, finite_differences(c.key_weight, loss)) < 1e-6);
}

RC_GTEST_PROP(QkRowNormRope, ForwardAndBackward, ()) {
  RopeCase c(true);
  const std::int64_t head = c.shape.head_dim;
  Values out(static_cast<std::size_t>(c.shape.tokens * c.columns()));
  Values rstd(static_cast<std::size_t>(c.shape.tokens * 2));
  qk_row_norm_rope_forward<double>({.shape = c.shape,
                                    .query_heads = c.query_heads,
                                    .epsilon = kEpsilon,
                                    .in = {.data = c.qkv.data(), .row = c.row, .head = head},
                                    .table = c.table.data(),
                                    .query_weight = c.query_weight.data(),
                                    .key_weight = c.key_weight.data(),
                                    .out = {.data = out.data(), .row = c.columns(), .head = head},
                                    .rstd = rstd.data()});
  RC_ASSERT(relative_error(out, c.naive(true)) < 1e-13);

  const Values d_out = c.random(c.shape.tokens * c.columns());
  Values gradient = c.spread(d_out);
  const std::int64_t partial_rows = *rc::gen::inRange<std::int64_t>(1, c.shape.tokens + 1);
  Values partials(static_cast<std::size_t>(partial_rows * c.columns()), 7.0);
  qk_row_norm_rope_backward<double>(
      {.shape = c.shape,
       .query_heads = c.query_heads,
       .partial_rows = partial_rows,
       .gradient = {.data = gradient.data(), .row = c.row, .head = head},
       .in = {.data = c.qkv.data(), .row = c.row, .head = head},
       .table = c.table.data(),
       .rstd = rstd.data(),
       .query_weight = c.query_weight.data(),
       .key_weight = c.key_weight.data(),
       .partials = partials.data()});
  const auto loss = [&] { return test::dot(c.naive(true), d_out); };
  RC_ASSERT(relative_error(c.gathered(gradient), c.gathered(finite_differences(c.qkv, loss))) <
            1e-6);
  const std::int64_t queries = c.query_heads * head;
  std::int64_t begin = 0;
  for (Values* weight : {&c.query_weight, &c.key_weight}) {
    Values d_weight(weight->size());
    Values sums(weight->size());
    column_sums(partial_rows, std::ssize(*weight), partials.data() + begin, sums.data(), false,
                d_weight.data());
    RC_ASSERT(relative_error(d_weight, finite_differences(*weight, loss)) < 1e-6);
    begin += partial_rows * queries;
  }
}

TEST(RopeTable, HoldsCosinesThenSines) {
  ModelShape model;
  model.head_dim = 4;
  model.rope_theta = {100, 1};
  // Frequencies 100^0 and 100^(-2/4) = 0.1.
  const std::vector<float> table = make_rope_table(model, 3);
  ASSERT_EQ(table.size(), 12u);
  EXPECT_EQ((std::vector(table.begin(), table.begin() + 4)), (std::vector<float>{1, 1, 0, 0}));
  EXPECT_FLOAT_EQ(table[8], std::cos(2.0F));
  EXPECT_FLOAT_EQ(table[9], std::cos(0.2F));
  EXPECT_FLOAT_EQ(table[10], std::sin(2.0F));
  EXPECT_FLOAT_EQ(table[11], std::sin(0.2F));
}

TEST(RopeTable, ScalesFrequenciesAsLlama31Does) {
  ModelShape model;
  model.head_dim = 128;
  model.rope_theta = {500000, 1};
  const std::vector<double> plain = rope_frequencies(model, 64);
  model.rope_scaling = {.factor = {8, 1},
                        .low_freq_factor = {1, 1},
                        .high_freq_factor = {4, 1},
                        .original_max_seq_len = 8192};
  const std::vector<double> scaled = rope_frequencies(model, 64);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    // By wave length: under 8192 / 4 kept, over 8192 / 1 stretched 8 times, between blended.
    const double wave = 2 * std::numbers::pi / plain[i];
    const double smooth = (8192 / wave - 1) / (4 - 1);
    const double expected = wave < 2048   ? plain[i]
                            : wave > 8192 ? plain[i] / 8
                                          : (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    EXPECT_DOUBLE_EQ(scaled[i], expected) << i;
  }
  EXPECT_EQ(scaled[0], 1);
  EXPECT_DOUBLE_EQ(scaled[63], plain[63] / 8);
}

TEST(RopeTable, LinearScalingStretchesAllAlike) {
  ModelShape model;
  model.head_dim = 4;
  model.rope_theta = {100, 1};
  model.rope_scaling = {.kind = RopeKind::linear, .factor = {5, 2}};
  const std::vector<double> scaled = rope_frequencies(model, 64);
  EXPECT_DOUBLE_EQ(scaled[0], 1 / 2.5);
  EXPECT_DOUBLE_EQ(scaled[1], 0.1 / 2.5);
  EXPECT_EQ(rope_magnitude(model), 1);
}

/// Qwen2.5's YaRN: factor 4 over 32768 tokens, heads of 128, theta 10^6. The wave of index
/// 128 ln(32768 / (2 pi r)) / (2 ln 10^6) makes r periods in 32768 positions: 23.6 for r = 32 and
/// 39.7 for r = 1, rounded outwards 23 and 40 (Peng et al., arXiv 2309.00071, section 3.2).
TEST(RopeTable, YarnKeepsShortWavesAndStretchesLongOnes) {
  ModelShape model;
  model.head_dim = 128;
  model.rope_theta = {1000000, 1};
  const std::vector<double> plain = rope_frequencies(model, 64);
  model.rope_scaling = {.kind = RopeKind::yarn,
                        .factor = {4, 1},
                        .low_freq_factor = {1, 1},
                        .high_freq_factor = {32, 1},
                        .original_max_seq_len = 32768};
  const std::vector<double> scaled = rope_frequencies(model, 64);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double number = static_cast<double>(i);
    const double kept = i <= 23 ? 1 : i >= 40 ? 0 : (40 - number) / 17;
    EXPECT_NEAR(scaled[i], plain[i] * (kept + (1 - kept) / 4), 1e-15 * plain[i]) << i;
  }
  // 0.1 ln 4 + 1; what the model states counts instead.
  EXPECT_DOUBLE_EQ(rope_magnitude(model), 1.1386294361119891);
  const std::vector<float> table = make_rope_table(model, 2);
  EXPECT_FLOAT_EQ(table[0], 1.1386294F);
  EXPECT_FLOAT_EQ(table[128], 1.1386294F * std::cos(1.0F));
  EXPECT_FLOAT_EQ(table[192], 1.1386294F * std::sin(1.0F));
  model.rope_scaling.attention_factor = {3, 2};
  EXPECT_EQ(rope_magnitude(model), 1.5);
}

/// Phi-3's form: short factors up to the original context, long ones beyond it; both times
/// sqrt(1 + ln(8 / 4) / ln 4) (Ding et al., arXiv 2402.13753, as Phi-3's model card has it).
TEST(RopeTable, LongRopeDividesEachFrequency) {
  ModelShape model;
  model.head_dim = 4;
  model.rope_theta = {100, 1};
  model.rope_scaling = {.kind = RopeKind::longrope,
                        .factor = {2, 1},
                        .original_max_seq_len = 4,
                        .short_factors = {{1, 1}, {5, 4}},
                        .long_factors = {{2, 1}, {10, 1}}};
  const std::vector<double> within = rope_frequencies(model, 4);
  EXPECT_DOUBLE_EQ(within[0], 1);
  EXPECT_DOUBLE_EQ(within[1], 0.1 / 1.25);
  const std::vector<double> beyond = rope_frequencies(model, 5);
  EXPECT_DOUBLE_EQ(beyond[0], 0.5);
  EXPECT_DOUBLE_EQ(beyond[1], 0.01);
  EXPECT_DOUBLE_EQ(rope_magnitude(model), std::sqrt(1.5));
}

TEST(RopeTable, PartsOfHeadsHaveFrequenciesOfTheirOwnLength) {
  ModelShape model;
  model.head_dim = 8;
  model.rotary_dim = 4;
  model.rope_theta = {100, 1};
  EXPECT_EQ(rope_frequencies(model, 3), (std::vector<double>{1, std::pow(100, -0.5)}));
  EXPECT_EQ(make_rope_table(model, 3).size(), 12u);
}

TEST(RopeTable, LayersThatSlideMayTurnByAnotherThetaUnscaled) {
  ModelShape model;
  model.head_dim = 4;
  model.rope_theta = {10000, 1};
  model.local_rope_theta = {100, 1};
  model.rope_scaling = {.kind = RopeKind::linear, .factor = {8, 1}};
  EXPECT_DOUBLE_EQ(rope_frequencies(model, 3)[1], 0.01 / 8);
  EXPECT_DOUBLE_EQ(rope_frequencies(model, 3, true)[1], 0.1);
  EXPECT_FLOAT_EQ(make_rope_table(model, 3, true)[9], std::cos(0.2F));
}

TEST(RopeTable, LayersWithoutRopeRotateByNothing) {
  ModelShape model;
  model.head_dim = 4;
  model.nope_layers = {0};
  EXPECT_EQ(make_rope_table(model, 2, true), (std::vector<float>{1, 1, 0, 0, 1, 1, 0, 0}));
}

}  // namespace
}  // namespace mfsdp::kernels
