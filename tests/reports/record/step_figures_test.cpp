#include "reports/record/step_figures.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

std::vector<StepResult> steps_of(const std::vector<std::int64_t>& durations) {
  std::vector<StepResult> steps;
  for (const std::int64_t duration : durations)
    steps.push_back(
        test::sample_step(static_cast<std::int64_t>(steps.size()) + 1, Nanos(duration), 1));
  return steps;
}

TEST(StepFigures, AShortRunLeavesOutItsFirstStep) {
  EXPECT_EQ(median_step({}), std::nullopt);
  EXPECT_EQ(median_step(steps_of({70})), Nanos(70));
  EXPECT_EQ(median_step(steps_of({900, 70})), Nanos(70));
  EXPECT_EQ(median_step(steps_of({900, 10, 30, 20})), Nanos(20));
}

TEST(StepFigures, TheWarmUpIsLeftOut) {
  // Five steps of warm-up, then the median of 1, 2, 9.
  EXPECT_EQ(median_step(steps_of({900, 900, 900, 900, 900, 1, 9, 2})), Nanos(2));
}

/// One pause moves a mean, and no median.
TEST(StepFigures, OneLongStepDoesNotMoveTheMedian) {
  std::vector<std::int64_t> fifteen(14, 1'000);
  fifteen.push_back(50'000);
  EXPECT_EQ(median_step(steps_of(fifteen)), Nanos(1'000));
  std::vector<std::int64_t> thirty(30, 112);
  thirty[20] = 8'000;
  EXPECT_EQ(median_step(steps_of(thirty)), Nanos(112));
}

TEST(StepFigures, EveryStepAfterTheWarmUpCounts) {
  std::vector<std::int64_t> durations(5, 9'000);  // warm-up
  durations.insert(durations.end(), 10, 100);
  durations.insert(durations.end(), 11, 110);  // 21 in all: the eleventh is 110
  EXPECT_EQ(median_step(steps_of(durations)), Nanos(110));
  durations.pop_back();  // ten of each: the mean of the two in the middle
  EXPECT_EQ(median_step(steps_of(durations)), Nanos(105));
}

TEST(StepFigures, StepsThatNobodyTimedDoNotCount) {
  std::vector<StepResult> steps = steps_of({900, 0, 30});
  steps[1].timed = false;
  EXPECT_EQ(median_step(steps), Nanos(30));
}

TEST(StepFigures, RatesFollowFromTheStep) {
  MeasuredRun run = test::measured_run();
  run.plan.model_flops = 5e9;
  run.steps = steps_of({900, 1'000'000});
  set_step_figures(run, 10.0);
  EXPECT_EQ(run.time.median_step, Nanos(1'000'000));
  EXPECT_EQ(run.time.step, test::measured_run().time.step);  // of the step whose ops are stored
  const auto tokens = static_cast<double>(run.config.tokens_per_step());
  EXPECT_DOUBLE_EQ(run.time.tokens_per_second_per_gpu, tokens * 1000);
  EXPECT_DOUBLE_EQ(run.time.tflops_per_gpu, 5.0);  // 5e9 in a millisecond
  EXPECT_DOUBLE_EQ(run.time.mfu, 0.5);
  set_step_figures(run, std::nullopt);
  EXPECT_TRUE(std::isnan(run.time.mfu));
  EXPECT_TRUE(run.absent.empty());
}

/// Figures that are stored while a run goes on, and remain if it is killed.
TEST(StepFigures, WhatNobodyHasMeasuredIsAbsent) {
  MeasuredRun run = test::measured_run();
  run.memory = {};
  run.time = {};
  run.status = RunStatus::running;
  forget_unmeasured(run);
  for (const ResultFigure figure :
       {ResultFigure::allocated_bytes, ResultFigure::peak_bytes, ResultFigure::fits,
        ResultFigure::categories, ResultFigure::step_ns, ResultFigure::idle_ns,
        ResultFigure::median_step_ns, ResultFigure::tokens_per_second_per_gpu, ResultFigure::mfu})
    EXPECT_TRUE(run.absent.has(figure)) << to_string(figure);
  EXPECT_FALSE(run.absent.has(ResultFigure::all_gather_bytes));
  EXPECT_FALSE(run.absent.has(ResultFigure::plan));
}

TEST(StepFigures, ResultsWithZerosThatEarlierVersionsWroteAreReadSo) {
  MeasuredRun run = test::measured_run();
  run.memory.allocated = Bytes(0);
  const auto read = result_from_json(to_json_line(run), "t");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_TRUE(read->absent.has(ResultFigure::allocated_bytes));
  EXPECT_FALSE(read->absent.has(ResultFigure::step_ns));
}

TEST(StepFigures, AFigureThatALogDoesNotSayTakesNoOtherWithIt) {
  MeasuredRun run;
  run.absent = FigureSet::all();
  run.absent.remove(ResultFigure::mfu);
  forget_unmeasured(run);
  EXPECT_FALSE(run.absent.has(ResultFigure::mfu));
}

}  // namespace
}  // namespace mfsdp
