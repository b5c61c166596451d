#include "verify/traces/busy_time.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp::traces {
namespace {

Interval at(std::int64_t begin, std::int64_t end) { return {Nanos(begin), Nanos(end)}; }

TEST(BusyTime, IsTheUnion) {
  const BusyTime busy({at(10, 20), at(40, 50), at(15, 30), at(30, 35), at(7, 7), at(42, 44)});
  EXPECT_THAT(busy.stretches(), testing::ElementsAre(at(10, 35), at(40, 50)));
  EXPECT_EQ(busy.within(Nanos(0), Nanos(100)), Nanos(35));  // 25 + 10
  EXPECT_EQ(busy.within(Nanos(12), Nanos(12)), Nanos(0));
  EXPECT_EQ(busy.within(Nanos(12), Nanos(41)), Nanos(24));  // 35 - 12, and 1
  EXPECT_EQ(busy.within(Nanos(35), Nanos(40)), Nanos(0));
}

TEST(BusyTime, KnowsItsNeighbours) {
  const BusyTime busy({at(10, 20), at(40, 50)});
  EXPECT_EQ(busy.last_end(Nanos(10)), std::nullopt);
  EXPECT_EQ(busy.last_end(Nanos(11)), Nanos(20));
  EXPECT_EQ(busy.last_end(Nanos(40)), Nanos(20));
  EXPECT_EQ(busy.next_begin(Nanos(10)), Nanos(10));
  EXPECT_EQ(busy.next_begin(Nanos(11)), Nanos(40));
  EXPECT_EQ(busy.next_begin(Nanos(41)), std::nullopt);
  EXPECT_EQ(BusyTime().within(Nanos(0), Nanos(9)), Nanos(0));
}

}  // namespace
}  // namespace mfsdp::traces
