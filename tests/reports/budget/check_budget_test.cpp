// Every measure with a run that passes, fails, is better, and, if it is measured, has too few
// samples.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/budget/budget.hpp"
#include "reports/record/result_json.hpp"
#include "reports/record/step_figures.hpp"
#include "tests/support/gpu_steps.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using test::measured_run;
using test::sample_run;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;

Budget budget_of(const std::string& text) {
  const auto budget = parse_budget(text, "b.toml");
  EXPECT_TRUE(budget) << (budget ? "" : budget.error().message()) << text;
  return budget ? *budget : Budget{};
}

BudgetReport check(const Budget& budget, const RunResult& run) {
  return check_budget(budget, {&run, 1});
}

bool passes_under(BudgetReport report, const BudgetPolicy& policy) {
  report.policy = policy;
  return passes(report);
}

/// The verdict on a budget of one limit: "memory.peak_bytes = ..." in its table.
Verdict verdict_on(const Measure& measure, const std::string& value, const RunResult& run) {
  const BudgetReport report =
      check(budget_of("[" + measure.table() + "]\n" + measure.name() + " = " + value + "\n"), run);
  EXPECT_EQ(report.rows.size(), 1U);
  return report.rows.at(0).verdict;
}

/// The figure moved by a small step to the worse or the better side, as TOML takes it.
std::string moved(const Measure& measure, const Figure& value, bool worse) {
  const bool up = worse == (measure.better == Better::lower);
  if (const auto* whole = std::get_if<std::int64_t>(&value))
    return std::to_string(*whole + (up ? 1 : -1));
  return std::to_string(std::get<double>(value) * (up ? 1.01 : 0.99));
}

TEST(CheckBudget, EveryMeasureOfASimulatedRunHasEachVerdict) {
  PredictedRun simulated = sample_run();
  simulated.time.idle = Nanos(100);
  simulated.memory.cached = {.reserved = Bytes(1500), .device = Bytes(1700)};
  const RunResult run(simulated);
  ASSERT_EQ(measures().size(), 34U);
  for (const Measure& measure : measures()) {
    SCOPED_TRACE(measure.key);
    const auto value = measure.read(run);
    ASSERT_TRUE(value);
    const std::string exact = exact_text(*value);
    EXPECT_EQ(verdict_on(measure, exact, run), Verdict::pass);
    EXPECT_EQ(verdict_on(measure, "{ expected = " + exact + " }", run), Verdict::pass);
    // A limit on the better side of the value is broken; one on the worse side is not.
    EXPECT_EQ(verdict_on(measure, moved(measure, *value, false), run), Verdict::fail);
    EXPECT_EQ(verdict_on(measure, moved(measure, *value, true), run), Verdict::pass);
    EXPECT_EQ(verdict_on(measure, "{ expected = " + moved(measure, *value, true) + " }", run),
              Verdict::improved);
    EXPECT_EQ(verdict_on(measure, "{ expected = " + moved(measure, *value, false) + " }", run),
              Verdict::fail);
  }
}

/// A measured run whose steps are those of a GPU; loss and norm fall.
MeasuredRun gpu_run(const std::string& program, std::size_t index, double slower = 1) {
  MeasuredRun run = test::measured_run();
  const auto series = test::gpu_steps(program).at(index);
  for (std::size_t i = 0; i < series.size(); ++i) {
    StepResult step;
    step.step = static_cast<std::int64_t>(i) + 1;
    step.duration = Nanos(std::llround(series[i] * slower));
    step.loss = 10 - 0.01 * static_cast<double>(i);
    step.grad_norm = 1;
    run.steps.push_back(step);
  }
  run.evaluations.push_back({.step = 150, .loss = 8.5, .tokens = 100});
  run.time.step = Nanos(64'700'000);
  run.time.median_step = Nanos(64'500'000);
  run.time.exposed_communication = Nanos(2'000'000);
  return run;
}

