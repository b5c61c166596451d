#include "sim/cost/attention.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/calibrate/errors.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

AttentionShape shape_of(const AttentionRow& row) {
  return {.batch = static_cast<std::int64_t>(row.batch),
          .seq = static_cast<std::int64_t>(row.seq),
          .heads = static_cast<std::int64_t>(row.heads),
          .head_dim = static_cast<std::int64_t>(row.head_dim),
          .backward = row.backward};
}

class AttentionCostTest : public testing::Test {
 protected:
  CostTables tables_ = testing_cost::h200_tables();
  Gpu gpu_ = testing_cost::cluster_of("h200", 8).gpu;
  AttentionCost cost_{tables_.attention, gpu_};
};

TEST_F(AttentionCostTest, ReproducesEveryRow) {
  for (const AttentionRow& row : tables_.attention)
    EXPECT_NEAR(cost_.nanoseconds(shape_of(row)), row.ns, row.ns * 1e-3) << row.seq;
}

TEST_F(AttentionCostTest, LeaveOneOutStaysWithinFivePercent) {
  for (const bool backward : {false, true}) {
    const ErrorSummary left_out =
        summarise(attention_errors(tables_.attention, gpu_, backward, Evaluation::leave_one_out));
    EXPECT_EQ(left_out.rows, 12u);
    EXPECT_LT(left_out.worst, 0.05);
    EXPECT_LT(left_out.mean, 0.015);
  }
}

TEST_F(AttentionCostTest, OneTileIsBoundByOneSm) {
  // batch 1, one head, 128 tokens: one tile on 132 SMs; the fixed 15 us dominate.
  const double ns = cost_.nanoseconds({.seq = 128, .heads = 1, .head_dim = 64});
  EXPECT_GT(ns, 15'000);
  EXPECT_LT(ns, 20'000);
}

TEST_F(AttentionCostTest, DeterministicBackwardIsSlower) {
  AttentionShape shape{.seq = 8192, .heads = 32, .head_dim = 128, .backward = true};
  EXPECT_NEAR(cost_.nanoseconds(shape), 2'964'900, 3'000);  // the table's row
  shape.deterministic = true;
  EXPECT_NEAR(cost_.nanoseconds(shape), 50'000 + 1.5 * 2'914'900, 4'500);
  shape.backward = false;  // has no say forward
  EXPECT_NEAR(cost_.nanoseconds(shape), 1'016'600, 1'100);
}

TEST_F(AttentionCostTest, WindowsCostTheirPairs) {
  AttentionShape shape{.seq = 32768, .heads = 32, .head_dim = 128};
  const double all = cost_.nanoseconds(shape);
  shape.window = 4096;
  // 4096 (2 * 32768 - 4096) + 2 * 256 * 32768 of 32768 (32768 + 256) pairs: 0.248.
  const double share = (4096.0 * 61440 + 512.0 * 32768) / (32768.0 * 33024);
  EXPECT_NEAR(cost_.nanoseconds(shape), 15'000 + (all - 15'000) * share, 1);
  EXPECT_NEAR(share, 0.248, 0.001);
  shape.window = 32768;
  EXPECT_EQ(cost_.nanoseconds(shape), all);
  shape.window = 32700;  // its tiles are no more than all
  EXPECT_EQ(cost_.nanoseconds(shape), all);
}

/// Both halves of the scores, whatever a window leaves out.
TEST_F(AttentionCostTest, DocumentsCostTwiceAWholeSequence) {
  AttentionShape shape{.seq = 8192, .heads = 32, .head_dim = 128};
  for (const bool backward : {false, true}) {
    shape = {.seq = 8192, .heads = 32, .head_dim = 128, .backward = backward};
    const double fixed = backward ? 50'000 : 15'000;
    const double whole = cost_.nanoseconds(shape);
    shape.documents = true;
    EXPECT_NEAR(cost_.nanoseconds(shape), fixed + (backward ? 1.91 : 2.18) * (whole - fixed), 1);
    const double masked = cost_.nanoseconds(shape);
    shape.window = 4096;
    EXPECT_EQ(cost_.nanoseconds(shape), masked);
  }
}

RC_GTEST_FIXTURE_PROP(AttentionCostTest, DoublingTheSequenceTakesLonger, ()) {
  AttentionShape shape{.batch = *rc::gen::inRange(1, 64),
                       .seq = *rc::gen::inRange(1, 1 << 17),
                       .heads = *rc::gen::inRange(1, 129),
                       .head_dim = *rc::gen::element(16, 32, 64, 96, 128, 256),
                       .backward = *rc::gen::arbitrary<bool>()};
  const double before = cost_.nanoseconds(shape);
  shape.seq *= 2;
  RC_ASSERT(cost_.nanoseconds(shape) >= before);
}

}  // namespace
}  // namespace mfsdp
