// Pairs of edits: each pattern has its place, and what becomes of them with the proofs alone.
#include "verify/mutation/edit_pairs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/machine_run.hpp"
#include "tests/support/samples.hpp"
#include "verify/mutation/mutate_fields.hpp"

namespace mfsdp {
namespace {

PlanConfig two_blocks() {
  PlanConfig config = test::small_config(2);
  config.logits_chunk = config.seq_len / 2;
  config.microbatches = 2;
  return config;
}

std::set<std::string> patterns_in(const PlanConfig& config) {
  std::set<std::string> found;
  for (const FieldMutant& mutant : pair_mutants(test::built(config), 1, 3))
    found.insert(mutant.field);
  return found;
}

TEST(EditPairs, EachPatternHasAPlaceSomewhere) {
  if (test::kOneCase) GTEST_SKIP() << test::kTheorem;
  std::set<std::string> found;
  for (const Strategy strategy : {Strategy::optim, Strategy::optim_grads_params}) {
    PlanConfig config = two_blocks();
    config.strategy = strategy;
    config.reduce_dtype = DType::bf16;  // sums are made beside the wire's
    found.merge(patterns_in(config));
  }
  const std::set<std::string> all(edit_pairs().begin(), edit_pairs().end());
  EXPECT_EQ(all.size(), edit_pairs().size());
  EXPECT_GE(all.size(), 30U);
  EXPECT_THAT(found, testing::ContainerEq(all));
}

TEST(EditPairs, AreAFunctionOfPlanAndSeed) {
  const Program program = test::built(test::small_config(2, 1));
  const auto list = pair_mutants(program, 1, 7);
  EXPECT_EQ(list, pair_mutants(program, 1, 7));
  EXPECT_NE(list, pair_mutants(program, 1, 8));
  for (const FieldMutant& mutant : list) EXPECT_EQ(mutant.edit, FieldEdit::pair);
}

/// A machine for which all plans are equal: what the proofs do not find counts as right.
TEST(EditPairs, MostAreFoundAndNoneIsCertified) {
  FieldMutationSettings settings;
  const auto run = [](const Job&) -> Result<Results> { return Results{{"loss", 1}}; };
  settings.machines = {.once = run, .shaken = run};
  settings.per_field = 1;
  if (test::kOneCase) settings.most = 10;
  const auto report = mutate_pairs(test::built(test::small_config(2)), settings);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->defects(), 0);
  if (test::kOneCase) return;
  EXPECT_EQ(report->forged.at(Forgery::refused), report->total.at(FieldFate::found));
  EXPECT_GT(report->total.at(FieldFate::found), 5 * report->total.at(FieldFate::same));
  EXPECT_FALSE(report->forged.contains(Forgery::same));
}

}  // namespace
}  // namespace mfsdp
