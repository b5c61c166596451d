// Mutants that the proofs call correct change no bit of any result, whatever the streams' luck.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/verify/mutation/plans.hpp"

namespace mfsdp {
namespace {

using test::Altered;

/// Those of `most` mutants of each plan that are correct.
std::vector<Altered> correct_mutants(const std::vector<Program>& plans, std::size_t most) {
  std::vector<Altered> list;
  std::uint64_t seed = 100;
  for (const Program& plan : plans) {
    MutationSettings settings;
    settings.most = most;
    settings.seed = seed++;
    const MutationReport report = mutate(plan, settings).value();
    for (const MutantVerdict& verdict : report.verdicts)
      if (verdict.fate == Fate::correct) list.push_back({.plan = &plan, .verdict = verdict});
  }
  return list;
}

enum Outcome : int { same, other_bits, failed };

/// Runs a mutant with one chaos seed after the other until something differs.
int run(const Altered& mutant, const test::Tensors& weights, const test::States& right,
        std::uint64_t seeds) {
  ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
  const Program program = mutant.program();
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto states = test::run_llama(program, *mutant.plan, weights, seed);
    if (!states) return failed;
    if (*states != right) return other_bits;
  }
  return same;
}

/// Mutants judged of each plan, and correct ones run.
constexpr std::size_t kMost = test::kOneCase ? 20 : 60;
constexpr std::size_t kRun = test::kOneCase ? 1 : 24;

/// In a full run 200 of them with 50 seeds each, and thousands more with two.
TEST(CorrectMutants, ChangeNoBit) {
#ifdef MFSDP_THREAD_SANITIZED
  GTEST_SKIP() << "minutes under ThreadSanitizer, which the machine has its own tests for";
#endif
  std::vector<Program> plans = test::llama_plans();
  if (test::kOneCase) plans.resize(1);
  const bool full = test::is_full_run();
  std::vector<Altered> mutants = correct_mutants(plans, full ? 3000 : kMost);
  std::mt19937_64 random(2026);
  std::ranges::shuffle(mutants, random);
  if (!full) mutants.resize(std::min(mutants.size(), kRun));
  std::map<const Program*, test::Tensors> weights;
  std::map<const Program*, test::States> right;
  for (const Program& plan : plans) {
    weights[&plan] = test::random_weights(plan, 1);
    right[&plan] = test::run_llama(plan, plan, weights[&plan], {}).value();
  }
  const std::vector<int> outcomes = test::run_children(mutants.size(), [&](std::size_t i) {
    const std::uint64_t seeds = full ? (i < 200 ? 50 : 2) : 4;
    return run(mutants[i], weights.at(mutants[i].plan), right.at(mutants[i].plan), seeds);
  });
  for (std::size_t i = 0; i < mutants.size(); ++i)
    EXPECT_EQ(outcomes[i], same) << mutants[i].name();
  std::cout << mutants.size() << " correct mutants\n";
  EXPECT_GE(mutants.size(), kRun);
}

}  // namespace
}  // namespace mfsdp