/// Timed measures of a measured run, held against fixed values and against a baseline.
TEST(CheckBudget, EveryMeasureOfStepsHasEachVerdict) {
  const RunResult a(gpu_run("a", 0));
  const RunResult same(gpu_run("a", 1));
  const RunResult b(gpu_run("b", 0));
  const RunResult noisy(gpu_run("noisy", 0));
  const RunResult slower_noise(gpu_run("noisy", 1, 1.03));
  const std::vector<std::string> keys{"time.median_step_ns", "time.step_ns",
                                      "time.tokens_per_second_per_gpu", "time.tflops_per_gpu",
                                      "time.mfu"};
  for (const std::string& key : keys) {
    SCOPED_TRACE(key);
    const Measure& measure = *find_measure(key);
    const Budget budget = budget_of("[time]\n" + measure.name() + " = { worse_by = \"2 %\" }\n");
    const auto against = [&](const RunResult& run, const RunResult& baseline) {
      const BudgetReport report =
          check_budget(budget, {&run, 1}, {&baseline, 1}, {.by_steps = true});
      EXPECT_GE(report.rows.at(0).samples, kFewestSamples);
      EXPECT_TRUE(report.rows.at(0).of_steps);
      return report.rows.at(0).verdict;
    };
    EXPECT_EQ(against(same, a), Verdict::pass);
    EXPECT_EQ(against(b, a), Verdict::fail);  // a block more: 5 % slower
    EXPECT_EQ(against(a, b), Verdict::improved);
    EXPECT_EQ(against(slower_noise, noisy), Verdict::inconclusive);

    // Fixed values: what program a takes, in the measure's unit, 3 % to either side.
    const double typical = measure.key == "time.step_ns" ? real_of(a.time.median_step.value)
                                                         : real_of(*measure.read(a));
    const auto fixed = [&](double factor, const RunResult& run) {
      const bool whole = measure.unit == MeasureUnit::nanoseconds;
      const std::string text =
          whole ? std::to_string(std::llround(typical * factor)) : std::to_string(typical * factor);
      return verdict_on(measure, "{ expected = " + text + ", tolerance = \"3 %\" }", run);
    };
    const bool lower = measure.better == Better::lower;
    EXPECT_EQ(fixed(1, a), Verdict::pass);
    EXPECT_EQ(fixed(lower ? 0.9 : 1.1, a), Verdict::fail);
    EXPECT_EQ(fixed(lower ? 1.1 : 0.9, a), Verdict::improved);
    // Its median is 65.5 ms, the limit 66.4, and its blocks leave 64.1 to 67.8 possible.
    EXPECT_EQ(fixed(1, noisy), Verdict::inconclusive);
  }
}

TEST(CheckBudget, RatesFollowFromTheStep) {
  MeasuredRun run = test::measured_run();
  run.steps.clear();
  for (std::int64_t number = 1; number <= 200; ++number) {
    StepResult step;
    step.step = number;
    step.duration = Nanos(number % 2 == 0 ? 10'000'000 : 30'000'000);
    run.steps.push_back(step);
  }
  set_step_figures(run, std::nullopt);
  // Among steps 6 to 200, 98 take 10 ms and 97 take 30. Blocks of ten have a mean of 20 ms each.
  // The check's figure is the median step nevertheless.
  ASSERT_EQ(run.time.median_step, Nanos(10'000'000));
  const Budget budget = budget_of("[time]\ntokens_per_second_per_gpu = 1\nmedian_step_ns = 1\n");
  const RunResult result(run);
  for (const BudgetRow& row : check_budget(budget, {&result, 1}).rows) {
    ASSERT_TRUE(row.value);
    EXPECT_NEAR(real_of(*row.value), real_of(*row.limit.measure.read(result)),
                1e-6 * real_of(*row.value))
        << row.limit.measure.key;
  }
}

/// Runs of one program differ by more than blocks of one run do.
TEST(CheckBudget, OneMeasuredRunAgainstAnotherIsInconclusive) {
  const Budget budget = budget_of("[time]\nstep_ns = { worse_by = \"2 %\" }\n");
  std::vector<RunResult> a;
  std::vector<RunResult> b;
  for (std::size_t i = 0; i < kFewestSamples; ++i) {
    a.emplace_back(gpu_run("a", i));
    b.emplace_back(gpu_run("b", i));
  }
  const BudgetReport one = check_budget(budget, {b.data(), 1}, {a.data(), 1});
  EXPECT_EQ(one.rows[0].verdict, Verdict::inconclusive);
  EXPECT_THAT(one.rows[0].why, testing::StartsWith("1 run against 1: runs of one program differ"));
  EXPECT_EQ(check_budget(budget, b, {a.data(), 4}).rows[0].verdict, Verdict::inconclusive);
  const BudgetReport five = check_budget(budget, b, a);
  EXPECT_EQ(five.rows[0].verdict, Verdict::fail);
  EXPECT_EQ(five.rows[0].samples, 5U);
  EXPECT_THAT(verdict_text(five.rows[0]), EndsWith("5 and 5 runs"));
  EXPECT_EQ(check_budget(budget, a, b).rows[0].verdict, Verdict::improved);
}

