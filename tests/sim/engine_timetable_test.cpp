#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/simulator/timetable.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;

TEST(Timetable, FindsAllThatComeFirst) {
  Timetable times(5);
  EXPECT_EQ(times.first(), kNever);
  times.set(4, 20);
  times.set(1, 10);
  times.set(3, 10);
  EXPECT_EQ(times.first(), 10);
  std::vector<std::uint32_t> found{77};
  times.find_first(found);
  EXPECT_THAT(found, ElementsAre(1, 3));
  times.set(1, kNever);
  times.set(3, 30);
  EXPECT_EQ(times.first(), 20);
}

RC_GTEST_PROP(Timetable, IsAListOfTimes, (const std::vector<std::uint8_t>& changes)) {
  std::vector<std::int64_t> list(*rc::gen::inRange<std::size_t>(1, 20), kNever);
  Timetable times(list.size());
  for (const std::uint8_t change : changes) {
    const std::size_t i = change % list.size();
    list[i] = change / 16;
    times.set(i, list[i]);
    const std::int64_t first = *std::ranges::min_element(list);
    RC_ASSERT(times.first() == first);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t k = 0; k < list.size(); ++k)
      if (list[k] == first) expected.push_back(k);
    std::vector<std::uint32_t> found;
    times.find_first(found);
    RC_ASSERT(found == expected);
  }
}

}  // namespace
}  // namespace mfsdp
