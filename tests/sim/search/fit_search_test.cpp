#include "sim/search/fit_search.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <thread>

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ParetoFront, KeepsWhatNothingElseBeats) {
  // By hand: (1, 5) and (2, 9) stay; (2, 7) loses to (2, 9), (3, 9) needs more for the same.
  EXPECT_THAT(pareto_front({{Bytes(3), 9}, {Bytes(2), 7}, {Bytes(1), 5}, {Bytes(2), 9}}),
              ElementsAre(2, 3));
  EXPECT_THAT(pareto_front({}), IsEmpty());
  EXPECT_THAT(pareto_front({{Bytes(1), 1}, {Bytes(1), 1}}), ElementsAre(0));
}

RC_GTEST_PROP(ParetoFront, IsWhatTheDefinitionSays, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(0, 30);
  std::vector<TradeOff> points(size);
  for (TradeOff& point : points)
    point = {.memory = Bytes(*rc::gen::inRange<std::int64_t>(0, 8)),
             .speed = static_cast<double>(*rc::gen::inRange(0, 8))};
  const auto front = pareto_front(points);
  for (std::size_t i = 0; i < size; ++i) {
    const bool beaten = std::ranges::any_of(points, [&](const TradeOff& other) {
      return (other.memory < points[i].memory && other.speed >= points[i].speed) ||
             (other.memory <= points[i].memory && other.speed > points[i].speed);
    });
    const bool first = std::none_of(
        points.begin(), points.begin() + static_cast<long>(i), [&](const TradeOff& other) {
          return other.memory == points[i].memory && other.speed == points[i].speed;
        });
    RC_ASSERT((std::ranges::find(front, i) != front.end()) == (!beaten && first));
  }
}

TEST(FindLargest, AnErrorOfTheFirstCandidateIsTheAnswer) {
  const RequestFor request_for = [](std::int64_t) -> Result<PredictionRequest> {
    return fail("--gpus", "wrong");
  };
  const auto found = find_largest(1, 1, 100, request_for, [](const Tried&) { return true; });
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "--gpus: wrong");
  const auto among =
      find_among({1, 2, 3}, Pick::first, 2, request_for, [](const Tried&) { return true; });
  ASSERT_FALSE(among);
  EXPECT_EQ(among.error().message(), "--gpus: wrong");
}

TEST(FindAmong, AsksOnTheSearchingThreadAlone) {
  const auto searching = std::this_thread::get_id();
  const RequestFor request_for = [&](std::int64_t) -> Result<PredictionRequest> {
    EXPECT_EQ(std::this_thread::get_id(), searching);
    return fail("--gpus", "wrong");
  };
  EXPECT_FALSE(find_among({1, 2, 3, 4, 5, 6}, Pick::first, 4, request_for,
                          [](const Tried&) { return true; }));
}

}  // namespace
}  // namespace mfsdp
