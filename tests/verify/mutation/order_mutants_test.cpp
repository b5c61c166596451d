// Compares the proofs of order for mutants with a search through every interleaving of plans of 3
// units, 2 slots and 2 ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/support/interleavings.hpp"
#include "tests/support/samples.hpp"
#include "tests/verify/mutation/plans.hpp"

namespace mfsdp {
namespace {

constexpr std::array kOrderKinds{
    MutantKind::drop_wait,       MutantKind::drop_record,    MutantKind::drop_collective,
    MutantKind::drop_acquire,    MutantKind::drop_release,   MutantKind::double_collective,
    MutantKind::swap_neighbours, MutantKind::swap_on_stream, MutantKind::reorder_collectives,
    MutantKind::change_stream,   MutantKind::release_early,  MutantKind::acquire_late};

/// The first of these rules means that the rest of the proof was not made, or that the host or a
/// wait does what the search does not model.
bool is_beyond_the_search(const std::vector<std::string>& rules) {
  return std::ranges::any_of(rules, [](const std::string& rule) {
    return rule.starts_with("MF00") || rule == "MF104" || rule == "MF105" || rule == "MF108";
  });
}

/// Where an op meets an acquire or a release, its use lies outside the lifetime in host order too
/// (MF102, MF103), or only in some other order (MF101).
bool agree(const std::vector<std::string>& rules, bool race) {
  const auto fires = [&](const char* rule) { return std::ranges::count(rules, rule) > 0; };
  return race ? fires("MF101") || fires("MF102") || fires("MF103") : !fires("MF101");
}

TEST(OrderMutants, AreJudgedAsAnExhaustiveSearchJudgesThem) {
#ifdef MFSDP_THREAD_SANITIZED
  GTEST_SKIP() << "one thread alone: minutes under ThreadSanitizer";
#endif
  std::size_t races = 0;
  std::size_t safe = 0;
  std::size_t beyond = 0;
  test::Sample sample;
  for (int variant = 0; variant < 8; ++variant) {
    Program program = test::built(test::three_units(variant));
    program.plans.resize(1);
    std::size_t number = 0;
    for_each_mutant(program, [&](const Mutant& mutant) {
      if (!std::ranges::count(kOrderKinds, mutant.kind)) return true;
      if (!test::is_full_run() && number++ % 32 != static_cast<std::size_t>(variant)) return true;
      if (!sample.takes_next()) return true;
      const auto altered = apply(program, mutant);
      if (!altered) return true;
      const MutantVerdict verdict =
          judge(*altered, mutant, [](const Program&) -> Result<void> { return {}; });
      if (is_beyond_the_search(verdict.rules)) return ++beyond, true;
      test::Interleavings search(*altered, altered->plans[0]);
      const auto race = search.find_race(400'000);
      EXPECT_FALSE(search.gave_up) << describe(program, mutant);
      EXPECT_TRUE(agree(verdict.rules, race.has_value()))
          << "variant " << variant << ", " << describe(program, mutant) << ": "
          << race.value_or("no race") << "; " << fmt::format("{}", fmt::join(verdict.rules, " "));
      (race ? races : safe) += 1;
      return true;
    });
  }
  std::cout << races << " mutants with a race, " << safe << " without, " << beyond
            << " not searched\n";
  if (test::kOneCase) return;
  EXPECT_GE(races, 50);
  EXPECT_GE(safe, 50);
}

}  // namespace
}  // namespace mfsdp
