// Every mutant of a plan is killed by an error, or correct with a certificate.
#include "verify/mutation/mutate.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>  // mutate() starts threads

#include "tests/support/recorded_lines.hpp"
#include "tests/support/samples.hpp"
#include "tests/verify/mutation/plans.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Program tiny() { return test::built(test::small_config(2, 1)); }

const std::filesystem::path kRecordedKills = std::filesystem::path(MFSDP_SOURCE_DIR) / "tests" /
                                             "verify" / "mutation" / "recorded_kills.csv";

/// One block on two ranks, two microbatches: small enough to judge every mutant, with every kind of
/// segment and both collectives.
Program small_plan() {
  PlanConfig config = test::small_config(2, 1);
  config.strategy = Strategy::optim_grads_params;
  config.microbatches = 2;
  return test::built(config);
}

void write_kills(const std::map<MutantKind, FateCounts>& kinds) {
  std::vector<test::Cells> lines;
  for (const auto& [kind, counts] : kinds)
    lines.push_back({{"kind", std::string(to_string(kind))},
                     {"killed", std::to_string(counts.killed)},
                     {"correct", std::to_string(counts.correct)}});
  test::write_cells(kRecordedKills, lines);
}

/// All of them, so that nothing depends on which ones are drawn. MFSDP_UPDATE_RECORDED=1 records
/// how many are killed now.
TEST(Mutate, KillsAsManyOfEachKindAsRecorded) {
  if (test::kOneCase) GTEST_SKIP() << "every mutant is too many for a sanitizer";
  const Program plan = small_plan();
  const auto report = mutate(plan, {});
  ASSERT_TRUE(report) << report.error().message();
  for (const MutantVerdict& verdict : report->verdicts)
    EXPECT_NE(verdict.fate, Fate::uncertified)
        << describe(plan, verdict.mutant) << ": " << verdict.refusal;
  if (test::updates_recorded()) return write_kills(report->by_kind);
  const std::vector<test::Cells> lines = test::read_cells(kRecordedKills);
  EXPECT_EQ(lines.size(), report->by_kind.size());
  for (const test::Cells& line : lines) {
    const auto counts = report->by_kind.find(test::named<MutantKind>(line, "kind"));
    ASSERT_NE(counts, report->by_kind.end()) << test::cell(line, "kind");
    EXPECT_EQ(counts->second.killed, test::number(line, "killed")) << test::cell(line, "kind");
    EXPECT_EQ(counts->second.correct, test::number(line, "correct")) << test::cell(line, "kind");
  }
}

TEST(Mutate, LeavesNoMutantOfTwelvePlansUndecided) {
  FateCounts sum;
  std::uint64_t seed = 0;
  std::map<MutantKind, FateCounts> kinds;
  test::Sample sample;
  for (const Program& plan : test::llama_plans()) {
    if (!sample.takes_next()) continue;
    MutationSettings settings;
    if (!test::is_full_run()) settings.most = test::kOneCase ? 12 : 120;
    settings.seed = ++seed;
    const auto report = mutate(plan, settings);
    ASSERT_TRUE(report) << test::name_of(plan) << ": " << report.error().message();
    EXPECT_EQ(report->total.uncertified, 0) << test::name_of(plan);
    for (const MutantVerdict& verdict : report->verdicts)
      EXPECT_NE(verdict.fate, Fate::uncertified)
          << test::name_of(plan) << ": " << describe(plan, verdict.mutant) << ": "
          << verdict.refusal;
    EXPECT_GT(report->total.killed, report->total.correct);
    for (const auto& [rule, count] : report->by_rule)
      EXPECT_TRUE(rule == "refused" || is_error(rule)) << rule;
    for (const auto& [kind, counts] : report->by_kind) {
      kinds[kind].killed += counts.killed;
      kinds[kind].correct += counts.correct;
    }
    sum.killed += report->total.killed;
    sum.correct += report->total.correct;
    std::cout << fmt::format("{}: {} mutants; {} killed, {} correct\n", test::name_of(plan),
                             report->mutants, report->total.killed, report->total.correct);
  }
  for (const auto& [kind, counts] : kinds)
    std::cout << fmt::format("  {:20} {:7} killed {:6} correct\n", to_string(kind), counts.killed,
                             counts.correct);
  std::cout << fmt::format("{} killed, {} correct\n", sum.killed, sum.correct);
}

