#include "verify/cpu/machine/view_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace mfsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Offset and length in bytes of each run of an fp32 view.
std::vector<std::pair<std::ptrdiff_t, std::size_t>> runs(const std::vector<std::int64_t>& shape,
                                                         const std::vector<std::int64_t>& strides) {
  std::array<std::byte, 4> memory{};
  const OperandView view{
      .data = memory.data(), .dtype = DType::fp32, .shape = shape, .strides = strides};
  std::vector<std::pair<std::ptrdiff_t, std::size_t>> list;
  for_each_run(view, [&](const std::byte* first, std::size_t bytes) {
    list.emplace_back(first - memory.data(), bytes);
  });
  return list;
}

TEST(ViewRuns, AContiguousViewIsOneRun) {
  EXPECT_THAT(runs({2, 3}, {3, 1}), ElementsAre(Pair(0, 24)));   // 2 * 3 * 4 bytes
  EXPECT_THAT(runs({}, {}), ElementsAre(Pair(0, 4)));            // a single element
  EXPECT_THAT(runs({1, 3}, {99, 1}), ElementsAre(Pair(0, 12)));  // a stride that nothing takes
}

TEST(ViewRuns, RowsWithGapsAreARunEach) {
  // Rows of 3 in memory of 8: the second begins 32 bytes on.
  EXPECT_THAT(runs({2, 3}, {8, 1}), ElementsAre(Pair(0, 12), Pair(32, 12)));
  EXPECT_THAT(runs({2, 2, 2}, {8, 2, 1}), ElementsAre(Pair(0, 16), Pair(32, 16)));
}

TEST(ViewRuns, ColumnsAreRunsOfOneElement) {
  EXPECT_THAT(runs({2, 2}, {1, 2}), ElementsAre(Pair(0, 4), Pair(8, 4), Pair(4, 4), Pair(12, 4)));
}

TEST(ViewRuns, AnEmptyViewHasNone) {
  EXPECT_THAT(runs({0, 3}, {3, 1}), IsEmpty());
  EXPECT_THAT(runs({2, 0}, {8, 1}), IsEmpty());
}

}  // namespace
}  // namespace mfsdp
