// The prover against a search through every interleaving of plans of 3 units, 2 slots and 2 ranks.
#include "tests/support/interleavings.hpp"

#include <gtest/gtest.h>

#include "core/schedule/build.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

TEST(Interleavings, EveryDroppedWaitIsJudgedAlike) {
  int races = 0;
  int safe = 0;
  int gave_up = 0;
  test::Sample sample;
  for (int variant = 0; variant < 8; ++variant) {
    Program program = *build_program(test::three_units(variant), {});
    program.plans.resize(1);
    if (test::kOneCase && variant > 0) break;
    ASSERT_FALSE(test::Interleavings(program, program.plans[0]).find_race()) << variant;
    for (std::size_t s = 0; s < program.plans[0].segments.size(); ++s)
      for (std::size_t i = 0; i < program.plans[0].segments[s].ops.size(); ++i) {
        if (program.plans[0].segments[s].ops[i].kind() != OpKind::wait) continue;
        if (!sample.takes_next()) continue;
        Program edited = program;
        auto& ops = edited.plans[0].segments[s].ops;
        const std::string name = ops[i].name;
        ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
        test::Interleavings search(edited, edited.plans[0]);
        const auto race = search.find_race(200'000);
        if (search.gave_up) {
          ++gave_up;
          continue;
        }
        (race ? races : safe) += 1;
        EXPECT_EQ(test::rules_of(edited).contains("MF101"), race.has_value())
            << "variant " << variant << " without wait " << name << ": "
            << race.value_or("no race");
      }
  }
  EXPECT_EQ(gave_up, 0);
  if (test::kOneCase) return;
  EXPECT_GE(races, 100);
  EXPECT_GE(safe, 6);
}

}  // namespace
}  // namespace mfsdp
