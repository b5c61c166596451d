#include "gpu_backend/cuda/kernels/tokens.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_backend/cuda/kernels/grid_scratch.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"
#include "verify/cpu/kernels/embedding.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int32_t kIgnored = -100;

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids) id = static_cast<std::int32_t>(bits() % static_cast<std::uint32_t>(vocab));
  return ids;
}

template <class T>
bool all_nan(const std::vector<T>& values, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < begin + count; ++i)
    if (!std::isnan(widen(values[static_cast<std::size_t>(i)]))) return false;
  return true;
}

struct Lookup {
  std::int64_t tokens, cols, vocab;
};
// Every token often; one token alone; more than one warp's; so often that blocks share their rows,
// in whole packs and not, in fewer rows than threads and in more than these take at once.
constexpr std::array<Lookup, 8> kLookups{{{1, 1, 1},
                                          {50, 24, 7},
                                          {300, 333, 40},
                                          {100, 4096, 1},
                                          {3000, 2056, 900},
                                          {70, 333, 1},
                                          {3000, 333, 2},
                                          {3000, 1040, 4}}};

template <class T>
class DeviceTokens : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceTokens, Elements);

TYPED_TEST(DeviceTokens, EmbeddingCopiesRows) {
  using T = TypeParam;
  for (const auto [tokens, cols, vocab] : kLookups) {
    auto ids = random_ids(tokens, vocab, 1);
    if (tokens > 2) ids[1] = static_cast<std::int32_t>(vocab);  // a stray id
    const auto table = random_values<T>(vocab * cols, 2);
    const DeviceArray<std::int32_t> d_ids(ids);
    const DeviceArray<T> d_table(table), output(tokens * cols);
    expect_runs(embedding_forward(kernels::EmbeddingForward<T>{.tokens = {d_ids.data(), ids.size()},
                                                               .cols = cols,
                                                               .vocab = vocab,
                                                               .table = d_table.data(),
                                                               .output = output.data()},
                                  nullptr));
    const auto got = output.download();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(i)];
      if (id == vocab)
        EXPECT_TRUE(all_nan(got, i * cols, cols));
      else
        EXPECT_EQ(std::memcmp(&got[static_cast<std::size_t>(i * cols)],
                              &table[static_cast<std::size_t>(id * cols)],
                              static_cast<std::size_t>(cols) * sizeof(T)),
                  0);
    }
    EXPECT_TRUE(output.margin_is_whole());
  }
}

template <class T, class G>
void check_embedding_backward() {
  for (const auto [tokens, cols, vocab] : kLookups)
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(testing::Message() << tokens << " x " << cols << " of " << vocab);
      const auto ids = random_ids(tokens, vocab, 1);
      const auto dy = random_values<T>(tokens * cols, 2);
      const auto before = random_values<G>(vocab * cols, 3);
      auto expected = widened(before);
      const auto wide = widened(dy);
      std::vector<kernels::TokenPlace> order(ids.size());
      const double scale = adds ? 2.5 : 1;
      kernels::embedding_backward(
          kernels::EmbeddingBackward<double, double>{.tokens = ids,
                                                     .cols = cols,
                                                     .vocab = vocab,
                                                     .scale = scale,
                                                     .d_output = wide.data(),
                                                     .order = order,
                                                     .adds = adds,
                                                     .gradient = expected.data()});
      const DeviceArray<std::int32_t> d_ids(ids);
      const DeviceArray<T> d_dy(dy);
      const DeviceArray<kernels::TokenPlace> d_order(tokens);
      std::vector<G> first;
      for (int run = 0; run < 2; ++run) {
        const DeviceArray<G> gradient(before);
        expect_runs(embedding_backward(
            kernels::EmbeddingBackward<T, G>{.tokens = {d_ids.data(), ids.size()},
                                             .cols = cols,
                                             .vocab = vocab,
                                             .scale = static_cast<float>(scale),
                                             .d_output = d_dy.data(),
                                             .order = {d_order.data(), ids.size()},
                                             .adds = adds,
                                             .gradient = gradient.data()},
            nullptr));
        EXPECT_LT(relative_error(gradient.download(), expected), kTolerance<G>);
        EXPECT_TRUE(gradient.margin_is_whole() && d_order.margin_is_whole());
        if (run == 0) first = gradient.download();
        EXPECT_TRUE(same_bits(gradient.download(), first));
      }
      const auto got = d_order.download();
      EXPECT_TRUE(std::ranges::equal(got, order));
    }
}

TEST(DeviceEmbedding, GradientsAreSumsInOneOrder) {
  check_embedding_backward<Bf16, float>();
  check_embedding_backward<Bf16, Bf16>();
  check_embedding_backward<Fp16, float>();
  check_embedding_backward<float, float>();
}

struct Logits {
  std::int64_t rows, vocab;
};

