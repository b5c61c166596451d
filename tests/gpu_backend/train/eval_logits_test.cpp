#include "gpu_backend/train/eval_logits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp::test {
namespace {

/// The mean loss of tokens whose labels are `first_label` and those after it.
double loss_of(const EvalLogits& logits, std::int64_t first_label) {
  const auto rows = static_cast<std::size_t>(logits.shape.at(0));
  const auto columns = static_cast<std::size_t>(logits.shape.at(1));
  std::vector<Bf16> values(rows * columns);
  EXPECT_EQ(logits.values.size(), values.size() * sizeof(Bf16));
  std::memcpy(values.data(), logits.values.data(), logits.values.size());
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += std::exp(widen(values[row * columns + i]));
    const auto label = static_cast<std::size_t>(first_label) + row;
    loss += std::log(sum) - widen(values[row * columns + label]);
  }
  return loss / static_cast<double>(rows);
}

TEST(EvalLogits, AreThoseThatTheFirstEvaluationsLossIsOf) {
  const Counting data;
  Counting held_out;
  held_out.size = 1;  // tokens 0 to 15
  std::vector<double> losses;
  const auto take = [&](const EvalLogits& logits) -> Result<void> {
    EXPECT_EQ(logits.dtype, DType::bf16);
    EXPECT_THAT(logits.shape, testing::ElementsAre(16, held_out.vocab));
    losses.push_back(loss_of(logits, 1));
    return {};
  };
  const Told told = train(nano(1), 4, data, {.inputs = [&](TrainInputs& inputs) {
                            inputs.eval_data = &held_out;
                            inputs.settings.eval_every = 2;
                            inputs.take_logits = take;
                          }});
  ASSERT_TRUE(told.end) << told.end.error().message();
  ASSERT_EQ(told.evaluations.size(), 2U);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_NEAR(losses[0], told.evaluations[0].loss, 1e-5);  // fp32 sums against double
  EXPECT_GT(std::abs(losses[0] - told.evaluations[1].loss), 1e-3);
}

TEST(EvalLogits, HaveTheModelsCap) {
  ModelShape model;
  std::vector<float> values{0, 1, -100, 30};
  const auto bytes = std::as_writable_bytes(std::span(values));
  cap_logits(model, DType::fp32, bytes);
  EXPECT_EQ(values, (std::vector<float>{0, 1, -100, 30}));
  model.logit_cap = {30, 1};
  cap_logits(model, DType::fp32, bytes);
  EXPECT_EQ(values[0], 0);
  EXPECT_FLOAT_EQ(values[1], 30 * std::tanh(1.0F / 30));
  EXPECT_FLOAT_EQ(values[2], 30 * std::tanh(-100.0F / 30));
  EXPECT_FLOAT_EQ(values[3], 30 * std::tanh(1.0F));
}

TEST(EvalLogits, AreFoundUnderAnyStrategyAndAllocator) {
  for (std::size_t s = 0; s < Names<Strategy>::values.size(); ++s)
    for (std::size_t a = 0; a < Names<AllocatorPolicy>::values.size(); ++a) {
      PlanConfig config = nano(2, static_cast<Strategy>(s));
      config.allocator = static_cast<AllocatorPolicy>(a);
      const auto logits = find_eval_logits(build_program(config, {}).value());
      ASSERT_TRUE(logits) << logits.error().message();
      EXPECT_THAT(logits->shape, testing::ElementsAre(16, config.model.vocab));
    }
}

TEST(EvalLogits, UnusedEndsOfRowsAreLeftOut) {
  Operand logits;
  logits.dtype = DType::fp32;
  logits.shape = {3, 2};
  logits.strides = {4, 1};
  const std::vector<float> span{1, 2, -1, -1, 3, 4, -1, -1, 5, 6};
  std::vector<std::byte> bytes(static_cast<std::size_t>(logits.span_bytes()));
  std::memcpy(bytes.data(), span.data(), bytes.size());
  close_rows(logits, bytes);
  const std::vector<float> closed{1, 2, 3, 4, 5, 6};
  ASSERT_EQ(bytes.size(), closed.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data(), closed.data(), bytes.size()), 0);
}

TEST(EvalLogits, InChunksAreRefused) {
  PlanConfig config = nano(1);
  config.logits_chunk = 8;
  const auto logits = find_eval_logits(build_program(config, {}).value());
  ASSERT_FALSE(logits);
  EXPECT_THAT(logits.error().message(), testing::HasSubstr("expected the logits of all 16 tokens"));
}

TEST(EvalLogits, ThatAnOpWritesOverAreRefused) {
  Program program = build_program(nano(1), {}).value();
  const Operand logits = find_eval_logits(program).value();
  for (Plan& plan : program.plans) {
    if (plan.name != "eval") continue;
    Op& last = plan.segments.back().ops.back();
    last.body = Copy{.kind = CopyKind::d2d, .input = logits, .output = logits};
  }
  const auto found = find_eval_logits(program);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), testing::HasSubstr("writes over the logits"));
}

}  // namespace
}  // namespace mfsdp::test
