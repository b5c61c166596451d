#include "core/schedule/residency.hpp"

#include <gtest/gtest.h>

namespace mfsdp::schedule {
namespace {

using Sets = std::vector<std::vector<std::size_t>>;

// Units 0 (embedding), 1, 2, 3 (head): uses e 1 2 h 2' 1'.
const std::vector<std::size_t> kUses{0, 1, 2, 3, 2, 1};

TEST(Residency, KeepsTheLastBlockThroughTheHead) {
  EXPECT_EQ(resident_units(kUses, 1, false),
            (Sets{{0, 1}, {1, 2}, {2, 3}, {3, 2}, {2, 1}, {1}, {}}));
}

TEST(Residency, PrefetchesIntoTheNextMicrobatch) {
  EXPECT_EQ(resident_units(kUses, 1, true),
            (Sets{{0, 1}, {1, 2}, {2, 3}, {3, 2}, {2, 1}, {1, 0}, {0, 1}}));
}

TEST(Residency, HoldsOneUnitWithoutPrefetch) {
  EXPECT_EQ(resident_units(kUses, 0, false), (Sets{{0}, {1}, {2}, {3}, {2}, {1}, {}}));
}

TEST(Residency, HoldsAllUnitsWhenTheyFit) {
  for (const auto& set : resident_units(kUses, 3, true)) EXPECT_EQ(set.size(), 4U);
}

// Block 1 stays from its forward to its backward, beside what prefetch asks for.
TEST(Residency, KeepsBlocksUntilTheirBackward) {
  EXPECT_EQ(resident_units(kUses, 1, false, {1}),
            (Sets{{0, 1}, {1, 2}, {2, 3, 1}, {3, 2, 1}, {2, 1}, {1}, {}}));
  EXPECT_EQ(resident_units(kUses, 0, true, {1, 2}),
            (Sets{{0}, {1}, {2, 1}, {3, 1, 2}, {2, 1}, {1}, {0}}));
}

TEST(Residency, NeverHoldsMoreThanPrefetchAndOne) {
  for (std::size_t prefetch = 0; prefetch < 6; ++prefetch)
    for (const auto& set : resident_units(kUses, prefetch, true))
      EXPECT_LE(set.size(), prefetch + 1);
}

}  // namespace
}  // namespace mfsdp::schedule