TYPED_TEST(DeviceTokens, PositionsAreAddedAndSummed) {
  using T = TypeParam;
  for (const std::int64_t cols : {24, 333, 4096}) {
    SCOPED_TRACE(cols);
    constexpr std::int64_t seq = 7, tokens = 21, rows = 9;
    const auto ids = random_ids(tokens, 5, 1);
    const auto table = random_values<T>(5 * cols, 2), positions = random_values<T>(rows * cols, 3),
               dy = random_values<T>(tokens * cols, 4);
    const DeviceArray<std::int32_t> d_ids(ids);
    const DeviceArray<T> d_table(table), d_positions(positions), d_dy(dy), output(tokens * cols);
    expect_runs(embedding_forward(kernels::EmbeddingForward<T>{.tokens = {d_ids.data(), ids.size()},
                                                               .cols = cols,
                                                               .vocab = 5,
                                                               .table = d_table.data(),
                                                               .positions = d_positions.data(),
                                                               .seq_len = seq,
                                                               .output = output.data()},
                                  nullptr));
    const auto wide_table = widened(table), wide_positions = widened(positions),
               wide_dy = widened(dy);
    std::vector<double> expected(dy.size());
    kernels::embedding_forward(kernels::EmbeddingForward<double>{.tokens = ids,
                                                                 .cols = cols,
                                                                 .vocab = 5,
                                                                 .table = wide_table.data(),
                                                                 .positions = wide_positions.data(),
                                                                 .seq_len = seq,
                                                                 .output = expected.data()});
    EXPECT_LT(relative_error(output.download(), expected), kTolerance<T>);
    EXPECT_TRUE(output.margin_is_whole());
    for (const bool adds : {false, true}) {
      const auto before = random_values<float>(rows * cols, 5);
      const DeviceArray<float> gradient(before);
      expect_runs(position_embedding_backward(
          kernels::PositionEmbeddingBackward<T, float>{.rows = tokens,
                                                       .cols = cols,
                                                       .seq_len = seq,
                                                       .positions = rows,
                                                       .d_output = d_dy.data(),
                                                       .adds = adds,
                                                       .gradient = gradient.data()},
          nullptr));
      auto wide_gradient = widened(before);
      kernels::position_embedding_backward(
          kernels::PositionEmbeddingBackward<double, double>{.rows = tokens,
                                                             .cols = cols,
                                                             .seq_len = seq,
                                                             .positions = rows,
                                                             .d_output = wide_dy.data(),
                                                             .adds = adds,
                                                             .gradient = wide_gradient.data()});
      EXPECT_LT(relative_error(gradient.download(), wide_gradient), 1e-6);
      EXPECT_TRUE(gradient.margin_is_whole());
    }
  }
}

/// [rows, cols] in rows of `pitch` elements, whose ends are zero.
template <class T>
std::vector<T> spread_rows(const std::vector<T>& values, std::int64_t rows, std::int64_t cols,
                           std::int64_t pitch) {
  std::vector<T> spread(static_cast<std::size_t>(rows * pitch), T{});
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(values.begin() + row * cols, cols, spread.begin() + row * pitch);
  return spread;
}

TYPED_TEST(DeviceTokens, CrossEntropyAndItsGradient) {
  using T = TypeParam;
  const DeviceArray<GridScratch> workspace(1);  // of any contents
  // Rows of whole packs and not, longer than shared memory keeps, more rows than blocks.
  for (const auto [rows, vocab] : {Logits{4, 5}, {7, 1000}, {3, 50257}, {5, 128256}, {2100, 64}})
    for (const auto& [adds, cap] :
         {std::pair{false, 0.0F}, {true, 0.0F}, {false, 2.5F}, {true, 30.0F}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << vocab << ", cap " << cap);
      const auto logits = random_values<T>(rows * vocab, 1, 4);
      auto labels = random_ids(rows, vocab, 2);
      labels[1] = kIgnored;
      auto gradient = widened(logits);
      const bool scales = std::is_same_v<T, Fp16>;
      const LossScaleState scale{.scale = 64};
      const DeviceArray<LossScaleState> d_scale(std::vector<LossScaleState>{scale});
      const auto loss =
          kernels::cross_entropy(std::span<const std::int32_t>(labels), vocab, kIgnored,
                                 gradient.data(), double{cap}, scales ? double{scale.scale} : 1.0);
      const double before = adds ? 3 : 0;
      const std::vector<double> expected{loss.loss + before, loss.tokens + before};
      const DeviceArray<std::int32_t> d_labels(labels);
      // With a softcap, rows begin on multiples of 16 bytes, as plans place them.
      const bool is_spread = cap != 0 || vocab == 50257;  // in rows with unused ends
      const std::int64_t pitch = is_spread ? round_up(vocab, 16 / std::int64_t{sizeof(T)}) : vocab;
      const DeviceArray<T> in_place(spread_rows(logits, rows, vocab, pitch));
      const auto launch = [&]<class L>(L* data) {
        const DeviceArray<float> sums(std::vector<float>{3, 3});
        expect_runs(
            cross_entropy(kernels::CrossEntropy<L>{.labels = {d_labels.data(), labels.size()},
                                                   .vocab = vocab,
                                                   .ignored = kIgnored,
                                                   .logits = data,
                                                   .row = pitch,
                                                   .sums = sums.data(),
                                                   .adds = adds,
                                                   .cap = cap,
                                                   .scale = scales ? d_scale.data() : nullptr,
                                                   .workspace = workspace.as_bytes()},
                          nullptr));
        EXPECT_LT(relative_error(sums.download(), expected), 1e-5);
      };
      launch(static_cast<const T*>(in_place.data()));
      EXPECT_TRUE(same_bits(in_place.download(), spread_rows(logits, rows, vocab, pitch)));
      launch(in_place.data());
      EXPECT_LT(relative_error(in_place.download(), spread_rows(gradient, rows, vocab, pitch)),
                kTolerance<T>);
      EXPECT_TRUE(in_place.margin_is_whole());
    }
}

