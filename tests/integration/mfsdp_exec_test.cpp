// mfsdp-exec as users run it: what it leaves in the store, and how it ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "reports/record/step_figures.hpp"
#include "reports/store/store.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::string_view kTwoRanks =
    "--model llama_nano --data synthetic --world-size 2 --seq-len 16";

MeasuredRun stored(const std::filesystem::path& path) {
  auto store = Store::open(path);
  EXPECT_TRUE(store) << store.error().message();
  auto run = store->load(1);
  EXPECT_TRUE(run) << run.error().message();
  MeasuredRun measured;
  static_cast<RunFigures&>(measured) = *run;
  static_cast<Measured&>(measured) = *run->measured();
  return measured;
}

TEST(MfsdpExec, StoresEveryStepOfARun) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const test::ToolRun ran = test::run_exec(
      fmt::format("--model llama_nano --world-size 2 --seq-len 16 --data '{}' --lr 3e-3 --steps 30 "
                  "--eval-every 10 --eval-data synthetic --output json --db {}",
                  MFSDP_SOURCE_DIR "/scenarios/texts/jargon.txt", db.string()));
  ASSERT_EQ(ran.status, 0);
  const json printed = json::parse(ran.out);
  const MeasuredRun run = stored(db);
  EXPECT_EQ(run.status, RunStatus::complete);
  EXPECT_EQ(run.plan_hash, printed["plan_hash"].get<std::string>());
  ASSERT_EQ(run.steps.size(), 30U);
  ASSERT_EQ(printed["steps"].size(), 30U);
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(run.steps[i].loss, printed["steps"][i]["loss"].get<double>());
    EXPECT_EQ(run.steps[i].tokens, 32);  // 2 ranks of 16
  }
  EXPECT_LT(*run.steps.back().loss, *run.steps.front().loss);
  ASSERT_EQ(run.evaluations.size(), 3U);
  EXPECT_EQ(run.evaluations.back().step, 30);
  const TimeSummary& time = run.time;
  EXPECT_EQ(time.median_step, median_step(run.steps));
  EXPECT_EQ(time.step, time.compute + time.exposed_communication + time.idle);  // the last one
  EXPECT_GT(time.compute, Nanos(0));
  EXPECT_FALSE(run.timeline.empty());
}

TEST(MfsdpExec, MemoryIsWhatMfsdpSimPredicts) {
  const test::ScratchFolder folder;
  const json predicted = json::parse(
      test::run_sim(
          fmt::format(
              "--model llama_nano --gpus 4 --seq-len 16 --micro-batch 2 --no-save --output json"))
          .out);
  const json measured = json::parse(
      test::run_exec("--model llama_nano --gpus 4 --seq-len 16 --micro-batch 2 --data synthetic "
                     "--steps 3 --no-save --output json")
          .out);
  EXPECT_EQ(measured["plan_hash"], predicted["plan_hash"]);
  for (const auto& [category, bytes] : predicted["memory"]["categories"].items())
    if (category != "runtime") {
      EXPECT_EQ(measured["memory"]["categories"][category], bytes) << category;
    }
  std::int64_t pools = 0;
  for (const json& pool : predicted["plan"]["pools"])
    pools += pool["height_bytes"].get<std::int64_t>();
  EXPECT_EQ(measured["memory"]["allocated_bytes"], pools);
}

/// Losses and norms of steps, as text.
std::string steps_of(const json& run) {
  std::string text;
  for (const json& step : run["steps"])
    text += step["loss"].dump() + " " + step["grad_norm"].dump() + "\n";
  return text;
}

