#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"
#include "verify/cpu/kernels/embedding.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

constexpr std::int32_t kIgnored = -100;

std::vector<std::int32_t> any_tokens(RandomValues& random, std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(random.below(vocab));
  return tokens;
}

RC_GTEST_PROP(Embedding, ForwardPicksRowsAndBackwardSumsThem, (std::uint32_t seed, bool adds)) {
  const std::int64_t count = *rc::gen::inRange(1, 20);
  const std::int64_t vocab = *rc::gen::inRange(1, 8);
  const std::int64_t cols = *rc::gen::inRange(1, 5);
  RandomValues random(seed);
  const auto tokens = any_tokens(random, count, vocab);
  const Values table = random(vocab * cols);
  Values output(static_cast<std::size_t>(count * cols));
  const double scale = *rc::gen::element(1.0, 3.5);
  embedding_forward<double>({.tokens = tokens,
                             .cols = cols,
                             .vocab = vocab,
                             .scale = scale,
                             .table = table.data(),
                             .output = output.data()});
  const Values d_output = random(count * cols);
  Values gradient = random(vocab * cols);
  Values expected = adds ? gradient : Values(gradient.size());
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const auto place = static_cast<std::size_t>(i * cols + j);
      const auto row = static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)] * cols + j);
      RC_ASSERT(output[place] == scale * table[row]);
      expected[row] += scale * d_output[place];
    }
  std::vector<TokenPlace> order(tokens.size());
  Values of_parts = gradient;
  const auto add_rows = [&](std::int64_t begin, std::int64_t rows, Values& to) {
    embedding_backward<double, double>({.tokens = tokens,
                                        .cols = cols,
                                        .vocab = rows,
                                        .scale = scale,
                                        .d_output = d_output.data(),
                                        .order = order,
                                        .adds = adds,
                                        .gradient = to.data() + begin * cols,
                                        .vocab_begin = begin,
                                        .is_part = rows != vocab});
  };
  add_rows(0, vocab, gradient);
  // Two parts of the vocabulary have its rows of the gradient, and their outputs add up to all.
  const std::int64_t cut = *rc::gen::inRange<std::int64_t>(0, vocab + 1);
  add_rows(0, cut, of_parts);
  add_rows(cut, vocab - cut, of_parts);
  RC_ASSERT(of_parts == gradient);
  Values sum(output.size());
  for (const auto& [begin, rows] : {std::pair{std::int64_t{0}, cut}, {cut, vocab - cut}}) {
    Values part(output.size(), 7);
    embedding_forward<double>({.tokens = tokens,
                               .cols = cols,
                               .vocab = rows,
                               .scale = scale,
                               .table = table.data() + begin * cols,
                               .output = part.data(),
                               .vocab_begin = begin,
                               .is_part = true});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  RC_ASSERT(sum == output);
  // Up to 21 terms a sum, which may cancel: their order alone makes a difference of some 1e-13.
  RC_ASSERT(test::relative_error(gradient, expected) < 1e-11);
}

RC_GTEST_PROP(Embedding, AddsPositionsWhoseGradientIsOfAllSequences,
              (std::uint32_t seed, bool adds)) {
  const std::int64_t seq = *rc::gen::inRange(1, 6);
  const std::int64_t count = seq * *rc::gen::inRange(1, 4);
  const std::int64_t rows = seq + *rc::gen::inRange(0, 3);  // of the table of positions
  const std::int64_t cols = *rc::gen::inRange(1, 5);
  RandomValues random(seed);
  const auto tokens = any_tokens(random, count, 3);
  const Values table = random(3 * cols);
  const Values positions = random(rows * cols);
  Values output(static_cast<std::size_t>(count * cols));
  embedding_forward<double>({.tokens = tokens,
                             .cols = cols,
                             .vocab = 3,
                             .table = table.data(),
                             .positions = positions.data(),
                             .seq_len = seq,
                             .output = output.data()});
  const Values d_output = random(count * cols);
  Values gradient = random(rows * cols);
  Values expected = adds ? gradient : Values(gradient.size());
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const auto place = static_cast<std::size_t>(i * cols + j);
      const auto position = static_cast<std::size_t>(i % seq * cols + j);
      const auto row = static_cast<std::size_t>(tokens[static_cast<std::size_t>(i)] * cols + j);
      RC_ASSERT(output[place] == table[row] + positions[position]);
      expected[position] += d_output[place];
    }
  position_embedding_backward<double, double>({.rows = count,
                                               .cols = cols,
                                               .seq_len = seq,
                                               .positions = rows,
                                               .d_output = d_output.data(),
                                               .adds = adds,
                                               .gradient = gradient.data()});
  RC_ASSERT(test::relative_error(gradient, expected) < 1e-13);
}

