#include "verify/cpu/machine/run_collective.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/runtime/scalar.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Collective collective(CollectiveKind kind, std::int64_t count, DType dtype) {
  Collective made;
  made.kind = kind;
  made.count = count;
  made.dtype = dtype;
  const bool moves = kind == CollectiveKind::all_gather || kind == CollectiveKind::all_to_all ||
                     kind == CollectiveKind::shift;
  made.reduction = moves ? Reduction::none : Reduction::sum;
  return made;
}

template <class T>
std::byte* bytes(T* data) {
  return reinterpret_cast<std::byte*>(data);
}

TEST(RunCollective, GathersInRankOrderAlsoInPlace) {
  std::vector<float> a{1, 2, 0, 0};  // rank 0's own part is in place
  std::vector<float> b{0, 0, 3, 4};
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data() + 2), bytes(b.data())}};
  ASSERT_TRUE(run_collective(collective(CollectiveKind::all_gather, 2, DType::fp32), members));
  EXPECT_THAT(a, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(b, ElementsAre(1, 2, 3, 4));
}

TEST(RunCollective, DealsPartsOutInRankOrder) {
  std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  std::vector<float> to_a(4), to_b(4);
  const std::vector<Member> members{{bytes(a.data()), bytes(to_a.data())},
                                    {bytes(b.data()), bytes(to_b.data())}};
  ASSERT_TRUE(run_collective(collective(CollectiveKind::all_to_all, 2, DType::fp32), members));
  EXPECT_THAT(to_a, ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(to_b, ElementsAre(3, 4, 7, 8));
}

TEST(RunCollective, ShiftsToTheNextRankAndAround) {
  std::vector<float> a{1, 2}, b{3, 4}, c{5, 6};
  std::vector<float> to_a(2), to_b(2), to_c(2);
  const Collective shift = collective(CollectiveKind::shift, 2, DType::fp32);
  ASSERT_TRUE(run_collective(shift, std::vector<Member>{{bytes(a.data()), bytes(to_a.data())},
                                                        {bytes(b.data()), bytes(to_b.data())},
                                                        {bytes(c.data()), bytes(to_c.data())}}));
  EXPECT_THAT(to_a, ElementsAre(5, 6));
  EXPECT_THAT(to_b, ElementsAre(1, 2));
  EXPECT_THAT(to_c, ElementsAre(3, 4));
  EXPECT_FALSE(run_collective(shift, std::vector<Member>{{bytes(a.data()), bytes(a.data())},
                                                         {bytes(b.data()), bytes(b.data())}}));
}

TEST(RunCollective, NeverDealsOutInPlace) {
  std::vector<float> a{1, 2}, b{3, 4};
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data())}};
  const auto run = run_collective(collective(CollectiveKind::all_to_all, 1, DType::fp32), members);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message(), HasSubstr("input and output of member 0 overlap"));
}

TEST(RunCollective, AddsFp32InRankOrder) {
  // (2^24 + 1) + 1 loses both ones, as 2^24 + 1 rounds to 2^24; 1 + 1 + 2^24 would lose none.
  std::vector<float> a{0x1p24F}, b{1}, c{1};
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data())},
                                    {bytes(c.data()), bytes(c.data())}};
  ASSERT_TRUE(run_collective(collective(CollectiveKind::all_reduce, 1, DType::fp32), members));
  EXPECT_EQ(a[0], 0x1p24F);
  EXPECT_EQ(b[0], 0x1p24F);
  EXPECT_EQ(c[0], 0x1p24F);
}

TEST(RunCollective, AddsFp64InFp64) {
  std::vector<double> a{0x1p24}, b{1};  // 2^24 + 1 is no float
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data())}};
  ASSERT_TRUE(run_collective(collective(CollectiveKind::all_reduce, 1, DType::fp64), members));
  EXPECT_EQ(a[0], 0x1p24 + 1);
  EXPECT_EQ(b[0], 0x1p24 + 1);
}