TEST(MfsdpExec, APipelineHasTheLossesOfOneRank) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const std::string pipeline = MFSDP_SOURCE_DIR "/scenarios/pipeline/";
  const std::string how = "--data synthetic --steps 3 --backend cpu --output json";
  const test::ToolRun alone = test::run_exec(
      fmt::format("--model {}model.json --gpus 1 --strategy no_shard --global-batch 4 --seq-len 8 "
                  "--recompute none --no-save {}",
                  pipeline, how));
  ASSERT_EQ(alone.status, 0);
  const test::ToolRun staged =
      test::run_exec(fmt::format("--plan {}1f1b_2x4.json --chaos 3 --poison --check-nan --db {} {}",
                                 pipeline, db.string(), how));
  ASSERT_EQ(staged.status, 0);
  EXPECT_EQ(steps_of(json::parse(staged.out)), steps_of(json::parse(alone.out)));
  const MeasuredRun run = stored(db);
  EXPECT_EQ(run.status, RunStatus::complete);
  EXPECT_EQ(run.steps.size(), 3U);
  // The fullest class has the memory that is predicted for it.
  const json predicted = json::parse(test::run_sim(fmt::format("--plan {}1f1b_2x4.json --no-save "
                                                               "--output json",
                                                               pipeline))
                                         .out);
  for (const auto& [category, bytes] : predicted["memory"]["categories"].items())
    if (category != "runtime") {
      EXPECT_EQ(json::parse(staged.out)["memory"]["categories"][category], bytes) << category;
    }
}

/// A run that is interrupted when the first line of a step has come, stored in `db`.
test::ToolRun interrupted_run(const std::string& flags, const std::filesystem::path& db) {
  const std::string out = db.string() + ".out";
  return test::run_shell(fmt::format(
      "exec 2>&1; '{}' {} {} --db {} >{} & pid=$!; until grep -sq '^step:' {} || ! kill "
      "-0 $pid; do sleep 0.05; done; kill -INT $pid; wait $pid; echo status $?",
      test::kExec.string(), kTwoRanks, flags, db.string(), out, out));
}

/// The resident memory of the process as it is printed, in MiB.
double resident_in(const std::string& output) {
  const auto at = output.find("process: ");
  EXPECT_NE(at, std::string::npos) << output;
  return at == std::string::npos ? 0 : std::stod(output.substr(at + 9));
}

TEST(MfsdpExec, ResidentMemoryIsItsOwnNotItsParents) {
  const test::ScratchFolder folder;
  const auto out = folder / "out";
  const std::string line = fmt::format("exec '{}' {} --steps 1 --no-save > '{}'",
                                       test::kExec.string(), kTwoRanks, out.string());
  ASSERT_EQ(test::run_shell(line).status, 0);
  const double small = resident_in(test::read_file(out));
  // A parent that is larger, and starts the tool itself.
  std::vector<char> large(std::size_t{256} << 20, 'x');
  const pid_t child = test::start_child([&] {
    if (std::freopen(out.c_str(), "w", stdout) == nullptr) return 1;
    ::execl(test::kExec.c_str(), "mfsdp-exec", "--model", "llama_nano", "--data", "synthetic",
            "--world-size", "2", "--seq-len", "16", "--steps", "1", "--no-save", nullptr);
    return 1;
  });
  ASSERT_EQ(test::wait_for(child), 0);
  EXPECT_LT(resident_in(test::read_file(out)), small + 128) << large.back();
}

TEST(MfsdpExec, AnInterruptEndsAfterTheStepAndKeepsWhatWasDone) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const test::ToolRun ran = interrupted_run("--steps 1000000 --log-every 1000000", db);
  EXPECT_THAT(ran.out, HasSubstr("status 130"));
  const MeasuredRun run = stored(db);
  EXPECT_EQ(run.status, RunStatus::interrupted);
  ASSERT_FALSE(run.steps.empty());
  EXPECT_THAT(ran.out, HasSubstr(fmt::format("mfsdp-exec: interrupted after step {} of 1000000\n",
                                             run.steps.size())));
}

/// As a scheduler takes a job's node away: to the process, and to the shell around it.
TEST(MfsdpExec, APreemptedRunSaysSoAtOnceAndSavesThoughToldTwice) {
  const test::ScratchFolder folder;
  const std::string base = folder.path().string();
  const test::ToolRun ran = test::run_shell(fmt::format(
      "exec 2>&1; '{}' {} --steps 1000000 --no-save --save {}/saves >{}/out & pid=$!; "
      "until grep -sq '^step:' {}/out || ! kill -0 $pid; do sleep 0.05; done; "
      "kill -TERM $pid; kill -TERM $pid; sleep 0.05; kill -INT $pid; wait $pid; echo status $?",
      test::kExec.string(), kTwoRanks, base, base, base));
  EXPECT_THAT(ran.out, ::testing::StartsWith("mfsdp-exec: stopping after this step (a second "
                                             "signal ends it at once)\n"));
  EXPECT_THAT(ran.out, HasSubstr("status 130"));
  EXPECT_TRUE(std::filesystem::exists(folder / "saves" / "latest" / "manifest.json"));
}

