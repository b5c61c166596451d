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

/// Twice as many ids are looked up in a table as there are things, further ones elsewhere.
TEST(IdIndex, OfALongList) {
  constexpr std::uint32_t count = 70'000;
  std::vector<Event> list;
  for (std::uint32_t id = 0; id < count; ++id) list.push_back({.id = EventId(id), .name = ""});
  for (const std::uint32_t id : {2 * count + 3, 2 * count + 4, 3'000'000'000U})
    list.push_back({.id = EventId(id), .name = ""});
  const IdIndex<EventId> index(list);
  for (std::size_t i = 0; i < list.size(); ++i) ASSERT_EQ(index[list[i].id], i);
  for (const std::uint32_t absent : {count, 2 * count + 5, 2 * count + 6, 2 * count + 7})
    EXPECT_FALSE(index.find(EventId(absent))) << absent;
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
