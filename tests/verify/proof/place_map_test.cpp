#include "verify/proof/order/place_map.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

namespace mfsdp {
namespace {

RC_GTEST_PROP(PlaceMap, EqualsAnOwnerForEachCell, ()) {
  const auto cells = *rc::gen::inRange<std::uint32_t>(1, 200);
  PlaceMap map(cells);
  std::vector<std::uint32_t> owners(cells, PlaceMap::kFree);
  for (std::uint32_t claimer = 0; claimer < 40; ++claimer) {
    const auto begin = *rc::gen::inRange<std::uint32_t>(0, cells);
    const auto end = *rc::gen::inRange<std::uint32_t>(begin + 1, cells + 1);
    std::set<std::uint32_t> expected(owners.begin() + begin, owners.begin() + end);
    expected.erase(PlaceMap::kFree);
    std::set<std::uint32_t> seen;
    map.claim(begin, end, claimer, [&](std::uint32_t owner) { seen.insert(owner); });
    RC_ASSERT(seen == expected);
    std::fill(owners.begin() + begin, owners.begin() + end, claimer);
  }
}

}  // namespace
}  // namespace mfsdp
