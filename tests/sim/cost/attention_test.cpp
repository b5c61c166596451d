#include "sim/cost/attention.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <string>

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

TEST_F(AttentionCostTest, OwnKernelsReproduceTheirTable) {
  const AttentionCost own(tables_.attention_warpgroups, gpu_, kWarpgroupAttention);
  for (const AttentionRow& row : tables_.attention_warpgroups)
    EXPECT_NEAR(own.nanoseconds(shape_of(row)), row.ns, row.ns * 1e-3) << row.seq;
}

// Heads of 128. The three rows with heads of 64 predict each other badly (fidelity_test.cpp).
TEST_F(AttentionCostTest, OwnKernelsLeaveOneOutStaysWithinTwoPercent) {
  std::vector<AttentionRow> rows = tables_.attention_warpgroups;
  std::erase_if(rows, [](const AttentionRow& row) { return row.head_dim != 128; });
  for (const bool backward : {false, true}) {
    const auto left_out = [&](const AttentionLosses& losses) {
      return summarise(attention_errors(rows, gpu_, backward, Evaluation::leave_one_out, losses));
    };
    EXPECT_GE(left_out(kWarpgroupAttention).rows, 8u);
    EXPECT_LT(left_out(kWarpgroupAttention).worst, 0.02);
    EXPECT_LT(left_out(kWarpgroupAttention).mean, 0.006);
    EXPECT_GT(left_out(kLibraryAttention).worst, 0.05);  // cuDNN's constants are not theirs
  }
}