TEST(CheckBudget, ARunThatDidNotEndIsNotComparable) {
  const Budget budget = budget_of("[memory]\nallocated_bytes = \"1 GiB\"\n");
  const Budget relative = budget_of("[memory]\nallocated_bytes = { worse_by = 0 }\n");
  const RunResult complete(gpu_run("a", 0));
  MeasuredRun run = gpu_run("a", 0);
  run.memory.allocated = Bytes(0);
  run.status = RunStatus::running;
  EXPECT_EQ(check(budget, RunResult(run)).rows[0].why, "the run still goes on, or was killed");
  EXPECT_FALSE(passes_under(check(budget, RunResult(run)), {}));
  const RunResult running(run);
  const BudgetReport against = check_budget(relative, {&complete, 1}, {&running, 1});
  EXPECT_EQ(against.rows[0].verdict, Verdict::not_comparable);
  EXPECT_EQ(against.rows[0].why, "the baseline still goes on, or was killed");
  run.status = RunStatus::failed;
  EXPECT_EQ(check(budget, RunResult(run)).rows[0].why, "the run failed");
  run.status = RunStatus::interrupted;  // it ended in order, with results
  EXPECT_EQ(check(budget, RunResult(run)).rows[0].verdict, Verdict::pass);
}

TEST(CheckBudget, OneMeasuredFigureIsTooLittle) {
  const RunResult run(gpu_run("a", 0));
  // No step has a time of its own for these: a run gives one figure, five runs five samples.
  for (const std::string key :
       {"time.exposed_communication_ns", "time.compute_ns", "time.communication_ns", "time.idle_ns",
        "time.contention_ns", "time.overlap_fraction"}) {
    SCOPED_TRACE(key);
    const Measure& measure = *find_measure(key);
    const bool lower = measure.better == Better::lower;
    const std::string bad = lower ? "1" : "1.0";
    EXPECT_EQ(verdict_on(measure, bad, run), Verdict::inconclusive);
    const std::vector<RunResult> five(5, run);
    const auto of_five = [&](const std::string& value) {
      return check_budget(budget_of("[time]\n" + measure.name() + " = " + value + "\n"), five)
          .rows.at(0)
          .verdict;
    };
    EXPECT_EQ(of_five(bad), Verdict::fail);
    EXPECT_EQ(of_five(lower ? "5000000" : "0.5"), Verdict::pass);
    EXPECT_EQ(of_five(lower ? "{ expected = 5000000 }" : "{ expected = 0.5 }"), Verdict::improved);
  }
}

TEST(CheckBudget, LossesAndNormsAreComparedAsTheyArePrinted) {
  const RunResult run(gpu_run("a", 0));
  const auto verdict = [&](const std::string& limit) {
    return check(budget_of(limit), run).rows.at(0).verdict;
  };
  EXPECT_EQ(verdict("[loss]\n101 = 9.0\n"), Verdict::pass);  // 10 - 0.01 * 100
  EXPECT_EQ(verdict("[loss]\n101 = 8.99\n"), Verdict::fail);
  EXPECT_EQ(verdict("[loss]\n101 = { expected = 9.2, tolerance = 0.1 }\n"), Verdict::improved);
  EXPECT_EQ(verdict("[loss]\n101 = { expected = 9.05, tolerance = \"1 %\" }\n"), Verdict::pass);
  EXPECT_EQ(verdict("[grad_norm]\n1 = 1\n"), Verdict::pass);
  EXPECT_EQ(verdict("[grad_norm]\n1 = 0.5\n"), Verdict::fail);
  EXPECT_EQ(verdict("[grad_norm]\n1 = { expected = 2 }\n"), Verdict::improved);
  EXPECT_EQ(verdict("[evaluation_loss]\n150 = 8.5\n"), Verdict::pass);
  EXPECT_EQ(verdict("[evaluation_loss]\n150 = 8.4\n"), Verdict::fail);
  EXPECT_EQ(verdict("[evaluation_loss]\n150 = { expected = 9 }\n"), Verdict::improved);
  const BudgetReport missing = check(budget_of("[loss]\n999 = 9.0\n"), run);
  EXPECT_EQ(missing.rows.at(0).verdict, Verdict::not_comparable);
  EXPECT_EQ(missing.rows.at(0).why, "the run does not have this figure");
  EXPECT_FALSE(passes_under(missing, {}));
}

