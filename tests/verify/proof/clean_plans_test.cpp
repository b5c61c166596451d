// No false alarms: what the planner builds from random configurations verifies clean.
//
// MFSDP_PROPERTY_RUNS configurations, half of them in each of two tests that ctest runs side by
// side; MFSDP_PROPERTY_SEED draws others. A million takes longer than ctest waits:
//
//   MFSDP_PROPERTY_RUNS=100000 scripts/test -R CleanPlans -V
//   MFSDP_PROPERTY_RUNS=10000 scripts/test -R 'CleanPlans.*WithExperts' -V
//   export MFSDP_PROPERTY_RUNS=1000000; tests=build/release/tests/verify_proof_tests
//   for half in 0 1; do $tests --gtest_filter="Halves/CleanPlans.*/$half" & done; wait
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "core/plan/lifetimes.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/planner_axes.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// The first error in the proof of a correct plan, if any. Notes may be redundant waits, and bounds
/// must be those that core/plan derives by other means.
std::optional<std::string> complaint(const Program& program) {
  const auto proof = prove(program);
  if (!proof) return proof.error().message();
  for (const Finding& finding : proof->findings)
    if (finding.rule != "MF604") return finding.rule + " " + finding.message;
  const Plan& train = program.plans[0];
  const auto lifetimes = buffer_lifetimes(program, train);
  const Bounds& bounds = proof->bounds;
  if (bounds.live_full_weights != max_live_buffers(program, *lifetimes, Category::unsharded_weight))
    return "another number of live weights";
  if (bounds.live_full_gradients != max_live_buffers(program, *lifetimes, Category::unsharded_grad))
    return "another number of live gradients";
  if (bounds.peak != sum_of(peak_memory(program, *lifetimes))) return "another peak";
  return std::nullopt;
}

/// A hundred, which shrink where they fail.
RC_GTEST_PROP(CleanPlans, ShrinkWhereTheyAreNot, ()) {
  const auto program = build_program(*test::any_planner_config(), {});
  RC_ASSERT(program.has_value());
  const auto what = complaint(*program);
  if (what) RC_FAIL(*what);
}

/// One of two halves of `runs` configurations, each drawn by its number and the seed alone.
void expect_clean(const rc::Gen<PlanConfig>& any, std::int64_t half, std::int64_t runs,
                  test::AxisCounts& counts) {
  const std::int64_t seed = setting("MFSDP_PROPERTY_SEED", 1);
  for (std::int64_t run = half; run < runs; run += 2) {
    const rc::Random random(static_cast<std::uint64_t>(seed * 1'000'000'007 + run));
    const PlanConfig config = any(random, rc::kNominalSize).value();
    const auto program = build_program(config, {});
    ASSERT_TRUE(program.has_value()) << "run " << run << ": " << program.error().message();
    const auto what = complaint(*program);
    ASSERT_FALSE(what.has_value()) << "run " << run << " of seed " << seed << ": " << *what << "\n"
                                   << to_canonical_json(*program);
    counts.count(*program);
  }
  std::cout << (runs + 1 - half) / 2 << " configurations, all clean\n" << counts.table();
}

class CleanPlans : public testing::TestWithParam<std::int64_t> {};

TEST_P(CleanPlans, OfRandomConfigurations) {
  const std::int64_t runs = setting("MFSDP_PROPERTY_RUNS", 2'000);
  test::AxisCounts counts;
  ASSERT_NO_FATAL_FAILURE(expect_clean(test::any_planner_config(), GetParam(), runs, counts));
  // Sanitizers draw too few for the rare ones.
  if (runs < 2000) return;
  EXPECT_THAT(counts.gaps(), testing::IsEmpty());
}

/// The test above would draw a tenth as many of these: too few for the ways to distribute experts.
TEST_P(CleanPlans, OfRandomModelsWithExperts) {
  const std::int64_t runs = setting("MFSDP_PROPERTY_RUNS", 400);
  test::AxisCounts counts;
  ASSERT_NO_FATAL_FAILURE(
      expect_clean(test::any_planner_config(test::Models::with_experts), GetParam(), runs, counts));
  if (runs < 2000) return;
  // No model with experts has these.
  EXPECT_THAT(counts.gaps(), testing::UnorderedElementsAre(
                                 "experts: never none", "family: never gpt2", "family: never olmo2",
                                 "activation: never gelu_tanh", "norms of what is added: never yes",
                                 "adapters: never of fused layers", "FP8: never current",
                                 "sums of FP8: never split", "sums of FP8: never fast",
                                 "blocks kept in bf16: never 1"));
}

INSTANTIATE_TEST_SUITE_P(Halves, CleanPlans, testing::Values(0, 1));

}  // namespace
}  // namespace mfsdp
