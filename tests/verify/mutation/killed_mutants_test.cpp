// Mutants that the proofs kill show on the CPU's machine, where they can: other bits in some chaos
// seed with or without poison, or an end with an error.
//
// Some mutants cannot show there: races between ops that never touch other bytes in time
// (ThreadSanitizer finds those, tests/verify/cpu/waits); lifetimes where nothing else uses the
// memory; bounds (MF6xx); and dtypes, layouts and numbers that only readers of the plan use. Plans
// that the interpreter's own checks would refuse are left out, as they end the process.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <random>
#include <set>

#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/verify/mutation/plans.hpp"

namespace mfsdp {
namespace {

using test::Altered;

enum Sighting : int { unseen, wrong_bits, refused };

/// Runs a mutant with one chaos seed after the other until something shows. Calm runs come first.
int look_for(const Altered& mutant, const test::Tensors& weights, const test::States& right,
             std::uint64_t seeds) {
  ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
  ::alarm(120);  // a wild write may leave anything
  const Program program = mutant.program();
  for (std::uint64_t seed = 0; seed <= seeds; ++seed) {
    const auto chaos = seed == 0 ? std::nullopt : std::optional(seed);
    const auto states = test::run_llama(program, *mutant.plan, weights, chaos);
    if (!states) return refused;
    if (*states != right) return wrong_bits;
  }
  return unseen;
}

/// Killed ones, at most `most` of each kind, drawn from all of them.
std::vector<Altered> killed_mutants(const Program& plan, std::size_t most, std::uint64_t seed) {
  std::map<MutantKind, std::vector<Mutant>> kinds;
  for_each_mutant(plan,
                  [&](const Mutant& mutant) { return kinds[mutant.kind].push_back(mutant), true; });
  std::mt19937_64 random(seed);
  std::vector<Altered> list;
  for (auto& [kind, mutants] : kinds) {
    std::ranges::shuffle(mutants, random);
    std::size_t found = 0;
    for (std::size_t i = 0; i < mutants.size() && found < most; ++i) {
      const auto altered = apply(plan, mutants[i]);
      if (!altered) continue;
      MutantVerdict verdict = judge(*altered, mutants[i], {});
      if (verdict.fate != Fate::killed) continue;
      ++found;
      list.push_back({.plan = &plan, .verdict = std::move(verdict)});
    }
  }
  return list;
}

struct Shown {
  int bits = 0;
  int errors = 0;
  int unseen = 0;
};

TEST(KilledMutants, ShowOnTheMachine) {
#ifdef MFSDP_THREAD_SANITIZED
  GTEST_SKIP() << "races on purpose";
#endif
  const std::vector<Program> all = test::llama_plans();
  std::vector plans{&all[12], &all[10]};  // HSDP, and optim_grads_params
  if (test::kOneCase) plans.pop_back();
  const bool full = test::is_full_run();
  std::map<MutantKind, Shown> kinds;
  Shown sum;
  for (const Program* plan : plans) {
    const auto weights = test::random_weights(*plan, 1);
    const auto right = test::run_llama(*plan, *plan, weights, {}).value();
    auto mutants = killed_mutants(*plan, full ? 16 : 1, 7);
    if (test::kOneCase) mutants.resize(1);
    const auto outcomes = test::run_children(mutants.size(), [&](std::size_t i) {
      return look_for(mutants[i], weights, right, full ? 12 : 2);
    });
    for (std::size_t i = 0; i < mutants.size(); ++i) {
      Shown& kind = kinds[mutants[i].verdict.mutant.kind];
      for (Shown* counts : {&kind, &sum})
        ++(outcomes[i] == unseen       ? counts->unseen
           : outcomes[i] == wrong_bits ? counts->bits
                                       : counts->errors);
      if (outcomes[i] == unseen && full)
        std::cout << "not seen: " << mutants[i].name() << ": "
                  << fmt::format("{}", fmt::join(mutants[i].verdict.rules, " ")) << '\n';
    }
  }
  for (const auto& [kind, shown] : kinds)
    std::cout << fmt::format("  {:20} {:4} by other bits {:4} by an error {:4} not seen\n",
                             to_string(kind), shown.bits, shown.errors, shown.unseen);
  const int seen = sum.bits + sum.errors;
  std::cout << fmt::format("{} of {} killed mutants show\n", seen, seen + sum.unseen);
  if (test::kOneCase) return;
  EXPECT_GT(sum.bits, 0);
  EXPECT_GT(seen, sum.unseen);  // which races show depends on the machine's timing
}

}  // namespace
}  // namespace mfsdp