TEST(CheckBudget, DifferencesFromABaselineAreExactWhereNothingVaries) {
  PredictedRun run = sample_run();
  const RunResult before(run);
  run.memory.peak += Bytes(1);
  run.time.step -= Nanos(10);
  const RunResult after(run);
  const Budget budget = budget_of(
      "[memory]\npeak_bytes = { worse_by = 0 }\nallocated_bytes = { worse_by = \"1 B\" }\n"
      "[time]\nstep_ns = { worse_by = \"1 %\" }\n");
  const BudgetReport report = check_budget(budget, {&after, 1}, {&before, 1});
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].verdict, Verdict::fail);
  EXPECT_EQ(verdict_text(report.rows[0]), "fail: 1 B (1.8 %) over");
  EXPECT_EQ(bound_text(report.rows[0]), "baseline + 0 B");
  EXPECT_EQ(report.rows[1].verdict, Verdict::pass);
  EXPECT_EQ(report.rows[2].verdict, Verdict::pass);  // 1 % better, not more
  EXPECT_EQ(
      check_budget(budget_of("[time]\nstep_ns = { worse_by = 0 }\n"), {&after, 1}, {&before, 1})
          .rows[0]
          .verdict,
      Verdict::improved);
  const BudgetReport alone = check(budget, after);
  EXPECT_EQ(alone.count(Verdict::not_comparable), 3U);
  EXPECT_EQ(alone.rows[0].why, "no baseline was named");
}

TEST(CheckBudget, ABaselineOfAnotherModelIsNotComparable) {
  PredictedRun other = sample_run();
  other.cluster.gpus = 8;
  const RunResult before(other);
  const RunResult now(sample_run());
  const RunResult measured(test::measured_run());
  const Budget budget = budget_of("[memory]\npeak_bytes = { worse_by = 0 }\n");
  const BudgetReport report = check_budget(budget, {&now, 1}, {&before, 1});
  EXPECT_EQ(report.verdict(), Verdict::not_comparable);
  EXPECT_THAT(report.notes, testing::Contains("baseline: GPUs 8, now 64: nothing is comparable"));
  // Simulated and measured are different sources.
  EXPECT_EQ(check_budget(budget, {&measured, 1}, {&now, 1}).verdict(), Verdict::not_comparable);
}

// ---- budgets written from a run
// ------------------------------------------------------------------

TEST(CheckBudget, ARunKeepsItsOwnBudgetAndNothingLarger) {
  const RunResult run(sample_run());
  const Budget exact = budget_of(budget_text(run));
  // 2 of memory, a limit for each category, 2 of time, 4 of traffic, 3 of the plan.
  ASSERT_EQ(exact.limits.size(), 2 + Names<Category>::values.size() + 2 + 4 + 3);
  const BudgetReport kept = check(exact, run);
  EXPECT_EQ(kept.verdict(), Verdict::pass);
  EXPECT_THAT(kept.notes, IsEmpty());
  EXPECT_THAT(failure_lines(kept), IsEmpty());
  for (std::size_t i = 0; i < exact.limits.size(); ++i) {
    Budget tight = exact;
    tight.limits[i].most = std::get<std::int64_t>(*tight.limits[i].most) - 1;
    const BudgetReport report = check(tight, run);
    EXPECT_FALSE(passes_under(report, {})) << tight.limits[i].measure.key;
    EXPECT_EQ(failure_lines(report).size(), 1U);
  }
}