/// Ranks one after the other have equal parts of the columns, in whole packs and not.
TYPED_TEST(DeviceTokens, RanksShareTheColumnsOfALoss) {
  using T = TypeParam;
  const DeviceArray<GridScratch> workspace(1);  // of any contents
  for (const auto [rows, vocab] : {Logits{4, 10}, {7, 1000}, {2100, 64}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << vocab);
    const auto logits = random_values<T>(rows * vocab, 1, 4);
    auto labels = random_ids(rows, vocab, 2);
    labels[1] = kIgnored;
    auto gradient = widened(logits);
    const auto loss = kernels::cross_entropy(std::span<const std::int32_t>(labels), vocab, kIgnored,
                                             gradient.data(), 0.0, 1.0);
    const DeviceArray<std::int32_t> d_labels(labels);
    const DeviceArray<T> in_place(logits);
    const DeviceArray<kernels::SoftmaxPart<float>> parts(2 * rows);
    const std::int64_t cols = vocab / 2;
    for (const std::int64_t rank : {0, 1})
      expect_runs(softmax_parts(kernels::SoftmaxParts<T>{.labels = {d_labels.data(), labels.size()},
                                                         .vocab = cols,
                                                         .vocab_begin = rank * cols,
                                                         .logits = in_place.data() + rank * cols,
                                                         .row = vocab,
                                                         .output = parts.data() + rank * rows},
                                nullptr));
    for (const std::int64_t rank : {0, 1}) {
      const DeviceArray<float> sums(2);
      expect_runs(cross_entropy(kernels::CrossEntropy<T>{.labels = {d_labels.data(), labels.size()},
                                                         .vocab = cols,
                                                         .ignored = kIgnored,
                                                         .logits = in_place.data() + rank * cols,
                                                         .row = vocab,
                                                         .sums = sums.data(),
                                                         .workspace = workspace.as_bytes(),
                                                         .parts = parts.data(),
                                                         .peers = 2,
                                                         .vocab_begin = rank * cols},
                                nullptr));
      const std::vector<double> expected{loss.loss, static_cast<double>(loss.tokens)};
      EXPECT_LT(relative_error(sums.download(), expected), 1e-5);
    }
    EXPECT_LT(relative_error(in_place.download(), gradient), kTolerance<T>);
    EXPECT_TRUE(in_place.margin_is_whole());
  }
}

TEST(DeviceCrossEntropy, AStrayLabelPoisonsItsRowAlone) {
  const DeviceArray<GridScratch> workspace(1);  // of any contents
  const DeviceArray<float> logits(random_values<float>(3 * 8, 1)), sums(2);
  const DeviceArray<std::int32_t> labels(std::vector<std::int32_t>{1, 8, 2});
  expect_runs(cross_entropy(kernels::CrossEntropy<float>{.labels = {labels.data(), 3},
                                                         .vocab = 8,
                                                         .ignored = kIgnored,
                                                         .logits = logits.data(),
                                                         .sums = sums.data(),
                                                         .workspace = workspace.as_bytes()},
                            nullptr));
  EXPECT_TRUE(std::isnan(sums.download()[0]));
  const auto gradient = logits.download();
  EXPECT_TRUE(all_nan(gradient, 8, 8));
  EXPECT_FALSE(std::isnan(gradient[0]) || std::isnan(gradient[16]));
}

TEST(DeviceTokenCopy, CopiesIds) {
  const auto ids = random_ids(77, 1000, 1);
  const DeviceArray<std::int32_t> from(ids), to(77);
  expect_runs(token_copy({.count = 77, .from = from.data(), .to = to.data()}, nullptr));
  EXPECT_EQ(to.download(), ids);
}

}  // namespace
}  // namespace mfsdp::cuda
