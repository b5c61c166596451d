// A loss whose columns ranks share: each rank knows the softmax of its part, and all parts give the
// loss of whole rows and the gradient of a rank's own columns.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "verify/cpu/kernels/cross_entropy.hpp"

namespace mfsdp::kernels {
namespace {

constexpr std::int64_t kPartRows = 5;
constexpr std::int64_t kPartVocab = 12;
constexpr std::int32_t kNoLabel = -100;
const std::vector<std::int32_t> kPartLabels{3, 11, kNoLabel, 0, 4};

std::vector<float> drawn_logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 6);
  std::vector<float> logits(kPartRows * kPartVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// The loss, and gradients over the logits, of `ranks` ranks with equal parts of the columns.
LossSums<float> in_parts(std::vector<float>& logits, std::int64_t ranks, float scale) {
  const std::int64_t cols = kPartVocab / ranks;
  std::vector<SoftmaxPart<float>> parts(static_cast<std::size_t>(ranks * kPartRows));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    softmax_parts<float>({.labels = kPartLabels,
                          .vocab = cols,
                          .vocab_begin = rank * cols,
                          .logits = logits.data() + rank * cols,
                          .row = kPartVocab,
                          .output = parts.data() + rank * kPartRows},
                         kNoLabel);
  LossSums<float> sums;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    CrossEntropy<float> call;
    call.labels = kPartLabels;
    call.vocab = cols;
    call.vocab_begin = rank * cols;
    call.logits = logits.data() + rank * cols;
    call.row = kPartVocab;
    call.parts = parts.data();
    call.peers = ranks;
    CrossEntropy<const float> loss;
    loss.labels = kPartLabels;
    loss.vocab = cols;
    loss.vocab_begin = rank * cols;
    loss.logits = call.logits;
    loss.row = kPartVocab;
    loss.parts = parts.data();
    loss.peers = ranks;
    const LossSums<float> alone = cross_entropy_of_parts(loss, kNoLabel);
    sums = cross_entropy_of_parts(call, kNoLabel, scale);
    EXPECT_EQ(alone.loss, sums.loss);
    EXPECT_EQ(sums.tokens, 4);
  }
  return sums;
}

TEST(SoftmaxParts, GiveTheLossAndTheGradientOfWholeRows) {
  for (const float scale : {1.0F, 8.0F}) {
    std::vector<float> whole = drawn_logits();
    const LossSums<float> expected = cross_entropy(std::span<const std::int32_t>(kPartLabels),
                                                   kPartVocab, kNoLabel, whole.data(), 0.0F, scale);
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      std::vector<float> logits = drawn_logits();
      const LossSums<float> sums = in_parts(logits, ranks, scale);
      EXPECT_NEAR(sums.loss, expected.loss, 1e-5F * expected.loss);
      for (std::size_t i = 0; i < logits.size(); ++i)
        EXPECT_NEAR(logits[i], whole[i], 1e-6F * scale) << i;
    }
  }
}

}  // namespace
}  // namespace mfsdp::kernels