/// Each class has limits of memory on the device and on the host, and of idle time: the bubble is
/// part of it.
TEST(CheckBudget, ClassesOfRanksHaveLimits) {
  PredictedRun job = sample_run();
  job.classes.resize(3);
  for (std::size_t c = 0; c < 2; ++c) {
    const auto stage = static_cast<std::int64_t>(c);
    job.classes[c].role = fmt::format("stage_{}", c);
    job.classes[c].allocated = Bytes(70 + stage);
    job.classes[c].host = Bytes(7);
    job.classes[c].idle = Nanos(5);
  }
  job.classes[2].role = "no key of TOML";
  const RunResult run(job);
  const std::string text = budget_text(run);
  EXPECT_THAT(text, testing::HasSubstr("\n[classes.stage_0]\nallocated_bytes = 70\nhost_bytes = 7\n"
                                       "idle_ns = 5\n\n[classes.stage_1]\n"));
  EXPECT_EQ(check(budget_of(text), run).verdict(), Verdict::pass);
  const Bytes others = job.traffic.all_gather + job.traffic.reduce_scatter + job.traffic.all_reduce;
  const Budget all = budget_of(fmt::format("[traffic]\ntotal_bytes = {}\n", others.value));
  EXPECT_EQ(check(all, RunResult(job)).verdict(), Verdict::pass);
  job.classes[1].sends = Bytes(1);
  EXPECT_EQ(check(all, RunResult(job)).verdict(), Verdict::fail);
  job.classes[1].sends = Bytes(0);
  job.classes[0].idle = Nanos(6);
  const BudgetReport slower = check(budget_of(text), RunResult(job));
  EXPECT_EQ(slower.count(Verdict::fail), 1U);
  ASSERT_EQ(failure_lines(slower).size(), 1U);
  EXPECT_THAT(failure_lines(slower)[0],
              testing::HasSubstr("Idle time of stage_0 is 6 ns, limit 5: 1 ns (20.0 %) over"));
  job.classes.pop_back();
  job.classes.pop_back();
  EXPECT_EQ(check(budget_of(text), RunResult(job)).count(Verdict::not_comparable), 3U);
}

TEST(CheckBudget, GoldenValuesSayWhatImproved) {
  PredictedRun run = sample_run();
  const Budget golden = budget_of(golden_text(RunResult(run), "2 %"));
  EXPECT_EQ(check(golden, RunResult(run)).verdict(), Verdict::pass);
  run.memory.peak -= Bytes(1);
  EXPECT_EQ(check(golden, RunResult(run)).verdict(), Verdict::improved);
  EXPECT_TRUE(passes_under(check(golden, RunResult(run)), {.strict = true}));
  run.plan.waits += 1;
  EXPECT_EQ(check(golden, RunResult(run)).verdict(), Verdict::fail);

  const RunResult measured(gpu_run("a", 0));
  const std::string text = golden_text(measured, "2 %");
  // The check's own figure, not the one in the run.
  const Nanos step = *median_step(measured.measured()->steps);
  EXPECT_THAT(text, testing::HasSubstr(fmt::format(
                        "median_step_ns = {{ expected = {}, tolerance = \"2 %\" }}", step.value)));
  EXPECT_THAT(text, testing::HasSubstr("[loss]\n150 = { expected = 8.51, tolerance = \"2 %\" }"));
  // Exposed communication is one figure of a measured run: too little to judge.
  EXPECT_THAT(text, testing::HasSubstr("# Without time.exposed_communication_ns: 1 sample"));
}

/// Whatever is written as golden passes where it was written from, also when nothing may be open.
TEST(CheckBudget, AMeasuredRunPassesItsOwnGoldenValues) {
  for (const std::string program : {"a", "b", "noisy"})
    for (const std::size_t index : {0U, 1U})
      for (const std::string tolerance : {"2 %", "0.1 %", "0 %"}) {
        SCOPED_TRACE(fmt::format("{} {}, {}", program, index, tolerance));
        const RunResult run(gpu_run(program, index));
        const BudgetReport report = check(budget_of(golden_text(run, tolerance)), run);
        EXPECT_EQ(report.verdict(), Verdict::pass);
        EXPECT_TRUE(passes_under(report, {.strict = true}));
      }
  MeasuredRun few = gpu_run("a", 0);
  few.steps.resize(20);  // one block
  EXPECT_THAT(golden_text(RunResult(few), "2 %"),
              testing::HasSubstr("# Without time.median_step_ns: 1 sample, at least 5 are needed"));
}

/// The memory of a run that was killed is unknown: it is not 0, which every limit would let pass.
TEST(CheckBudget, ARunThatHasNotEndedIsNotComparable) {
  MeasuredRun killed = gpu_run("a", 0);
  killed.status = RunStatus::running;
  killed.memory = {};
  killed.time = {};
  forget_unmeasured(killed);
  const Budget budget =
      budget_of("[memory]\nallocated_bytes = \"1 GiB\"\n[time]\nstep_ns = \"1 s\"\n");
  const BudgetReport report = check(budget, RunResult(killed));
  ASSERT_EQ(report.rows.size(), 2U);
  for (const BudgetRow& row : report.rows) EXPECT_EQ(row.verdict, Verdict::not_comparable);
}