/// Logits, labels and some that are ignored.
struct CrossEntropyCase {
  std::int64_t rows = *rc::gen::inRange(1, 8);
  std::int64_t vocab = *rc::gen::inRange(1, 10);
  double cap = *rc::gen::element(0.0, 2.0);
  RandomValues random{*rc::gen::arbitrary<std::uint32_t>()};
  Values logits = random(rows * vocab, 3);
  std::vector<std::int32_t> labels = any_tokens(random, rows, vocab);

  CrossEntropyCase() {
    for (std::int32_t& label : labels)
      if (random.below(3) == 0) label = kIgnored;
  }

  [[nodiscard]] double naive() const {
    double loss = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnored) continue;
      const double* row = logits.data() + static_cast<std::int64_t>(i) * vocab;
      double sum = 0;
      const auto logit = [&](std::int64_t j) {
        return cap == 0 ? row[j] : cap * std::tanh(row[j] / cap);
      };
      for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(logit(j));
      loss -= std::log(std::exp(logit(labels[i])) / sum);
    }
    return loss;
  }
};

RC_GTEST_PROP(CrossEntropy, LossAndGradient, ()) {
  CrossEntropyCase c;
  const auto counted = static_cast<double>(
      std::ranges::count_if(c.labels, [](std::int32_t label) { return label != kIgnored; }));
  const double expected = c.naive();
  const LossSums<double> alone = cross_entropy_loss(std::span<const std::int32_t>(c.labels),
                                                    c.vocab, kIgnored, c.logits.data(), c.cap);
  RC_ASSERT(std::fabs(alone.loss - expected) <= 1e-13 * (1 + expected));
  RC_ASSERT(alone.tokens == counted);
  Values log_probs(c.labels.size(), 7);
  RC_ASSERT(cross_entropy_loss(std::span<const std::int32_t>(c.labels), c.vocab, kIgnored,
                               c.logits.data(), c.cap, 0, log_probs.data())
                .loss == alone.loss);
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    const auto row = std::span<const std::int32_t>(c.labels).subspan(i, 1);
    const double* logits = c.logits.data() + static_cast<std::int64_t>(i) * c.vocab;
    RC_ASSERT(log_probs[i] == -cross_entropy_loss(row, c.vocab, kIgnored, logits, c.cap).loss);
  }
  Values gradient = c.logits;
  const LossSums<double> sums = cross_entropy(std::span<const std::int32_t>(c.labels), c.vocab,
                                              kIgnored, gradient.data(), c.cap);
  RC_ASSERT(sums.loss == alone.loss);
  RC_ASSERT(sums.tokens == counted);
  // Rows with unused ends.
  const std::int64_t pitch = c.vocab + *rc::gen::inRange(1, 4);
  Values spread(static_cast<std::size_t>(c.rows * pitch), 7);
  for (std::int64_t row = 0; row < c.rows; ++row)
    std::copy_n(c.logits.begin() + row * c.vocab, c.vocab, spread.begin() + row * pitch);
  RC_ASSERT(cross_entropy(std::span<const std::int32_t>(c.labels), c.vocab, kIgnored, spread.data(),
                          c.cap, 1.0, pitch)
                .loss == sums.loss);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    RC_ASSERT(std::equal(gradient.begin() + row * c.vocab, gradient.begin() + (row + 1) * c.vocab,
                         spread.begin() + row * pitch));
    RC_ASSERT(spread[static_cast<std::size_t>((row + 1) * pitch - 1)] == 7);
  }
  const Values differences = test::finite_differences(c.logits, [&] { return c.naive(); });
  // One logit has no gradient at all: compare beside 1.
  gradient.push_back(1);
  Values padded = differences;
  padded.push_back(1);
  RC_ASSERT(test::relative_error(gradient, padded) < 1e-6);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  std::vector<float> logits{1000, 0, -1000};
  const std::vector<std::int32_t> labels{1};
  const auto sums =
      cross_entropy(std::span<const std::int32_t>(labels), 3, kIgnored, logits.data());
  EXPECT_EQ(sums.loss, 1000);
  EXPECT_EQ(logits, (std::vector<float>{1, -1, 0}));
}

}  // namespace
}  // namespace mfsdp::kernels
