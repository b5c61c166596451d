// A run of mfsdp-exec, held against its plan by mfsdp-verify.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "reports/store/store.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::string_view kFourSteps =
    "--model llama_nano --data synthetic --seq-len 16 --steps 4";

std::string run_of(const std::filesystem::path& db, const std::string& run = "latest") {
  return fmt::format("--run '{}:{}'", db.string(), run);
}

/// The message when nothing is judged; one line.
std::string refusal(const std::string& arguments) {
  const test::ToolRun ran = test::run_verify(arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(ran.status, 2) << arguments;
  EXPECT_EQ(std::ranges::count(ran.out, '\n'), 1) << ran.out;
  return ran.out;
}

class ConformanceOf : public testing::TestWithParam<std::string> {};

TEST_P(ConformanceOf, ARunThatEnded) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const test::ToolRun ran =
      test::run_exec(fmt::format("{} {} --db '{}' 2>&1", kFourSteps, GetParam(), db.string()));
  ASSERT_EQ(ran.status, 0) << ran.out;
  const test::ToolRun judged = test::run_verify(run_of(db) + " 2>&1");
  EXPECT_EQ(judged.status, 0) << judged.out;
  EXPECT_THAT(judged.out, EndsWith("No findings.\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Exec, ConformanceOf,
    testing::Values("--world-size 1", "--world-size 2 --chaos 7", "--world-size 4 --chaos 3",
                    "--world-size 4 --outer-dp 2 --global-batch 12 --chaos 1 --poison",
                    "--world-size 2 --strategy no_shard --check-nan",
                    "--world-size 2 --eval-every 1 --eval-batches 9 --eval-data synthetic"));

TEST(Conformance, AnOpThatCameTooEarlyIsFound) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  ASSERT_EQ(
      test::run_exec(fmt::format("{} --world-size 2 --db '{}'", kFourSteps, db.string())).status,
      0);
  auto store = Store::open(db);
  const RunResult ran = store->load(1).value();
  MeasuredRun run;
  static_cast<RunFigures&>(run) = ran;
  static_cast<Measured&>(run) = *ran.measured();
  // The last collective of rank 1 takes 5 ms longer, and nothing waits for it.
  const auto last = std::find_if(run.launches.rbegin(), run.launches.rend(),
                                 [](const OpLaunch& l) { return l.begin < l.end; });
  ASSERT_NE(last, run.launches.rend());
  run.launches.front().end += Nanos(5'000'000'000);
  run.run_id = std::string(32, 'a');
  ASSERT_TRUE(store->save(run));
  const test::ToolRun judged = test::run_verify(run_of(db, run.run_id) + " --output json");
  EXPECT_EQ(judged.status, 1);
  EXPECT_THAT(judged.out, HasSubstr("\"MF805\""));
}

TEST(Conformance, AnEditedPlanIsGivenAlongWithTheRun) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const auto plan = (folder / "plan.json").string();
  const auto other = (folder / "other.json").string();
  ASSERT_EQ(test::run_sim(fmt::format("--model llama_nano --seq-len 16 --gpus 2 --no-save "
                                      "--plan-out '{}'",
                                      other))
                .status,
            0);
  std::string text = test::read_file(other);
  const std::size_t name = text.find("layers.0.qkv");
  ASSERT_NE(name, std::string::npos);
  text.replace(name, 12, "layers.0.own");
  std::ofstream(plan) << text;
  ASSERT_EQ(test::run_exec(
                fmt::format("--plan '{}' --data synthetic --steps 3 --db '{}'", plan, db.string()))
                .status,
            0);
  EXPECT_THAT(refusal(run_of(db)), HasSubstr("name the plan that it followed with --plan\n"));
  EXPECT_THAT(refusal(fmt::format("{} --plan '{}'", run_of(db), other)), HasSubstr("is plan "));
  const test::ToolRun judged =
      test::run_verify(fmt::format("{} --plan '{}' 2>/dev/null", run_of(db), plan));
  EXPECT_EQ(judged.status, 0);
  EXPECT_THAT(judged.out, EndsWith("No findings.\n"));
}

TEST(Conformance, WhatIsNoRecordOfARunIsSaidInALine) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  EXPECT_THAT(refusal(run_of(db)), HasSubstr("runs.sqlite: no such store\n"));
  EXPECT_FALSE(std::filesystem::exists(db));
  ASSERT_TRUE(Store::open(db));
  EXPECT_THAT(refusal(run_of(db)), HasSubstr("holds no runs\n"));
  ASSERT_EQ(test::run_sim(fmt::format("--model llama_nano --gpus 2 --db '{}'", db.string())).status,
            0);
  EXPECT_THAT(refusal(run_of(db)),
              HasSubstr("has no record of launches (tool mfsdp-sim, status complete)"));
  EXPECT_THAT(refusal(run_of(db, std::string(32, '0'))),
              HasSubstr("'00000000000000000000000000000000': names no run of the store\n"));
  for (const char* name : {"", "x.sqlite", "x:", ":latest", "x:latest:"})
    EXPECT_THAT(refusal(fmt::format("--run '{}'", name)), HasSubstr("--run: ")) << name;
  EXPECT_THAT(refusal("--run x:newest"), HasSubstr("x: no such store\n"));
  EXPECT_THAT(refusal(run_of(db, "newest")),
              HasSubstr("'newest': is the name of no run of the store\n"));
  const auto damaged = folder / "damaged.sqlite";
  std::filesystem::copy_file(db, damaged);
  std::filesystem::resize_file(damaged, std::filesystem::file_size(db) / 2);
  EXPECT_THAT(refusal(run_of(damaged)), EndsWith("is damaged: database disk image is malformed\n"));
  std::ofstream(folder / "text") << "This is no database, but long enough to have a header.\n";
  EXPECT_THAT(refusal(run_of(folder / "text")), HasSubstr("is not an mfsdp store"));
}

}  // namespace
}  // namespace mfsdp
