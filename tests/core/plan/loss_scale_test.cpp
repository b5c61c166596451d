#include "core/plan/loss_scale.hpp"

#include <gtest/gtest.h>

#include "core/plan/exact_sums.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig scaled(Rational scale, std::int64_t window) {
  PlanConfig config = test::small_config(2);
  config.param_dtype = DType::fp16;
  config.loss_scale = scale;
  config.loss_scale_window = window;
  return config;
}

TEST(LossScale, ShrinksAtOnceAndGrowsAfterItsWindow) {
  LossScaleState state{.scale = 8};
  state = next_loss_scale(state, true, 3);
  EXPECT_EQ(state, (LossScaleState{.scale = 4}));
  for (const float good : {1.0F, 2.0F}) {
    state = next_loss_scale(state, false, 3);
    EXPECT_EQ(state, (LossScaleState{.scale = 4, .good_steps = good}));
  }
  EXPECT_EQ(next_loss_scale(state, true, 3), (LossScaleState{.scale = 2}));  // the row is broken
  EXPECT_EQ(next_loss_scale(state, false, 3), (LossScaleState{.scale = 8}));
}

TEST(LossScale, EndsSomewhereAndAFixedOneStays) {
  EXPECT_EQ(next_loss_scale({.scale = 0x1p24F}, false, 1).scale, 0x1p24F);
  EXPECT_EQ(next_loss_scale({.scale = 0x1p-24F}, true, 1).scale, 0x1p-24F);
  EXPECT_EQ(next_loss_scale({.scale = 8}, true, 0), (LossScaleState{.scale = 8}));
  EXPECT_EQ(next_loss_scale({.scale = 8}, false, 0), (LossScaleState{.scale = 8}));
}

/// For a sequence of 6 tokens it is divided by 8, the next power of two.
TEST(LossScale, BeginsAsThatOfTheMeanLoss) {
  PlanConfig config = scaled({.num = 65'536}, 2'000);
  config.seq_len = 6;
  EXPECT_EQ(loss_scale_tokens(config), 8);
  EXPECT_EQ(first_loss_scale(config), (LossScaleState{.scale = 8'192}));
  config.seq_len = 8;
  config.loss_scale = {.num = 1, .den = 2};
  EXPECT_EQ(first_loss_scale(config), (LossScaleState{.scale = 0x1p-4F}));
}

TEST(LossScale, NamesTheFlagThatDoesNotFit) {
  EXPECT_TRUE(check_loss_scale(scaled({}, 0)));
  EXPECT_TRUE(check_loss_scale(scaled({.num = 3}, 10)));
  const auto error = [](const PlanConfig& config) {
    return check_loss_scale(config).error().message();
  };
  EXPECT_EQ(error(scaled({}, 10)), "--loss-scale-window: expected 0 without --loss-scale, got 10");
  PlanConfig wide = scaled({.num = 1'024}, 0);
  wide.param_dtype = DType::bf16;
  EXPECT_EQ(
      error(wide),
      "--loss-scale: expected none with --param-dtype bf16, whose exponents reach far enough, "
      "got 1024");
  PlanConfig exact = scaled({.num = 1'024}, 10);
  exact.exact_sums = true;
  EXPECT_EQ(
      error(exact),
      "--loss-scale: expected a number with --exact-sums: sums of gradients lie on one grid in "
      "all steps, which a dynamic scale would move");
  exact.loss_scale_window = 0;
  EXPECT_TRUE(check_loss_scale(exact));
  exact.loss_scale = {.num = 1'000};
  EXPECT_EQ(error(exact), "--loss-scale: expected a power of two with --exact-sums, got 1000");
  EXPECT_EQ(error(scaled({.num = std::int64_t{1} << 41}, 0)),
            "--loss-scale: expected dynamic, none, or a number above 0 and at most 2^40, got "
            "2199023255552/1");
}

/// 2^10 over the 8 tokens of a sequence: steps are 2^7 times larger.
TEST(LossScale, MovesTheGridOfExactSums) {
  PlanConfig config = scaled({.num = 1'024}, 0);
  config.seq_len = 8;
  PlanConfig plain = config;
  plain.loss_scale = {};
  EXPECT_EQ(exact_sums(config).exponent, exact_sums(plain).exponent + 7);
}

}  // namespace
}  // namespace mfsdp
