// The verdicts on changed fields, with machines that compute little; tests with the CPU's machines
// are in tests/verify/oracle.
#include "verify/mutation/mutate_fields.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "core/plan/plan_json.hpp"
#include "tests/support/machine_run.hpp"
#include "verify/mutation/inert_fields.hpp"
#include "verify/mutation/render_field_mutation.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

Program one_block() { return test::built(test::small_config(2, 1)); }

Machines always(const Results& results) {
  const auto run = [results](const Job&) -> Result<Results> { return results; };
  return {.once = run, .shaken = run};
}

FieldMutant change_of(std::string_view field, std::string_view pointer, const std::string& after) {
  FieldMutant mutant;
  mutant.field = field;
  mutant.patch = fmt::format(R"([{{"op": "replace", "path": "{}", "value": {}}}])", pointer, after);
  return mutant;
}

class JudgeAltered : public testing::Test {
 protected:
  static FieldVerdict judge(const FieldMutant& mutant, const Machines& machines) {
    const nlohmann::json plan = nlohmann::json::parse(to_canonical_json(one_block()));
    const RightResults right{.once = {{"loss", 1}}, .shaken = {{"loss", 1}}};
    return judge_altered(altered_text(plan, mutant), mutant, right, machines,
                         [](std::string_view) {});
  }

  Machines same_ = always({{"loss", 1}});
  FieldMutant label_ = change_of("units[]{block}.name", "/units/1/name", "\"\"");
};

TEST_F(JudgeAltered, WhatTheReaderRefusesIsRefused) {
  const FieldVerdict verdict = judge(change_of("config.seq_len", "/config/seq_len", "-1"), same_);
  EXPECT_EQ(verdict.fate, FieldFate::refused);
  EXPECT_THAT(verdict.why, HasSubstr("config.seq_len"));
}

TEST_F(JudgeAltered, ALabelMayBeAnother) {
  const FieldVerdict verdict = judge(label_, same_);
  EXPECT_EQ(verdict.fate, FieldFate::same) << verdict.why;
  EXPECT_EQ(verdict.why, find_inert(label_.field)->reason);
}

TEST_F(JudgeAltered, ButNotIfABitDiffers) {
  const FieldVerdict verdict = judge(label_, always({{"loss", 2}}));
  EXPECT_EQ(verdict.fate, FieldFate::differs);
  EXPECT_EQ(verdict.why, "loss");
}

TEST_F(JudgeAltered, NorIfItDoesNotRun) {
  const auto refuses = [](const Job&) -> Result<Results> { return fail("machine", "stuck"); };
  const FieldVerdict verdict = judge(label_, {.once = refuses, .shaken = refuses});
  EXPECT_EQ(verdict.fate, FieldFate::not_run);
  EXPECT_EQ(verdict.why, "machine: stuck");
}

TEST(MutateFields, JudgesADrawOfAllAndOutlivesCrashes) {
  FieldMutationSettings settings;
  settings.machines = always({{"loss", 1}});
  settings.per_field = 2;
  settings.most = 60;
  settings.seed = 3;
  const Program program = one_block();
  const pid_t self = ::getpid();
  settings.machines.once = [self](const Job&) -> Result<Results> {
    if (::getpid() != self) std::raise(SIGKILL);
    return Results{{"loss", 1}};
  };
  const auto report = mutate_fields(Job{.programs = {program}}, settings);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->judged(), 60);
  EXPECT_GT(report->mutants, report->fields);
  std::int64_t judged = 0;
  for (const auto& [fate, count] : report->total) judged += count;
  EXPECT_EQ(judged, 60);
  EXPECT_GT(report->total.at(FieldFate::crashed), 0);
  EXPECT_FALSE(report->total.contains(FieldFate::same));
  EXPECT_EQ(report->defects(), report->total.at(FieldFate::crashed));
  EXPECT_THAT(render_field_mutation_text(*report), HasSubstr("run: ended by signal 9"));
  const auto json = nlohmann::json::parse(render_field_mutation_json(*report));
  EXPECT_EQ(json["defects"], report->defects());
  EXPECT_EQ(json["verdicts"].size(), 60U);
  EXPECT_THAT(render_field_mutation_markdown(*report), HasSubstr("| field | refused | found |"));
}

TEST(MutateFields, APlanThatIsWrongItselfIsRefused) {
  Program program = one_block();
  program.plans[0].segments[0].ops.clear();
  FieldMutationSettings settings;
  settings.machines = always({});
  EXPECT_FALSE(mutate_fields(Job{.programs = {program}}, settings));
}

}  // namespace
}  // namespace mfsdp