/// The run hangs.
TEST(MfsdpExec, ASecondSignalAfterASecondEndsIt) {
  const test::ScratchFolder folder;
  const std::string out = (folder / "out").string();
  const test::ToolRun ran = test::run_shell(fmt::format(
      "'{}' {} --steps 1000000 --no-save --fault stop:0:layers.0.adamw:2 --deadline 60 "
      ">{} 2>&1 & pid=$!; until grep -sq '^step:' {} || ! kill -0 $pid; do sleep 0.05; done; "
      "kill -TERM $pid; sleep 1.2; kill -TERM $pid; wait $pid",
      test::kExec.string(), kTwoRanks, out, out));
  EXPECT_EQ(ran.status, 128 + SIGTERM);
}

TEST(MfsdpExec, AnInterruptedRunIsExportedAsFarAsItCame) {
  const test::ScratchFolder folder;
  const auto out = folder / "out";
  const test::ToolRun ran =
      interrupted_run(fmt::format("--steps 1000000 --log-every 1000000 --export {}", out.string()),
                      folder / "runs.sqlite");
  EXPECT_THAT(ran.out, HasSubstr("status 130"));
  const test::ToolRun again = test::run_exec(
      fmt::format("{} --init-from {} --steps 1 --lr 0 --no-save --export {}2 >/dev/null", kTwoRanks,
                  out.string(), out.string()));
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(test::run_shell(fmt::format("diff -r {} {}2", out.string(), out.string())).status, 0);
}

/// The evaluation takes minutes, the test a second.
TEST(MfsdpExec, AnInterruptEndsAnEvaluation) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const test::ToolRun ran =
      interrupted_run("--steps 1 --eval-data synthetic --eval-every 1 --eval-batches 1000000", db);
  EXPECT_THAT(ran.out, HasSubstr("status 130"));
  const MeasuredRun run = stored(db);
  EXPECT_EQ(run.status, RunStatus::interrupted);
  EXPECT_EQ(run.steps.size(), 1U);
  EXPECT_TRUE(run.evaluations.empty());
}

/// 64 hosts and their streams do not find room for stacks of 1 GB.
TEST(MfsdpExec, ThreadsThatDoNotStartEndTheRun) {
#ifdef MFSDP_SANITIZED
  GTEST_SKIP() << "sanitizers take more address space than the test leaves";
#endif
  const test::ToolRun ran =
      test::run_shell(fmt::format("(ulimit -s 1000000 && ulimit -v 8000000; timeout 60 '{}' "
                                  "--no-save --model llama_nano --data synthetic --gpus 64 "
                                  "--steps 1 2>&1 >/dev/null)",
                                  test::kExec.string()));
  EXPECT_EQ(ran.status, 3) << ran.out;
}

TEST(MfsdpExec, AFailedRunKeepsTheStepsBeforeIt) {
  const test::ScratchFolder folder;
  const auto db = folder / "runs.sqlite";
  const test::ToolRun ran = test::run_exec(
      fmt::format("{} --steps 9 --fault fail:1:layers.1.qkv:6 --db {} 2>&1 >/dev/null", kTwoRanks,
                  db.string()));
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(ran.out, "mfsdp-exec: rank 1, layers.1.qkv (compute), step 6: fails, as requested\n");
  const MeasuredRun run = stored(db);
  EXPECT_EQ(run.status, RunStatus::failed);
  EXPECT_EQ(run.steps.size(), 5U);
}

TEST(MfsdpExec, JsonLinesAreStepsAndThenTheRun) {
  const test::ToolRun ran =
      test::run_exec(fmt::format("{} --steps 4 --log-every 2 --output jsonl --no-save", kTwoRanks));
  ASSERT_EQ(ran.status, 0);
  std::istringstream lines(ran.out);
  std::vector<json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line));
  ASSERT_EQ(objects.size(), 4U);
  for (const std::size_t i : {0U, 1U, 2U}) EXPECT_EQ(objects[i]["event"], "step");
  EXPECT_EQ(objects[1]["step"], 2);
  EXPECT_EQ(objects[3]["schema"], "mfsdp.result/1");
  EXPECT_EQ(objects[3]["steps"].size(), 4U);
}

}  // namespace
}  // namespace mfsdp