TEST(Mutate, IsAFunctionOfPlanAndSeed) {
  const Program program = tiny();
  MutationSettings settings;
  settings.most = 100;
  settings.workers = 1;
  const auto alone = mutate(program, settings);
  settings.workers = 3;
  EXPECT_EQ(*alone, *mutate(program, settings));
  EXPECT_EQ(alone->verdicts.size(), 100U);
  settings.seed = 1;
  EXPECT_NE(*alone, *mutate(program, settings));
}

/// Mutants that change nothing are drawn, too; others take their place.
TEST(Mutate, JudgesAsManyAsAskedForOrAllThereAre) {
  if (test::kOneCase) GTEST_SKIP() << "every mutant is too many for a sanitizer";
  const Program program = tiny();
  MutationSettings settings;
  settings.certify = [](const Program&) -> Result<void> { return {}; };
  for (const std::size_t most : {0U, 1U, 7U}) {
    settings.most = most;
    EXPECT_EQ(mutate(program, settings)->verdicts.size(), most);
  }
  std::int64_t named = 0;
  std::int64_t apart = 0;  // that are another plan
  for_each_mutant(program, [&](const Mutant& mutant) {
    ++named;
    if (apply(program, mutant)) ++apart;
    return true;
  });
  ASSERT_LT(apart, named);
  settings.most = static_cast<std::size_t>(named);
  const auto all = mutate(program, settings);
  EXPECT_EQ(all->mutants, named);
  EXPECT_EQ(std::ssize(all->verdicts), apart);
  EXPECT_EQ(all->unchanged, named - apart);
}

TEST(Mutate, NamesTheRules) {
  const Program program = tiny();
  const auto& ops = program.plans[0].segments[0].ops;
  const auto gather = std::ranges::find(ops, std::string("layers.0.all_gather"), &Op::name);
  const Mutant mutant{.kind = MutantKind::drop_collective,
                      .index = static_cast<std::uint32_t>(gather - ops.begin())};
  const MutantVerdict verdict = judge(*apply(program, mutant), mutant, {});
  EXPECT_EQ(verdict.fate, Fate::killed);
  EXPECT_THAT(verdict.rules, Contains("MF402"));  // a kernel reads what nothing gathered
}

TEST(Mutate, SaysWhereTheCheckerRefuses) {
  MutationSettings settings;
  settings.most = 200;
  int asked = 0;
  std::mutex one;
  settings.certify = [&](const Program&) -> Result<void> {
    const std::scoped_lock lock(one);
    if (asked++ == 0) return {};  // the plan itself
    return fail("certificate", "no");
  };
  const auto report = mutate(tiny(), settings);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->total.correct, 0);
  EXPECT_GT(report->total.uncertified, 0);
  const auto refused = std::ranges::find(report->verdicts, Fate::uncertified, &MutantVerdict::fate);
  ASSERT_NE(refused, report->verdicts.end());
  EXPECT_EQ(refused->refusal, "certificate: no");
}

TEST(Mutate, TakesOnlyPlansThatAreRight) {
  Program wrong = tiny();
  std::erase_if(wrong.plans[0].segments[0].ops,
                [](const Op& op) { return op.kind() == OpKind::wait; });
  const auto report = mutate(wrong, {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("plan: expected one without errors, got MF"));
}

TEST(Mutate, EndsEarlyWhenAsked) {
  MutationSettings settings;
  settings.workers = 1;
  std::vector<std::size_t> heard;
  settings.progress = [&](std::size_t done, std::size_t) { return heard.push_back(done), false; };
  const auto report = mutate(tiny(), settings);
  ASSERT_TRUE(report);
  EXPECT_THAT(heard, ElementsAre(64));
  EXPECT_LE(report->total.killed + report->total.correct, 64);
}

}  // namespace
}  // namespace mfsdp