/// Ranks that share a sequence have equal shares of its work, each with the fixed part.
TEST_F(AttentionCostTest, APartOfASequenceIsItsShare) {
  for (const bool backward : {false, true}) {
    AttentionShape shape{.seq = 16'384, .heads = 32, .head_dim = 128, .backward = backward};
    const double whole = cost_.nanoseconds(shape);
    shape.parts = 4;
    const double fixed = kLibraryAttention.fixed_ns[backward ? 1 : 0];
    EXPECT_NEAR(cost_.nanoseconds(shape) - fixed, (whole - fixed) / 4, 1);
  }
}

/// docs/lab/2026-12-01-attention-parts.md: gathered keys, the mean of both parts that were measured.
/// The table ends at 32,768 tokens forward and 16,384 backward.
TEST_F(AttentionCostTest, OwnKernelsTakeAsLongForPartsAsMeasured) {
  const AttentionCost own(tables_.attention_warpgroups, gpu_, kWarpgroupAttention);
  struct Row {
    std::int64_t seq, parts;
    double forward, backward;  // ms
    double bound;
  };
  for (const Row& row : {Row{32'768, 2, 6.892, 19.570, 0.035},
                         {65'536, 4, 14.297, 38.496, 0.035},
                         {131'072, 8, 28.691, 77.266, 0.085}})
    for (const bool backward : {false, true})
      EXPECT_NEAR(own.nanoseconds({.seq = row.seq,
                                   .heads = 32,
                                   .head_dim = 128,
                                   .backward = backward,
                                   .parts = row.parts}) /
                      (backward ? row.backward : row.forward) / 1e6,
                  1, row.bound)
          << row.seq;
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
  EXPECT_NEAR(cost_.nanoseconds(shape), 50'000 + 1.087 * 2'914'900, 4'500);
  shape.backward = false;  // no effect in forward
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

/// Times of whole attention over those of a window that mfsdp-exec's kernels took, forward and
/// backward, 8192 tokens (docs/lab/2026-11-29-attention-own.md).
TEST_F(AttentionCostTest, WindowsOfOwnKernelsCostWhatWasMeasured) {
  struct Measured {
    std::int64_t heads, head_dim, window;
    std::array<double, 2> share;
  };
  const AttentionCost own(tables_.attention_warpgroups, gpu_, kWarpgroupAttention);
  for (const Measured& m : {Measured{32, 128, 512, {0.195, 0.215}},
                            {32, 128, 1024, {0.308, 0.324}},
                            {32, 128, 4096, {0.784, 0.758}},
                            {32, 64, 512, {0.205, 0.218}},
                            {64, 64, 128, {0.109, 0.126}},
                            {32, 96, 2047, {0.494, 0.484}},
                            {8, 256, 512, {0.218, 0.230}}})
    for (const bool backward : {false, true}) {
      AttentionShape shape{
          .seq = 8192, .heads = m.heads, .head_dim = m.head_dim, .backward = backward};
      const double whole = own.nanoseconds(shape);
      shape.window = m.window;
      const double share = m.share.at(backward ? 1 : 0);
      EXPECT_NEAR(own.nanoseconds(shape) / whole, share, 0.13 * share)
          << m.head_dim << ", window " << m.window << (backward ? ", backward" : ", forward");
    }
}

TEST_F(AttentionCostTest, SoftcapsCostAFactor) {
  const AttentionCost own(tables_.attention_warpgroups, gpu_, kWarpgroupAttention);
  AttentionShape shape{.seq = 8192, .heads = 8, .head_dim = 256};
  const double plain = own.nanoseconds(shape);
  shape.capped = true;
  EXPECT_NEAR(own.nanoseconds(shape), 4'000 + 1.19 * (plain - 4'000), 1);
}

/// Both halves of the logits are computed, with any window that is masked too.
TEST_F(AttentionCostTest, DocumentsCostTwiceAWholeSequence) {
  AttentionShape shape{.seq = 8192, .heads = 32, .head_dim = 128};
  for (const bool backward : {false, true}) {
    shape = {.seq = 8192, .heads = 32, .head_dim = 128, .backward = backward, .masks = true};
    const double fixed = backward ? 50'000 : 15'000;
    const double whole = cost_.nanoseconds(shape);
    shape.documents = true;
    EXPECT_NEAR(cost_.nanoseconds(shape), fixed + (backward ? 1.91 : 2.18) * (whole - fixed), 1);
    const double masked = cost_.nanoseconds(shape);
    shape.window = 4096;
    EXPECT_EQ(cost_.nanoseconds(shape), masked);
    shape.documents = false;
    EXPECT_EQ(cost_.nanoseconds(shape), masked);
  }
}

/// A call that mfsdp-exec's own kernels take: Llama-3-8B's, of 8192 tokens.
Kernel call(KernelKind kind = KernelKind::attention_forward) {
  Operand query;
  query.role = "query";
  query.dtype = DType::bf16;
  return {.kind = kind,
          .operands = {query},
          .attributes = {{"batch", 1},
                         {"deterministic", 0},
                         {"head_dim", 128},
                         {"heads", 32},
                         {"kv_heads", 8},
                         {"seq", 8192}}};
}

Kernel with(Kernel kernel, const std::string& name, Rational value) {
  const auto found = std::ranges::find(kernel.attributes, name, &Attribute::name);
  if (found == kernel.attributes.end())
    kernel.attributes.emplace_back(name, value);
  else
    found->value = value;
  return kernel;
}

constexpr std::array kDirections{KernelKind::attention_forward, KernelKind::attention_backward};

TEST(WarpgroupsTake, HeadsOf64To256InBf16) {
  for (const KernelKind kind : kDirections) {
    EXPECT_TRUE(warpgroups_take(call(kind)));
    for (const DType dtype : {DType::fp16, DType::fp32}) {
      Kernel other = call(kind);
      other.operands.front().dtype = dtype;
      EXPECT_FALSE(warpgroups_take(other));
    }
    for (const std::int64_t columns : {64, 96, 256})
      EXPECT_TRUE(warpgroups_take(with(call(kind), "head_dim", {columns, 1})));
    for (const std::int64_t columns : {32, 80, 192})
      EXPECT_FALSE(warpgroups_take(with(call(kind), "head_dim", {columns, 1})));
    EXPECT_TRUE(warpgroups_take(with(call(kind), "value_dim", {128, 1})));
    EXPECT_FALSE(warpgroups_take(with(call(kind), "value_dim", {64, 1})));
    EXPECT_FALSE(warpgroups_take(
        with(with(call(kind), "head_dim", {192, 1}), "value_dim", {128, 1})));  // latent attention
  }
}

TEST(WarpgroupsTake, SequencesOfWholeTiles) {
  for (const KernelKind kind : kDirections) {
    EXPECT_TRUE(warpgroups_take(with(call(kind), "seq", {128, 1})));
    for (const std::int64_t seq : {64, 8191, 8192 + 64})
      EXPECT_FALSE(warpgroups_take(with(call(kind), "seq", {seq, 1})));
  }
}

TEST(WarpgroupsTake, PartsOfWholeTiles) {
  for (const KernelKind kind : kDirections) {
    EXPECT_TRUE(warpgroups_take(with(call(kind), "parts", {4, 1})));    // chunks of 1024
    EXPECT_FALSE(warpgroups_take(with(call(kind), "parts", {64, 1})));  // of 64
  }
}

TEST(WarpgroupsTake, WindowsAndDocumentsAndCapsOfWideHeads) {
  for (const KernelKind kind : kDirections) {
    EXPECT_TRUE(warpgroups_take(with(call(kind), "window", {100, 1})));
    const Kernel capped = with(call(kind), "score_cap", {1, 2});
    EXPECT_TRUE(warpgroups_take(capped));
    EXPECT_TRUE(warpgroups_take(with(capped, "head_dim", {256, 1})));
    for (const std::int64_t columns : {64, 96})
      EXPECT_FALSE(warpgroups_take(with(capped, "head_dim", {columns, 1})));
    EXPECT_TRUE(warpgroups_take(with(call(kind), "query_scalar", {256, 1})));
    Kernel documents = call(kind);
    documents.operands.push_back({});
    documents.operands.back().role = "positions";
    EXPECT_TRUE(warpgroups_take(documents));
  }
}

TEST(WarpgroupsTake, BackwardsThatNeedNotGiveEqualBits) {
  const Kernel forward = call();
  const Kernel backward = call(KernelKind::attention_backward);
  EXPECT_TRUE(warpgroups_take(with(forward, "deterministic", {1, 1})));
  EXPECT_FALSE(warpgroups_take(with(backward, "deterministic", {1, 1})));
  EXPECT_TRUE(warpgroups_take(with(forward, "heads", {1, 1})));
  EXPECT_TRUE(warpgroups_take(with(backward, "heads", {2, 1})));
}

// 512 bytes of statistics for every 64 heads, and a row of dQ of 2 heads head_dim bytes.
TEST(WarpgroupsTake, BackwardsWhoseRowsHaveRoomForStatistics) {
  const Kernel wide = call(KernelKind::attention_backward);
  const Kernel narrow = with(wide, "head_dim", {64, 1});
  EXPECT_FALSE(warpgroups_take(with(wide, "heads", {1, 1})));    // 256 bytes
  EXPECT_FALSE(warpgroups_take(with(narrow, "heads", {3, 1})));  // 384
  EXPECT_TRUE(warpgroups_take(with(narrow, "heads", {4, 1})));
  EXPECT_TRUE(warpgroups_take(with(narrow, "heads", {65, 1})));  // 8320 of 1024
}

TEST(WarpgroupsTake, NoKernelsOfOtherEngines) {
  Kernel other = call();
  other.operands.clear();
  EXPECT_FALSE(warpgroups_take(other));
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

// Times by groups of query heads over those by heads, of one call (docs/lab/2026-11-30-kernels.md).
TEST(AttentionByGroups, TakesTheMeasuredShare) {
  struct Row {
    std::int64_t batch, seq, heads, kv_heads, head_dim;
    double by_heads, by_groups;  // ms
  };
  const auto share = [](const Row& r) {
    Kernel kernel{.kind = KernelKind::attention_backward,
                  .operands = {},
                  .attributes = {{"batch", r.batch},
                                 {"deterministic", 0},
                                 {"head_dim", r.head_dim},
                                 {"heads", r.heads},
                                 {"kv_heads", r.kv_heads},
                                 {"seq", r.seq}}};
    return share_by_groups(kernel);
  };
  for (const Row& row : {Row{16, 1024, 32, 8, 64, 0.6802, 0.6002},
                         {4, 4096, 32, 8, 64, 1.7235, 1.6621},
                         {2, 8192, 14, 2, 64, 1.4170, 1.3830},
                         {8, 1024, 32, 8, 128, 0.5512, 0.5060}})
    EXPECT_NEAR(share(row) * row.by_heads / row.by_groups, 1, 0.04) << row.seq;
  EXPECT_EQ(share({4, 2048, 32, 8, 128, 0, 0}), 1);   // long tiles do not gain
  EXPECT_EQ(share({16, 1024, 32, 32, 64, 0, 0}), 1);  // no groups
  EXPECT_EQ(share({1, 1024, 32, 8, 64, 0, 0}), 1);    // too few tiles
}

/// Steps of a ring of two: the mean of their times over a quarter of the whole sequence's.
TEST(AttentionOfARing, LeavesSmsIdleWhereItIsShort) {
  const auto loss = [](std::int64_t seq, KernelKind kind) {
    Kernel kernel = call(kind);
    for (const auto& [name, value] :
         {std::pair{"seq", seq}, {"parts", std::int64_t{2}}, {"key_parts", std::int64_t{1}}})
      kernel = with(kernel, name, {value, 1});
    return loss_of_few_tiles(kernel, 132);
  };
  EXPECT_NEAR(loss(4096, KernelKind::attention_backward), 1.49, 0.06);
  EXPECT_NEAR(loss(8192, KernelKind::attention_backward), 1.08, 0.09);
  EXPECT_EQ(loss(16'384, KernelKind::attention_backward), 1);
  EXPECT_EQ(loss(4096, KernelKind::attention_forward), 1);
}

}  // namespace
}  // namespace mfsdp
