// A loss whose columns ranks share: each rank knows the softmax of its part, and all parts give the
// loss of whole rows and the gradient of a rank's own columns.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "verify/cpu/kernels/cross_entropy.hpp"

namespace mfsdp::kernels {
namespace {

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kVocab = 12;
constexpr std::int32_t kIgnored = -100;
const std::vector<std::int32_t> kLabels{3, 11, kIgnored, 0, 4};

std::vector<float> random_logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 6);
  std::vector<float> logits(kRows * kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// The loss, and gradients over the logits, of `ranks` ranks with equal parts of the columns.
LossSums<float> in_parts(std::vector<float>& logits, std::int64_t ranks, float scale) {
  const std::int64_t cols = kVocab / ranks;
  std::vector<SoftmaxPart<float>> parts(static_cast<std::size_t>(ranks * kRows));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    softmax_parts<float>({.labels = kLabels,
                          .vocab = cols,
                          .vocab_begin = rank * cols,
                          .logits = logits.data() + rank * cols,
                          .row = kVocab,
                          .output = parts.data() + rank * kRows},
                         kIgnored);
  LossSums<float> sums;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    CrossEntropy<float> call;
    call.labels = kLabels;
    call.vocab = cols;
    call.vocab_begin = rank * cols;
    call.logits = logits.data() + rank * cols;
    call.row = kVocab;
    call.parts = parts.data();
    call.peers = ranks;
    CrossEntropy<const float> loss;
    loss.labels = kLabels;
    loss.vocab = cols;
    loss.vocab_begin = rank * cols;
    loss.logits = call.logits;
    loss.row = kVocab;
    loss.parts = parts.data();
    loss.peers = ranks;
    const LossSums<float> alone = cross_entropy_of_parts(loss, kIgnored);
    sums = cross_entropy_of_parts(call, kIgnored, scale);
    EXPECT_EQ(alone.loss, sums.loss);
    EXPECT_EQ(sums.tokens, 4);
  }
  return sums;
}

TEST(SoftmaxParts, GiveTheLossAndTheGradientOfWholeRows) {
  for (const float scale : {1.0F, 8.0F}) {
    std::vector<float> whole = random_logits();
    const LossSums<float> expected = cross_entropy(std::span<const std::int32_t>(kLabels), kVocab,
                                                   kIgnored, whole.data(), 0.0F, scale);
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      std::vector<float> logits = random_logits();
      const LossSums<float> sums = in_parts(logits, ranks, scale);
      EXPECT_NEAR(sums.loss, expected.loss, 1e-5F * expected.loss);
      for (std::size_t i = 0; i < logits.size(); ++i)
        EXPECT_NEAR(logits[i], whole[i], 1e-6F * scale) << i;
    }
  }
}

}  // namespace
}  // namespace mfsdp::kernels
