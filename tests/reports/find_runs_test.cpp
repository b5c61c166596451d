#include "reports/store/find_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::measured_run;
using test::sample_run;
using test::ScratchFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PredictedRun fitting(std::string id, std::string name, double speed, std::int64_t gpus = 64) {
  PredictedRun run = sample_run(std::move(id), 0, 0);
  run.name = std::move(name);
  run.memory.fits = true;
  run.cluster.gpus = gpus;
  run.time.tokens_per_second_per_gpu = speed;
  run.created_unix_ns = 1'000 + static_cast<std::int64_t>(speed);
  return run;
}

/// Rows: 1 aa11 slow, 2 aa22 fast, 3 bb33 on 8 GPUs, 4 cc44 does not fit, 5 dd55 measured.
class FindRuns : public testing::Test {
 protected:
  FindRuns() : store_(std::move(Store::open(folder_ / "s.sqlite").value())) {
    save(fitting("aa11", "slow", 100));
    save(fitting("aa22", "fast", 200));
    save(fitting("bb33", "small", 300, 8));
    PredictedRun large = fitting("cc44", "large", 400);
    large.memory.fits = false;
    large.commit = "0123456789ab";
    save(large);
    MeasuredRun measured = measured_run("dd55", 0);
    measured.name = "small";
    measured.memory.fits = true;
    measured.created_unix_ns = 5'000;
    save(measured);
  }

  void save(const RunResult& run) { ASSERT_TRUE(store_.save(run)); }

  std::string found(const std::string& word, const RunFilter& filter = {},
                    const StoredRun* like = nullptr) {
    const auto run = find_run(store_, word, filter, like);
    return run ? run->run_id : run.error().message();
  }

  std::vector<std::string> listed(const RunFilter& filter) {
    std::vector<std::string> ids;
    const auto runs = store_.list({.filter = filter});
    EXPECT_TRUE(runs) << runs.error().message();
    for (const StoredRun& run : *runs) ids.push_back(run.run_id);
    return ids;
  }

  ScratchFolder folder_;
  Store store_;
};

TEST_F(FindRuns, ByRowIdPrefixAndName) {
  EXPECT_EQ(found("3"), "bb33");
  EXPECT_EQ(found("b"), "bb33");
  EXPECT_EQ(found("aa22"), "aa22");
  EXPECT_EQ(found("large"), "cc44");
  EXPECT_EQ(found("@latest"), "dd55");
}

TEST_F(FindRuns, WhatMaySeveralMeanIsAnErrorThatNamesThem) {
  EXPECT_THAT(found("aa"), AllOf(HasSubstr("'aa'"), HasSubstr("row 1 = aa11 (slow)"),
                                 HasSubstr("row 2 = aa22 (fast)")));
  EXPECT_THAT(found("small"), AllOf(HasSubstr("row 3"), HasSubstr("row 5")));
  EXPECT_EQ(found("small", {.kind = RunKind::measured}), "dd55");
  EXPECT_EQ(found("zz"), "'zz': is the name of no run of the store");
  EXPECT_EQ(found("99"), "'99': names no run of the store");
  EXPECT_THAT(found(""), HasSubstr("expected a run's id"));
}

TEST_F(FindRuns, CommitsAreBeginningsOrPatterns) {
  EXPECT_THAT(listed({.commit = "0123"}), ElementsAre("cc44"));
  EXPECT_THAT(listed({.commit = "0*9ab"}), ElementsAre("cc44"));
  EXPECT_THAT(listed({.commit = "?123456789ab"}), ElementsAre("cc44"));
  EXPECT_THAT(listed({.commit = "123*"}), IsEmpty());
}

/// A wrong guess would let gc remove the wrong run.
TEST_F(FindRuns, AWordThatMeansDifferentRunsInDifferentWaysIsAnError) {
  save(fitting("ee66", "aa22", 100));  // row 6, named as another's run_id
  save(fitting("ff77", "bb", 100));    // row 7, named as another's beginning
  save(fitting("1234ab", "4", 100));   // row 8, named as another's row
  save(fitting("99aa", "99aa", 100));  // row 9: all meanings are one run
  for (const char* word : {"aa22", "bb", "4"}) {
    const std::string message = found(word);
    EXPECT_THAT(message, AllOf(HasSubstr("of several runs: row"),
                               HasSubstr("use row:N, id:BEGINNING or name:TEXT")));
  }
  EXPECT_THAT(found("bb"), AllOf(HasSubstr("row 3 = bb33"), HasSubstr("row 7 = ff77 (bb)")));
  EXPECT_EQ(found("99aa"), "99aa");
  EXPECT_EQ(found("1"), "aa11");  // the row: a beginning of one digit gives way

  EXPECT_EQ(found("name:bb"), "ff77");
  EXPECT_EQ(found("id:bb"), "bb33");
  EXPECT_EQ(found("name:aa22"), "ee66");
  EXPECT_EQ(found("id:aa22"), "aa22");
  EXPECT_EQ(found("row:4"), "cc44");
  EXPECT_EQ(found("name:4"), "1234ab");
  EXPECT_EQ(found("id:1"), "1234ab");
  EXPECT_THAT(found("row:x"), HasSubstr("expected a row such as row:12"));
  EXPECT_THAT(found("name:nobody"), HasSubstr("names no run of the store"));
  EXPECT_THAT(found("id:aa"), HasSubstr("names several runs"));
}

