#include <gmock/gmock.h>

#include <limits>

#include "reports/budget/budget.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

std::string error_of(std::string_view text) {
  const auto budget = parse_budget(text, "b.toml");
  return budget ? "no error" : budget.error().message();
}

/// The value of the file's one limit, in the table and under the key of `assignment`.
std::int64_t limit_of(const std::string& table, const std::string& assignment) {
  const auto budget = parse_budget("[" + table + "]\n" + assignment + "\n", "b.toml");
  if (!budget) {
    ADD_FAILURE() << budget.error().message();
    return -1;
  }
  EXPECT_EQ(budget->limits.size(), 1u);
  return std::get<std::int64_t>(*budget->limits.front().most);
}

TEST(ParseBudget, EveryLimitKnowsItsLine) {
  const auto budget = parse_budget(
      "plan_hash = 'abc'\n"
      "cost_model_version = '7'\n"
      "memory = { allocated_bytes = 1 }\n"
      "[plan]\n"
      "waits = 80\n"
      "[time]\n"
      "step_ns = 9223372036854775807\n",
      "b.toml");
  ASSERT_TRUE(budget) << budget.error().message();
  EXPECT_EQ(budget->file, "b.toml");
  ASSERT_EQ(budget->stamps.size(), 2u);
  EXPECT_EQ(budget->stamps[0].key, "cost_model_version");
  EXPECT_EQ(budget->stamps[0].text, "7");
  EXPECT_EQ(budget->stamps[1].text, "abc");
  EXPECT_EQ(budget->stamps[1].line, 1u);
  ASSERT_EQ(budget->limits.size(), 3u);
  EXPECT_EQ(budget->limits[0].measure.key, "memory.allocated_bytes");
  EXPECT_EQ(budget->limits[0].line, 3u);
  EXPECT_EQ(budget->limits[1].measure.key, "plan.waits");
  EXPECT_EQ(budget->limits[1].line, 5u);
  EXPECT_EQ(budget->limits[2].most, Figure(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(budget->limits[2].line, 7u);
}

TEST(ParseBudget, WordsMeanWholeBytesAndNanosecondsExactly) {
  EXPECT_EQ(limit_of("memory", "peak_bytes = '48 GiB'"), 51'539'607'552);  // 48 * 2^30
  EXPECT_EQ(limit_of("memory", "peak_bytes = '1.5 KiB'"), 1536);           // 1.5 * 1024
  EXPECT_EQ(limit_of("memory", "peak_bytes = '80GB'"), 80'000'000'000);
  EXPECT_EQ(limit_of("memory.peak_categories", "logits_bytes = '0 B'"), 0);
  EXPECT_EQ(limit_of("traffic", "total_bytes = '2.000001 MB'"), 2'000'001);
  EXPECT_EQ(limit_of("traffic", "all_reduce_bytes = '8388607.5 TiB'"),
            9'223'371'487'098'961'920);  // (2^24 - 1) * 2^39
  EXPECT_EQ(limit_of("time", "step_ns = '820 ms'"), 820'000'000);
  EXPECT_EQ(limit_of("time", "step_ns = '0.820000001 s'"), 820'000'001);
  EXPECT_EQ(limit_of("time", "exposed_communication_ns = '1.25 us'"), 1250);
}

TEST(ParseBudget, OtherTextIsRefusedWithItsLine) {
  for (const char* text : {"48 GIB", "48  GiB", "GiB", "-1 GiB", "1e3 MB", "48", "", "1.2.3 GB",
                           "0.3 KiB", "0.5 B", "8388608 TiB", "99999999999999999999 B", "5 ms"})
    EXPECT_EQ(
        error_of("[memory]\n\nallocated_bytes = '" + std::string(text) + "'\n"),
        "b.toml:3: memory.allocated_bytes is \"" + std::string(text) +
            "\"; expected an integer from 0 to 2^63 - 1 in bytes, or text such as \"48 GiB\"");
  EXPECT_EQ(error_of("[time]\nstep_ns = '5 MiB'\n"),
            "b.toml:2: time.step_ns is \"5 MiB\"; expected an integer from 0 to 2^63 - 1 in "
            "nanoseconds, or text such as \"820 ms\"");
  EXPECT_EQ(error_of("[plan]\nops = '5 B'\n"),
            "b.toml:2: plan.ops is \"5 B\"; expected an integer from 0 to 2^63 - 1");
}

TEST(ParseBudget, WrongValuesAreRefusedWithTheirLine) {
  EXPECT_EQ(error_of("[plan]\nwaits = -1\n"),
            "b.toml:2: plan.waits is -1; expected an integer from 0 to 2^63 - 1");
  EXPECT_EQ(error_of("[plan]\nwaits = 1.0\n"),
            "b.toml:2: plan.waits is 1; expected an integer from 0 to 2^63 - 1");
  EXPECT_EQ(error_of("[plan]\nwaits = [1]\n"),
            "b.toml:2: plan.waits is of another type; expected an integer from 0 to 2^63 - 1");
  EXPECT_THAT(error_of("[plan]\nwaits = 9223372036854775808\n"),
              testing::StartsWith("b.toml:2: not TOML: "));
  EXPECT_EQ(error_of("cost_model_version = 1\n[plan]\nwaits = 1\n"),
            "b.toml:1: cost_model_version must be text in quotes, not empty");
}

TEST(ParseBudget, UnknownKeysNameTheClosest) {
  EXPECT_EQ(error_of("[memory]\nalocated_bytes = 1\n"),
            "b.toml:2: unknown key \"memory.alocated_bytes\"; the closest is "
            "\"memory.allocated_bytes\"");
  EXPECT_EQ(error_of("[memory.peak_categories]\nactivations_bytes = 1\n"),
            "b.toml:2: unknown key \"memory.peak_categories.activations_bytes\"; the closest is "
            "\"memory.peak_categories.activation_bytes\"");
  EXPECT_THAT(error_of("[classes.stage_0]\nidle = 1\n"),
              testing::StartsWith("b.toml:2: unknown key \"classes.stage_0.idle\""));
  EXPECT_THAT(error_of("[classes]\nidle_ns = 1\n"),
              testing::StartsWith("b.toml:2: unknown key \"classes.idle_ns\""));
  EXPECT_EQ(error_of("plan_hsh = 'x'\n"),
            "b.toml:1: unknown key \"plan_hsh\"; the closest is \"plan_hash\"");
}

TEST(ParseBudget, LimitsHaveSidesAndTolerances) {
  const auto budget = parse_budget(
      "[memory]\n"
      "peak_bytes = { most = '2 KiB', least = 1000 }\n"
      "[time]\n"
      "step_ns = { expected = '1 us', tolerance = '2.5 %' }\n"
      "mfu = '45 %'\n"
      "tflops_per_gpu = { worse_by = 3.5 }\n"
      "[loss]\n"
      "100 = { most = 3.5, worse_by = '1%' }\n"
      "20 = 4\n",
      "b.toml");
  ASSERT_TRUE(budget) << budget.error().message();
  ASSERT_EQ(budget->limits.size(), 6u);
  const Limit& peak = budget->limits[0];
  EXPECT_EQ(peak.most, Figure(std::int64_t{2048}));
  EXPECT_EQ(peak.least, Figure(std::int64_t{1000}));
  EXPECT_EQ(peak.line, 2u);
  const Limit& step = budget->limits[1];
  EXPECT_EQ(step.expected, Figure(std::int64_t{1000}));
  EXPECT_DOUBLE_EQ(step.tolerance->share.value(), 0.025);
  const Limit& mfu = budget->limits[2];  // what should be large has a least value
  EXPECT_EQ(mfu.least, Figure(0.45));
  EXPECT_FALSE(mfu.most);
  EXPECT_EQ(budget->limits[3].worse_by->amount, Figure(3.5));
  EXPECT_EQ(budget->limits[4].measure.key, "loss.100");
  EXPECT_EQ(budget->limits[4].most, Figure(3.5));
  EXPECT_DOUBLE_EQ(budget->limits[4].worse_by->share.value(), 0.01);
  EXPECT_EQ(budget->limits[5].measure.key, "loss.20");
}

TEST(ParseBudget, SidesThatContradictEachOtherAreRefused) {
  EXPECT_EQ(error_of("[time]\nstep_ns = { expected = 5, most = 6 }\n"),
            "b.toml:2: time.step_ns.expected contradicts most and least; give one or the other");
  EXPECT_EQ(error_of("[time]\nstep_ns = { most = 5, tolerance = '1 %' }\n"),
            "b.toml:2: time.step_ns.tolerance needs expected: a tolerance around what");
  EXPECT_EQ(error_of("[time]\nstep_ns = { most = 5, least = 6 }\n"),
            "b.toml:2: time.step_ns.least is 6 ns, more than most: nothing passes");
  EXPECT_EQ(error_of("[time]\nstep_ns = { worse_by = '-2 %' }\n"),
            "b.toml:2: time.step_ns.worse_by is \"-2 %\"; expected a part such as \"2 %\", or an "
            "amount: an integer from 0 to 2^63 - 1 in nanoseconds, or text such as \"820 ms\"");
  EXPECT_EQ(error_of("[time]\nmfu = 45\n"),
            "b.toml:2: time.mfu is 45; expected a number from 0 to 1, or text such as \"45 %\"");
  EXPECT_EQ(error_of("[time]\nmfu = nan\n"),
            "b.toml:2: time.mfu is nan; expected a number from 0 to 1, or text such as \"45 %\"");
  EXPECT_EQ(error_of("[loss]\nlast = 3\n"),
            "b.toml:2: loss.last is not named by a step: expected a whole number, such as 100");
  EXPECT_EQ(error_of("[time]\nstep_ns = { mots = 5 }\n"),
            "b.toml:2: unknown key \"time.step_ns.mots\"; the closest is \"time.step_ns.most\"");
}

TEST(ParseBudget, StampsOfNumbersAreNumbers) {
  const auto budget = parse_budget("gpus = 64\nmodel = 'm'\n[plan]\nops = 1\n", "b.toml");
  ASSERT_TRUE(budget) << budget.error().message();
  EXPECT_EQ(budget->stamps[1].text, "64");
  EXPECT_THAT(error_of("gpus = 'many'\n[plan]\nops = 1\n"),
              testing::StartsWith("b.toml:1: gpus must be an integer"));
}

TEST(ParseBudget, ABudgetThatCannotFailIsRefused) {
  for (const char* text : {"", "[memory]\n", "plan_hash = 'x'\n"})
    EXPECT_EQ(error_of(text),
              "b.toml: holds no limit; expected one at least, such as allocated_bytes in [memory]");
}

TEST(LoadBudget, ReadsTheFileThatErrorsName) {
  const test::ScratchFolder folder;
  const std::string file = (folder / "b.toml").string();
  EXPECT_EQ(load_budget(file).error().message(),
            file + ": cannot be opened: No such file or directory");
  test::write_file(file, "[plan]\nops = 1\nops = 2\n");
  EXPECT_THAT(load_budget(file).error().message(), testing::StartsWith(file + ":3: not TOML: "));
  test::write_file(file, "[plan]\nops = 1\n");
  EXPECT_EQ(load_budget(file)->file, file);
}

TEST(ParseBudget, NamesAllMistakesAtOnce) {
  const auto budget = parse_budget(
      "gpsu = 8\n[time]\nstep_ns = '5 MiB'\nmfu = { expected = 2, tolerance = '1 %' }\n", "b.toml");
  ASSERT_FALSE(budget);
  EXPECT_THAT(budget.error().message(), testing::HasSubstr("b.toml:1: unknown key \"gpsu\""));
  ASSERT_EQ(budget.error().also.size(), 2u);  // the tolerance is right: only what it is of is not
  EXPECT_THAT(budget.error().also[0].message(), testing::HasSubstr("b.toml:3: time.step_ns"));
  EXPECT_THAT(budget.error().also[1].message(), testing::HasSubstr("b.toml:4: time.mfu.expected"));
}

}  // namespace
}  // namespace mfsdp