// ---- what is not comparable
// ----------------------------------------------------------------------

TEST(CheckBudget, AnotherCostModelLeavesBytesAndCounts) {
  const PredictedRun run = sample_run();
  const Budget exact = budget_of(budget_text(RunResult(run)));
  PredictedRun worse = run;
  worse.cost_model_version = "2";
  worse.time.median_step += Nanos(500);
  const BudgetReport report = check(exact, RunResult(worse));
  EXPECT_THAT(report.notes, ElementsAre(EndsWith("cost model 1, now 2: times are not comparable")));
  for (const BudgetRow& row : report.rows) {
    const bool timed = row.limit.measure.nature == Nature::timed;
    EXPECT_EQ(row.verdict, timed ? Verdict::not_comparable : Verdict::pass)
        << row.limit.measure.key;
  }
  EXPECT_FALSE(passes_under(report, {}));
  EXPECT_TRUE(passes_under(report, {.allow_incomparable = true}));
  EXPECT_THAT(
      failure_lines(report),
      testing::Contains(EndsWith(
          "time.median_step_ns is not comparable: another model, cluster or cost model (cost "
          "model 1, now 2); nor is 1 more")));
  worse.memory.peak += Bytes(1);
  EXPECT_FALSE(passes_under(check(exact, RunResult(worse)), {.allow_incomparable = true}));
}

TEST(CheckBudget, EveryStampButThePlanIsHeld) {
  const Budget exact = budget_of(budget_text(RunResult(sample_run())));
  const auto counts = [&](auto change) {
    PredictedRun run = sample_run();
    change(run);
    return check(exact, RunResult(run)).count(Verdict::not_comparable);
  };
  const std::size_t all = exact.limits.size();
  EXPECT_EQ(counts([](PredictedRun& r) { r.model_name = "other"; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.parameters += 1; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.config.seq_len *= 2; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.cluster.gpu = "h200"; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.cluster.gpus = 8; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.cluster.gpus_per_node = 4; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.engine = "fsdp2"; }), all);
  EXPECT_EQ(counts([](PredictedRun& r) { r.cluster.network = "1 x 100G"; }), 2U);  // times
  EXPECT_EQ(counts([](PredictedRun& r) { r.plan_hash = "f00"; }), 0U);
  MeasuredRun measured = test::measured_run();
  EXPECT_EQ(check(exact, RunResult(measured)).count(Verdict::not_comparable), all);
  PredictedRun other_plan = sample_run();
  other_plan.plan_hash = "f00";
  EXPECT_THAT(check(exact, RunResult(other_plan)).notes,
              ElementsAre(EndsWith(
                  "plan 0123456789abcdef0123456789abcdef, now f00: the plan has changed")));
}

TEST(CheckBudget, AnOlderBudgetWithoutStampsSaysSo) {
  const BudgetReport report =
      check(budget_of("[memory]\npeak_bytes = 55\n"), RunResult(sample_run()));
  EXPECT_TRUE(passes_under(report, {}));
  EXPECT_THAT(report.notes,
              ElementsAre("names no model: whether it is of this one was not checked"));
}

// ---- output
// --------------------------------------------------------------------------------------

/// Three limits, of which one failed and one is not comparable.
BudgetReport sample_report() {
  const auto budget = parse_budget(
      "model = 'llama3_8b'\ncost_model_version = '0'\n[memory]\nallocated_bytes = 100\n"
      "peak_bytes = 55\n[time]\nstep_ns = 1000\n",
      "ci/b.toml");
  return check(*budget, RunResult(sample_run()));
}

TEST(RenderBudget, TextIsATable) {
  EXPECT_EQ(
      render_budget_text(sample_report()),
      "Budget ci/b.toml: fail (1 fail, 1 not comparable, 1 pass of 3 limits)\n"
      "  line 2: cost model 0, now 1: times are not comparable\n"
      "  line  limit                           allowed       is\n"
      "     4  memory.allocated_bytes    at most 100 B    120 B  fail: 20 B (20.0 %) over\n"
      "     5  memory.peak_bytes          at most 55 B     55 B  pass\n"
      "     7  time.step_ns            at most 1.00 us  1.00 us  not comparable: another model, "
      "cluster or cost model\n");
}