TEST_F(FindRuns, ARowIsNoRowOutsideTheFilter) {
  EXPECT_EQ(found("3", {.gpus = 64}), "'3': names no run of the store with --gpus 64");
}

TEST_F(FindRuns, WhatIsNotThereIsSaidWithTheFilter) {
  EXPECT_EQ(
      found("@latest",
            {.model = "gpt2", .kind = RunKind::measured, .since_ns = 1'790'000'000'000'000'000}),
      "'@latest': names no run of the store with --model 'gpt2', --kind measured, --since "
      "2026-09-21T14:13:20");
  EXPECT_EQ(found("name:none", {.gpus = 3}),
            "'name:none': names no run of the store with --gpus 3");
  EXPECT_EQ(found("none"), "'none': is the name of no run of the store");
}

TEST_F(FindRuns, TheBestIsOfOneGroupAndFits) {
  EXPECT_THAT(found("@best"), AllOf(HasSubstr("several models, clusters and kinds"),
                                    HasSubstr("llama3_8b on 8 x h100, simulated")));
  EXPECT_EQ(found("@best", {.gpus = 64, .kind = RunKind::simulated}), "aa22");  // not cc44
  const StoredRun like = store_.list({.row = 1})->front();
  EXPECT_EQ(found("@best", {}, &like), "aa22");
  EXPECT_THAT(found("@best", {.model = "gpt2"}),
              AllOf(HasSubstr("no such run has a speed"), HasSubstr(" with --model 'gpt2'")));
}

TEST_F(FindRuns, TheFirstNamedRunDecidesWhatTheBestIsLike) {
  const std::array<std::string, 2> words{"@best", "slow"};
  const auto runs = find_runs(store_, words);
  ASSERT_TRUE(runs) << runs.error().message();
  EXPECT_EQ(runs->at(0).run_id, "aa22");
  EXPECT_EQ(runs->at(1).run_id, "aa11");
}

TEST_F(FindRuns, AMarkIsOneRunsOfEachGroup) {
  ASSERT_TRUE(store_.mark(1, "baseline"));
  ASSERT_TRUE(store_.mark(2, "baseline"));  // takes it from row 1, of the same group
  EXPECT_EQ(found("@baseline"), "aa22");
  ASSERT_TRUE(store_.mark(3, "baseline"));
  EXPECT_THAT(found("@baseline"), HasSubstr("narrow by --model"));
  EXPECT_EQ(found("@baseline", {.gpus = 8}), "bb33");
  EXPECT_THAT(store_.list()->at(1).marks, ElementsAre("baseline"));
  EXPECT_TRUE(*store_.unmark(3, "baseline"));
  EXPECT_FALSE(*store_.unmark(3, "baseline"));
  EXPECT_EQ(found("@baseline"), "aa22");
  EXPECT_THAT(found("@golden"), HasSubstr("no such run has that mark"));
  EXPECT_FALSE(store_.mark(77, "baseline"));
}

TEST_F(FindRuns, FiltersHoldTogether) {
  EXPECT_THAT(listed({.name = "s*"}), ElementsAre("aa11", "bb33", "dd55"));
  EXPECT_THAT(listed({.kind = RunKind::measured, .name = "s*"}), ElementsAre("dd55"));
  EXPECT_THAT(listed({.commit = "0123"}), ElementsAre("cc44"));
  EXPECT_THAT(listed({.commit = "123"}), IsEmpty());
  EXPECT_THAT(listed({.cluster = "h1?0", .gpus = 8}), ElementsAre("bb33"));
  EXPECT_THAT(listed({.cluster = "8 x 400G"}), ElementsAre("aa11", "aa22", "bb33", "cc44", "dd55"));
  EXPECT_THAT(listed({.since_ns = 1'200, .until_ns = 1'400}), ElementsAre("aa22", "bb33"));
  EXPECT_THAT(listed({.model = "llama"}), IsEmpty());  // whole names
  EXPECT_THAT(listed({.name = "'; DROP TABLE marks; --"}), IsEmpty());
}

TEST_F(FindRuns, PartsAreLoadedAsAskedFor) {
  MeasuredRun run = measured_run("ee66", 6);
  run.steps = {test::sample_step(1, Nanos(5), 2.0)};
  const auto row = store_.save(run);
  ASSERT_TRUE(row);
  const auto head = store_.load(*row, {.timeline = false, .steps = false, .launches = false});
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->timeline.empty());
  EXPECT_TRUE(head->measured()->steps.empty());
  EXPECT_TRUE(head->measured()->launches.empty());
  EXPECT_EQ(head->time.step, run.time.step);
}

}  // namespace
}  // namespace mfsdp
