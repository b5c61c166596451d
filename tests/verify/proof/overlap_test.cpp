#include "verify/proof/order/overlap.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace mfsdp {
namespace {

/// Every byte that rows touch on one rank.
std::set<std::int64_t> bytes_on(const Rows& rows, std::int64_t outer, std::int64_t shard) {
  std::set<std::int64_t> bytes;
  for (std::int64_t row = 0; row < rows.count; ++row)
    for (std::int64_t i = 0; i < rows.run; ++i)
      bytes.insert(static_cast<std::int64_t>(rows.begin + row * rows.stride + i +
                                             shard * rows.steps[Axis::dp_shard] +
                                             outer * rows.steps[Axis::dp_outer]));
  return bytes;
}

bool meet(const Rows& a, const Rows& b, const Mesh& mesh) {
  for (std::int64_t outer = 0; outer < mesh.size(Axis::dp_outer); ++outer)
    for (std::int64_t shard = 0; shard < mesh.size(Axis::dp_shard); ++shard) {
      const auto of_b = bytes_on(b, outer, shard);
      for (const std::int64_t byte : bytes_on(a, outer, shard))
        if (of_b.contains(byte)) return true;
    }
  return false;
}

RC_GTEST_PROP(Overlap, EqualsByteSets, ()) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  const Mesh mesh = data_parallel_mesh(pick(1, 3), pick(1, 4));
  const std::int64_t stride = pick(1, 12);
  const auto rows = [&] {
    Rows made{.begin = pick(0, 40), .run = pick(1, std::min<std::int64_t>(stride, 5))};
    if (*rc::gen::arbitrary<bool>()) {
      made.count = pick(1, 5);
      made.stride = stride;
    }
    made.steps[Axis::dp_shard] = pick(-6, 12);
    made.steps[Axis::dp_outer] = pick(-6, 12);
    return made;
  };
  const Rows a = rows();
  const Rows b = rows();
  RC_ASSERT(overlap(a, b, mesh) == meet(a, b, mesh));
  RC_ASSERT(overlap(b, a, mesh) == overlap(a, b, mesh));
}

ByteAccess access_of(const Operand& operand) {
  return {.buffer = 0,
          .writes = true,
          .exact = is_contiguous(operand),
          .begin = operand.offset,
          .end = operand.offset + operand.span_bytes(),
          .operand = &operand};
}

TEST(RowsOf, DimsThatMakeRows) {
  Operand operand;
  operand.dtype = DType::bf16;
  operand.offset = 10;
  operand.shape = {3, 4};
  EXPECT_TRUE(is_contiguous(operand));
  EXPECT_EQ(rows_of(access_of(operand)).run, 24);  // 3 x 4 x 2 bytes
  operand.strides = {4, 1};
  EXPECT_TRUE(is_contiguous(operand));
  operand.strides = {9, 1};
  EXPECT_FALSE(is_contiguous(operand));
  Rows rows = rows_of(access_of(operand));
  EXPECT_EQ(rows.run, 8);
  EXPECT_EQ(rows.count, 3);
  EXPECT_EQ(rows.stride, 18);
  // Heads of a row of tokens: inner dims continue each other, and so do the outer two.
  operand.shape = {2, 3, 2, 2};
  operand.strides = {27, 9, 2, 1};
  rows = rows_of(access_of(operand));
  EXPECT_EQ(rows.run, 8);
  EXPECT_EQ(rows.count, 6);
  EXPECT_EQ(rows.stride, 18);
  // Outer dims that do not: all of the span, (27 + 2 x 10 + 3 + 1) x 2 bytes.
  operand.strides = {27, 10, 2, 1};
  rows = rows_of(access_of(operand));
  EXPECT_EQ(rows.count, 1);
  EXPECT_EQ(rows.run, 102);
  // The same bytes again and again.
  operand.shape = {4, 2};
  operand.strides = {0, 1};
  EXPECT_FALSE(is_contiguous(operand));
  EXPECT_EQ(rows_of(access_of(operand)).run, 4);
}

TEST(Overlap, RowsOfTwoStridesCountAsTheirSpans) {
  const Rows a{.begin = 0, .run = 1, .count = 3, .stride = 4};
  const Rows b{.begin = 1, .run = 1, .count = 3, .stride = 3};
  EXPECT_TRUE(overlap(a, b, data_parallel_mesh(1, 1)));  // in truth they meet in 4
  const Rows c{.begin = 1, .run = 1, .count = 1};
  EXPECT_FALSE(overlap(a, c, data_parallel_mesh(1, 1)));
}

TEST(Overlap, ManyRanks) {
  const Mesh mesh = data_parallel_mesh(128, 128);
  Rows slice{.begin = 0, .run = 64};
  slice.steps[Axis::dp_shard] = 64;
  slice.steps[Axis::dp_outer] = 128 * 64;
  const Rows last{.begin = 128 * 128 * 64 - 1, .run = 1};
  const Rows behind{.begin = 128 * 128 * 64, .run = 1};
  EXPECT_TRUE(overlap(slice, last, mesh));
  EXPECT_FALSE(overlap(slice, behind, mesh));
}

}  // namespace
}  // namespace mfsdp