TEST(RunCollective, AddsBf16InFp32AndRoundsOnce) {
  // bf16 has 8 bits: 256 + 1 rounds to 256, so rounding each sum would give 256. In fp32 the sum
  // is 258, which is a bf16.
  std::vector<Bf16> a{narrow<Bf16>(256)}, b{narrow<Bf16>(1)}, c{narrow<Bf16>(1)};
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data())},
                                    {bytes(c.data()), bytes(c.data())}};
  ASSERT_TRUE(run_collective(collective(CollectiveKind::all_reduce, 1, DType::bf16), members));
  EXPECT_EQ(widen(c[0]), 258.0F);
}

TEST(RunCollective, ScattersSumsIntoTheOwnPartAcrossBlocks) {
  constexpr std::int64_t kCount = 2500;  // more than two blocks of 1024
  std::vector<float> a(2 * kCount), b(2 * kCount);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
  }
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data() + kCount)}};
  ASSERT_TRUE(
      run_collective(collective(CollectiveKind::reduce_scatter, kCount, DType::fp32), members));
  for (std::size_t i = 0; i < static_cast<std::size_t>(kCount); ++i) {
    ASSERT_EQ(a[i], static_cast<float>(3 * i));
    ASSERT_EQ(b[i + kCount], static_cast<float>(3 * (i + kCount)));
    ASSERT_EQ(b[i], static_cast<float>(2 * i));  // the rest of the input is as it was
  }
}

TEST(RunCollective, TakesTheLargestAndKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a{1, nan, -3, 0}, b{2, 5, -4, nan};
  const std::vector<Member> members{{bytes(a.data()), bytes(a.data())},
                                    {bytes(b.data()), bytes(b.data())}};
  Collective most = collective(CollectiveKind::all_reduce, 4, DType::fp32);
  most.reduction = Reduction::max;
  ASSERT_TRUE(run_collective(most, members));
  for (const std::vector<float>& all : {a, b}) {
    EXPECT_EQ(all[0], 2);
    EXPECT_TRUE(std::isnan(all[1]));
    EXPECT_EQ(all[2], -3);
    EXPECT_TRUE(std::isnan(all[3]));
  }
  most.dtype = DType::bf16;
  const auto narrow_type = run_collective(most, members);
  ASSERT_FALSE(narrow_type);
  EXPECT_EQ(narrow_type.error().message(),
            "expected the reduction max only in an all_reduce of fp32, got all_reduce of bf16");
}

TEST(RunCollective, AddsCounts) {
  std::vector<std::int32_t> a{1, 2}, b{1 << 30, 40};
  ASSERT_TRUE(run_collective(
      collective(CollectiveKind::all_reduce, 2, DType::int32),
      std::vector<Member>{{bytes(a.data()), bytes(a.data())}, {bytes(b.data()), bytes(b.data())}}));
  EXPECT_EQ(a, (std::vector<std::int32_t>{(1 << 30) + 1, 42}));
  EXPECT_EQ(b, a);
}

TEST(RunCollective, RefusesWhatNcclWouldGetWrong) {
  std::vector<float> a(4), b(4);
  const std::vector<Member> shifted{{bytes(a.data()), bytes(a.data() + 1)},
                                    {bytes(b.data()), bytes(b.data() + 2)}};
  const auto overlap =
      run_collective(collective(CollectiveKind::all_reduce, 2, DType::fp32), shifted);
  ASSERT_FALSE(overlap);
  EXPECT_THAT(overlap.error().message(), HasSubstr("member 0 overlap, but not in place"));

  const std::vector<Member> good{{bytes(a.data()), bytes(a.data())},
                                 {bytes(b.data()), bytes(b.data())}};
  const auto integers =
      run_collective(collective(CollectiveKind::all_reduce, 2, DType::int64), good);
  ASSERT_FALSE(integers);
  EXPECT_EQ(integers.error().message(), "expected fp64, fp32, bf16 or fp16 to sum, got int64");
}

}  // namespace
}  // namespace mfsdp
