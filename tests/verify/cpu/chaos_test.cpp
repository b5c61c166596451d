// Whatever the streams' luck, and whatever dead bytes hold, a plan's results are the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>  // starts threads, so that the build lists it for ThreadSanitizer

#include "tests/support/machine_run.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::States;

/// MFSDP_CHAOS_SEEDS, a multiple of 4; 4 by default.
std::uint64_t seeds() {
  const char* text = std::getenv("MFSDP_CHAOS_SEEDS");
  return text == nullptr ? 4 : std::strtoull(text, nullptr, 10);
}

TEST(Chaos, ChangesNoBitOfAnyStrategy) {
  std::size_t number = 0;
  for (const PlanConfig& config : test::machine_configs()) {
    if (test::kOneCase && number++ % 2 == 1) continue;  // sanitizers: every other one
    const Program program = test::built_small(config);
    const auto calm = test::run_program(program, test::hashing());
    ASSERT_TRUE(calm) << test::name_of(config) << ": " << calm.error().message();
    for (std::uint64_t first = 0; first < seeds(); first += 4)
      for (const auto& shaken : test::run_with_chaos(program, first, test::hashing())) {
        ASSERT_TRUE(shaken) << test::name_of(config) << ": " << shaken.error().message();
        EXPECT_EQ(*shaken, *calm) << test::name_of(config) << ", seeds from " << first;
      }
  }
}

TEST(Chaos, StepsChangeTheState) {
  const Program program = test::built_small(test::small_config(2));
  const States one = test::run_program(program, test::hashing(), {{"train", 1}}).value();
  const States two = test::run_program(program, test::hashing(), {{"train", 2}}).value();
  EXPECT_NE(one, two);
  EXPECT_NE(one[0], one[1]);  // ranks began with different values
}

}  // namespace
}  // namespace mfsdp