TEST(RenderBudget, SaysWhoWasJudged) {
  BudgetReport report = sample_report();
  report.runs = {{.run_id = "0123456789ab", .name = "new", .source = "simulated"}};
  report.baseline = {{.run_id = "ba5e", .name = "", .source = "simulated"},
                     {.run_id = "ba5f", .name = "", .source = "simulated"}};
  EXPECT_THAT(render_budget_text(report),
              testing::HasSubstr("\n  run 01234567 (new), simulated\n"
                                 "  baselines ba5e, ba5f, simulated\n  line 2: cost"));
  EXPECT_THAT(render_budget_markdown(report),
              testing::HasSubstr("\n- run 01234567 (new), simulated\n"
                                 "- baselines ba5e, ba5f, simulated\n- line 2"));
  const auto json = nlohmann::json::parse(render_budget_json(report, true));
  EXPECT_EQ(json["runs"][0]["run_id"], "0123456789ab");
  EXPECT_EQ(json["runs"][0]["source"], "simulated");
  EXPECT_EQ(json["baseline_runs"].size(), 2U);
  EXPECT_THAT(render_budget_csv(report),
              testing::HasSubstr(",0123456789ab,simulated,ba5e ba5f,simulated\n"));
  report.runs.assign(7, {.run_id = "aa", .name = "", .source = "measured"});
  EXPECT_THAT(render_budget_text(report),
              testing::HasSubstr("  runs aa, aa, aa, aa, aa and 2 more, measured\n"));
}

TEST(RenderBudget, LinesNameFileLineAndBothValues) {
  EXPECT_THAT(failure_lines(sample_report()),
              ElementsAre("ci/b.toml:4: Allocated memory 120 B, limit 100: 20 B (20.0 %) over",
                          "ci/b.toml:7: time.step_ns is not comparable: another model, cluster or "
                          "cost model (cost model 0, now 1)"));
}

