// Comma lists from outside: the runs of a sweep are those of single calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "reports/store/store.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;

TEST(SweepRuns, AreThoseOfSingleCalls) {
  const json answer =
      json::parse(test::run_sim("--model llama_tiny,llama_nano --gpus 4,16 "
                                "--micro-batch 1,3 --strategy 1,3 --recompute "
                                "none,full --tokens 1B --price 2 --no-save --output json")
                      .out);
  EXPECT_EQ(answer["schema"], "mfsdp.sweep/1");
  const json& sweep = answer["results"];
  ASSERT_EQ(sweep.size(), 32U);
  test::Sample sample;
  std::size_t i = 0;
  for (const char* model : {"llama_tiny", "llama_nano"})
    for (const int gpus : {4, 16})
      for (const int micro_batch : {1, 3})
        for (const int strategy : {1, 3})
          for (const char* recompute : {"none", "full"}) {
            const std::size_t row = i++;
            if (!sample.takes_next()) continue;
            const json single = json::parse(
                test::run_sim(fmt::format("--model {} --gpus {} --micro-batch {} --strategy {} "
                                          "--recompute {} --tokens 1B --price 2 --no-save "
                                          "--output json",
                                          model, gpus, micro_batch, strategy, recompute))
                    .out);
            for (const auto& [key, value] : single.items())
              // A single call prints more: the job under FSDP2, and changes that would make it fit.
              if (key != "run_id" && key != "created_unix_ns" && key != "other_engines" &&
                  key != "would_fit") {
                EXPECT_EQ(sweep[row][key], value);
              }
          }
}

TEST(SweepRuns, AreStoredWithTheNumbersThatArePrinted) {
  const test::ScratchFolder folder;
  const std::string file = (folder / "runs.sqlite").string();
  const auto run =
      test::run_sim(fmt::format("--model llama3_1b,llama_nano --gpus 2,4,8 --micro-batch 4,1 "
                                "--db '{}' --output jsonl",
                                file));
  EXPECT_EQ(run.status, 0);
  auto store = Store::open(file);
  ASSERT_TRUE(store);
  const auto rows = store->list();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 12U);
  std::size_t before = 0;  // in the order of the rows, too
  for (const StoredRun& row : *rows) {
    const auto stored = store->load(row.id);
    ASSERT_TRUE(stored);
    const std::size_t at = run.out.find(stored->run_id);
    EXPECT_NE(at, std::string::npos);
    EXPECT_GE(at, before);
    before = at;
    EXPECT_NE(run.out.find(fmt::format("\"step_ns\":{}", stored->time.step.value)),
              std::string::npos);
  }
}

TEST(SweepRuns, RequireFitLooksAtEveryRow) {
  const std::string flags = "--no-save --gpus 8,16 --require-fit --output csv --model ";
  EXPECT_EQ(test::run_sim(flags + "llama_nano").status, 0);
  EXPECT_EQ(test::run_sim(flags + "llama3_70b").status, 1);
}

class InterruptedSweep : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Signals, InterruptedSweep, ::testing::Values("INT", "TERM", "HUP"));

/// Ctrl-C, a preempted job, a terminal that is closed. Launchers send a signal more than once.
TEST_P(InterruptedSweep, KeepsWhatIsDone) {
  const test::ScratchFolder folder;
  const std::string file = (folder / "runs.sqlite").string();
  const std::string err = (folder / "err").string();
  // A sweep of seconds, of rows that end soon, interrupted soon after it opened the store.
  const auto run = test::run_sim(
      fmt::format("--model llama3_1b --gpus 8,16,32,64,128,256,512,1024 --micro-batch 1,2,4,8,16 "
                  "--seq-len 1024,2048,4096,8192,16384,32768,65536 --recompute none,selective,full "
                  "--db '{0}' --output jsonl 2>'{1}' & sim=$!; "
                  "until [ -e '{0}' ] || ! kill -0 $sim; do sleep 0.02; done; "
                  "sleep 0.2; kill -{2} $sim; sleep 0.05; kill -{2} $sim; wait $sim",
                  file, err, GetParam()));
  EXPECT_EQ(run.status, 130);
  EXPECT_TRUE(
      test::read_file(err).starts_with("mfsdp-sim: stopping (a second signal ends it at once)\n"))
      << test::read_file(err);
  auto store = Store::open(file);
  ASSERT_TRUE(store);
  const std::size_t stored = store->list()->size();
  EXPECT_EQ(static_cast<std::size_t>(std::count(run.out.begin(), run.out.end(), '\n')), stored);
  EXPECT_LT(stored, 840U);
}

}  // namespace
}  // namespace mfsdp
