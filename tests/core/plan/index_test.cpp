#include "core/plan/index.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace mfsdp {
namespace {

std::vector<Event> events(std::initializer_list<std::uint32_t> ids) {
  std::vector<Event> list;
  for (const std::uint32_t id : ids) list.push_back({.id = EventId(id), .name = ""});
  return list;
}

TEST(IdIndex, FindsIdsOfAnySize) {
  constexpr std::uint32_t largest = ~std::uint32_t{0};
  const IdIndex<EventId> index(events({7, 0, 65'535, 65'536, largest}));
  EXPECT_EQ(index[EventId(7)], 0U);
  EXPECT_EQ(index[EventId(65'535)], 2U);
  EXPECT_EQ(index[EventId(65'536)], 3U);
  EXPECT_EQ(index[EventId(largest)], 4U);
  for (const std::uint32_t absent : {1U, 65'534U, 65'537U, largest - 1})
    EXPECT_FALSE(index.find(EventId(absent))) << absent;
}

TEST(IdIndex, TheFirstOfTwoEqualIdsCounts) {
  const IdIndex<EventId> index(events({3, 3, 100'000, 100'000}));
  EXPECT_EQ(index.find(EventId(3)), 0U);
  EXPECT_EQ(index.find(EventId(100'000)), 2U);
}

RC_GTEST_PROP(IdIndex, AnswersAsAMapDoes, ()) {
  const auto ids = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
      rc::gen::inRange<std::uint32_t>(0, 20), rc::gen::inRange<std::uint32_t>(65'530, 65'545)));
  IdIndex<EventId> index;
  std::map<std::uint32_t, std::size_t> oracle;
  for (std::size_t i = 0; i < ids.size(); ++i)
    RC_ASSERT(index.insert(EventId(ids[i]), i) == oracle.emplace(ids[i], i).second);
  for (const std::uint32_t id : ids) RC_ASSERT(index.find(EventId(id)) == oracle.at(id));
}

}  // namespace
}  // namespace mfsdp