/// With its unit; to the last digit where less of them would look the same on both sides.
TEST(RenderBudget, AnExcessIsASentence) {
  MeasuredRun run = measured_run("a");
  run.memory.allocated = Bytes(46'579'330'560);
  run.time.median_step = Nanos(820'000'000);
  run.time.mfu = 0.4;
  run.plan.ops = 9052;
  run.steps = {test::sample_step(100, Nanos(820'000'000), 3.4)};
  const auto sentence = [&](const std::string& text) {
    const BudgetReport report = check(budget_of(text), RunResult(run));
    EXPECT_EQ(report.rows.size(), 1U);
    EXPECT_TRUE(report.rows[0].worst && report.rows[0].value) << text;
    return excess_sentence(report.rows[0]);
  };
  EXPECT_EQ(sentence("[memory]\nallocated_bytes = 34768170496\n"),
            "Allocated memory 43.38 GiB, limit 32.38: 11.00 GiB (34.0 %) over");
  EXPECT_EQ(sentence("[memory]\nallocated_bytes = 46579330559\n"),
            "Allocated memory 46,579,330,560 B, limit 46,579,330,559: 1 B (<0.1 %) over");
  EXPECT_EQ(sentence("[memory]\nallocated_bytes = '900 MiB'\n"),
            "Allocated memory 43.38 GiB, limit 900.00 MiB: 42.50 GiB (4,835.7 %) over");
  EXPECT_EQ(sentence("[plan]\nops = 9000\n"), "Ops 9,052, limit 9,000: 52 (0.6 %) over");
  EXPECT_EQ(sentence("[loss]\n100 = 3.2\n"),
            "Loss at step 100 is 3.4, limit 3.2: 0.2 (6.2 %) over");
}

/// A rank's tokens and the job's are two keys: a budget of before has the first one alone.
TEST(CheckBudget, TokensOfARankAndOfTheJob) {
  PredictedRun run = sample_run();
  run.config.mesh = data_parallel_mesh(1, 8);
  run.config.seq_len = 16;
  run.config.micro_batch = 2;
  run.config.microbatches = 4;
  const std::string text = budget_text(RunResult(run));
  EXPECT_THAT(text, testing::HasSubstr("\ntokens_per_step = 128  # of one rank\n"));  // 16 * 2 * 4
  EXPECT_THAT(text,
              testing::HasSubstr("\nglobal_tokens_per_step = 1024  # of all ranks\n"));  // 8 ranks
  const std::string limit = "[plan]\nops = 10000\n";
  const auto notes = [&](const std::string& stamp) {
    return check(budget_of("model = '" + run.model_name + "'\n" + stamp + "\n" + limit),
                 RunResult(run))
        .notes;
  };
  EXPECT_THAT(notes("tokens_per_step = 128"), IsEmpty());
  EXPECT_THAT(notes("global_tokens_per_step = 1024"), IsEmpty());
  EXPECT_THAT(notes("tokens_per_step = 1024"), ElementsAre(testing::HasSubstr("of a rank")));
  EXPECT_THAT(notes("global_tokens_per_step = 128"),
              ElementsAre(testing::HasSubstr("tokens of all ranks and a step 128, now 1024")));
}

TEST(RenderBudget, MarkdownIsATable) {
  EXPECT_EQ(
      render_budget_markdown(sample_report()),
      "### Budget `ci/b.toml`: fail (1 fail, 1 not comparable, 1 pass of 3 limits)\n"
      "\n"
      "- line 2: cost model 0, now 1: times are not comparable\n"
      "\n"
      "| line | limit | allowed | is | verdict |\n"
      "| ---: | --- | ---: | ---: | --- |\n"
      "| 4 | memory.allocated_bytes | at most 100 B | 120 B | **fail: 20 B (20.0 %) over** |\n"
      "| 5 | memory.peak_bytes | at most 55 B | 55 B | pass |\n"
      "| 7 | time.step_ns | at most 1.00 us | 1.00 us | **not comparable: another model, cluster "
      "or cost model** |\n");
}

TEST(RenderBudget, StatisticsStandBesideTheVerdict) {
  const RunResult a(gpu_run("a", 0));
  const RunResult b(gpu_run("b", 0));
  const BudgetReport report = check_budget(budget_of("[time]\nstep_ns = { worse_by = \"2 %\" }\n"),
                                           {&b, 1}, {&a, 1}, {.by_steps = true});
  EXPECT_THAT(verdict_text(report.rows[0]),
              testing::MatchesRegex("fail: .* \\(3\\.. %\\) over; \\+5\\.. % \\(\\+.* to \\+.*\\), "
                                    "p .*, effect \\+1\\.00, 14 and 14 blocks of steps"));
  const auto json = nlohmann::json::parse(render_budget_json(report, true));
  EXPECT_EQ(json["schema"], "mfsdp.check/1");
  EXPECT_EQ(json["limits"][0]["statistics"]["samples"], 14);
  EXPECT_EQ(json["limits"][0]["statistics"]["effect"], 1.0);
  EXPECT_GT(json["limits"][0]["value"], json["limits"][0]["limit"]);
}

TEST(RenderBudget, JsonIsAKeyOfTheResult) {
  const BudgetReport report = sample_report();
  const RunResult run(sample_run());
  for (const std::string& result : {to_json(run), to_json_line(run) + "\n"}) {
    const std::string text = add_budget(result, report);
    // The earlier bytes are unchanged before the new key.
    const std::string before = result.substr(0, result.find_last_not_of("\n}") + 1);
    EXPECT_EQ(text.substr(0, before.size()), before);
    EXPECT_EQ(std::ranges::count(text, '\n') == 1, std::ranges::count(result, '\n') == 1);
    const auto budget = nlohmann::json::parse(text).at("budget");
    EXPECT_EQ(budget["file"], "ci/b.toml");
    EXPECT_EQ(budget["passes"], false);
    EXPECT_EQ(budget["verdict"], "fail");
    EXPECT_EQ(budget["notes"].size(), 1u);
    EXPECT_EQ(budget["limits"][0], nlohmann::json::parse(
                                       R"({"key": "memory.allocated_bytes", "line": 4, "limit": 100,
                                           "value": 120, "outcome": "exceeded",
                                           "verdict": "fail"})"));
    EXPECT_EQ(budget["limits"][2]["outcome"], "not_comparable");
  }
}

TEST(RenderBudget, CsvHasALineForEachLimit) {
  EXPECT_EQ(render_budget_csv(sample_report()),
            "file,line,key,verdict,value,worst,best,baseline,samples,baseline_samples,why,"
            "runs,source,baseline_runs,baseline_source\n"
            "ci/b.toml,4,memory.allocated_bytes,fail,120,100,,,0,0,,,,,\n"
            "ci/b.toml,5,memory.peak_bytes,pass,55,55,,,0,0,,,,,\n"
            "ci/b.toml,7,time.step_ns,not_comparable,1000,1000,,,0,0,\"another model, cluster or "
            "cost model\",,,,\n");
}

}  // namespace
}  // namespace mfsdp
