#include "reports/compare/compare.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

PredictedRun other_run() {
  PredictedRun run = test::sample_run("run-2");
  run.plan_hash = "f00";
  run.config.prefetch = 3;
  run.memory.peak = Bytes(66);
  run.plan.pools = {{"weights", Bytes(1500), Bytes(1500)}, {"extra", Bytes(8), Bytes(8)}};
  run.timeline[0].name = "layers.9.new";
  run.timeline[0].end += Nanos(50'000);
  return run;
}

const ComparedSection& section_of(const Comparison& comparison, const std::string& title) {
  const auto found = std::ranges::find(comparison.sections, title, &ComparedSection::title);
  if (found == comparison.sections.end()) throw std::runtime_error("no section " + title);
  return *found;
}

const ComparedRow& row_of(const ComparedSection& section, const std::string& name) {
  const auto found = std::ranges::find(section.rows, name, &ComparedRow::name);
  if (found == section.rows.end()) throw std::runtime_error("no row " + name);
  return *found;
}

TEST(CompareRuns, ConfigurationMemoryAndPlan) {
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(other_run())};
  const Comparison comparison = compare_runs(runs);
  const ComparedRow& prefetch = row_of(section_of(comparison, "Configuration"), "prefetch");
  EXPECT_EQ(prefetch.cells[0].text, "1");
  EXPECT_EQ(prefetch.cells[1].text, "3");
  EXPECT_TRUE(prefetch.differs());
  EXPECT_FALSE(row_of(section_of(comparison, "Configuration"), "seq_len").differs());
  const ComparedRow& peak = row_of(section_of(comparison, "Memory"), "peak");
  EXPECT_EQ(peak.cells[1].figure, Figure(std::int64_t{66}));
  const ComparedSection& plan = section_of(comparison, "Plan differences");
  EXPECT_EQ(row_of(plan, "pool weights").cells[1].figure, Figure(std::int64_t{1500}));
  EXPECT_EQ(row_of(plan, "pool scratch").cells[1].text, "-");
  EXPECT_THAT(plan.notes, Contains("run 2: 1 pools vanished: scratch"));
  EXPECT_THAT(plan.notes, Contains("run 2: 1 pools appeared: extra"));
  EXPECT_THAT(plan.notes, Contains("run 2: 1 units appeared: layers.9"));
  EXPECT_THAT(plan.notes, Contains("run 2: 1 ops appeared: layers.9.new"));
}

TEST(CompareRuns, ClassesOfRanksStandByRole) {
  PredictedRun two = test::sample_run();
  two.classes.resize(2);
  two.classes[0].role = "stage_0";
  two.classes[1].role = "stage_1";
  two.classes[1].idle = Nanos(30);
  two.classes[1].host = Bytes(512);
  MeasuredRun one;
  one.classes.resize(1);
  one.classes[0].role = "stage_1";
  one.classes[0].idle = Nanos(40);
  one.classes[0].host = Bytes(512);
  const std::vector<RunResult> runs{RunResult(two), RunResult(one)};
  const Comparison comparison = compare_runs(runs);
  const ComparedSection& section = section_of(comparison, "Classes of ranks");
  const ComparedRow& idle = row_of(section, "stage_1 idle");
  EXPECT_EQ(idle.cells[0].figure, Figure(std::int64_t{30}));
  EXPECT_EQ(idle.cells[1].figure, Figure(std::int64_t{40}));
  EXPECT_EQ(row_of(section, "stage_0 idle").cells[1].text, "-");
  EXPECT_FALSE(row_of(section, "stage_1 host memory").differs());
  const std::vector<RunResult> plain{RunResult(test::sample_run()), RunResult(other_run())};
  EXPECT_TRUE(compare_classes(plain).rows.empty());
}

/// Choices that cannot be set for an engine are shown as absent.
TEST(CompareRuns, ChoicesOfOurEngineAlone) {
  PredictedRun theirs = other_run();
  theirs.engine = "fsdp2";
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(theirs)};
  const Comparison comparison = compare_runs(runs);
  const ComparedSection& section = section_of(comparison, "Configuration");
  EXPECT_EQ(row_of(section, "prefetch").cells[1].text, "-");
  EXPECT_EQ(row_of(section, "reduce_dtype").cells[1].text, "fp32");
}

TEST(CompareRuns, OpsAreSummedByStreamAndKind) {
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(other_run())};
  const Comparison comparison = compare_runs(runs);
  // Three ops of 150 us on each of two streams; the other run's first takes 50 us more.
  const ComparedRow& compute = row_of(section_of(comparison, "Time by stream"), "compute");
  EXPECT_EQ(compute.cells[0].figure, Figure(std::int64_t{450'000}));
  EXPECT_EQ(compute.cells[1].figure, Figure(std::int64_t{500'000}));
  EXPECT_EQ(row_of(section_of(comparison, "Time by kind of op"), "all_gather").cells[1].figure,
            Figure(std::int64_t{450'000}));
}

TEST(CompareRuns, InstancesThatATimelineLeavesOutCount) {
  PredictedRun run = test::sample_run();
  run.timeline = {{.op = OpId(0),
                   .name = "a.b",
                   .stream = "compute",
                   .kind = "gemm",
                   .segment = "middle",
                   .instance = 1,
                   .start = Nanos(0),
                   .end = Nanos(7)}};
  run.omitted = {
      {.segment = "middle", .first = 2, .count = 10, .begin = Nanos(7), .period = Nanos(7)}};
  const std::vector<RunResult> runs{RunResult(run), RunResult(run)};
  EXPECT_EQ(row_of(section_of(compare_runs(runs), "Time by stream"), "compute").cells[0].figure,
            Figure(std::int64_t{77}));
}

TEST(CompareRuns, WithoutTimelinesThatIsSaid) {
  PredictedRun run = other_run();
  run.timeline.clear();
  const std::vector<RunResult> runs{RunResult(run), RunResult(test::sample_run())};
  const Comparison comparison = compare_runs(runs);
  EXPECT_THAT(section_of(comparison, "Plan differences").notes,
              Contains("run 2: units and ops: not stored: no times of single ops"));
  EXPECT_EQ(row_of(section_of(comparison, "Time by stream"), "compute").cells[0].text, "-");
}

TEST(CompareRuns, PredictionAndMeasurementAreLabelled) {
  MeasuredRun measured = test::measured_run("run-3");
  measured.time.median_step = Nanos(1250);
  measured.memory.categories.at(0) = Bytes(2);
  measured.timeline[0].end += Nanos(50'000);
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(measured)};
  const Comparison comparison = compare_runs(runs);
  EXPECT_THAT(comparison.notes, Contains(HasSubstr("simulated and measured")));
  const std::string of = "run 1 (simulated) of run 2 (measured)";
  const ComparedSection& errors = section_of(comparison, "Prediction " + of);
  const ComparedRow& step = row_of(errors, "median step");
  EXPECT_EQ(step.cells[2].figure, Figure(std::int64_t{-250}));
  EXPECT_EQ(step.cells[3].figure, Figure(-0.2));
  EXPECT_EQ(step.cells[3].text, "-20.0 %");
  EXPECT_EQ(row_of(errors, "model weight").cells[2].figure, Figure(std::int64_t{-1}));
  const ComparedRow& gemm = row_of(section_of(comparison, "Prediction by kind, " + of), "gemm");
  EXPECT_EQ(gemm.cells[2].figure, Figure(std::int64_t{-50'000}));
  const ComparedSection& ops = section_of(comparison, "Prediction by op, " + of);
  EXPECT_EQ(row_of(ops, "layers.0.op").cells[2].figure, Figure(std::int64_t{-50'000}));
  const std::string text = render_comparison(comparison, OutputFormat::text, false, {});
  EXPECT_THAT(text, HasSubstr("[simulated]"));
  EXPECT_THAT(text, HasSubstr("[measured]"));
}

TEST(CompareRuns, TrainingsAreHeldAgainstEachOther) {
  MeasuredRun first = test::measured_run("run-1");
  MeasuredRun second = test::measured_run("run-2");
  for (std::int64_t i = 1; i <= 40; ++i) {
    const double loss = 5 - 0.01 * static_cast<double>(i);
    first.steps.push_back(test::sample_step(i, Nanos(1), loss));
    second.steps.push_back(test::sample_step(i, Nanos(1), loss + (i > 20 ? 0.5 : 0)));
  }
  const std::vector<RunResult> runs{RunResult(first), RunResult(second)};
  const Comparison comparison = compare_runs(runs);
  const ComparedRow& loss =
      row_of(section_of(comparison, "Convergence by step"), "loss, run 2 - run 1");
  EXPECT_EQ(loss.cells[0].text, "40");
  EXPECT_EQ(loss.cells[1].text, "0.25");  // half of the steps
  EXPECT_EQ(loss.cells[5].text, "step 12");
  section_of(comparison, "Convergence by tokens");
}

Buffer buffer(std::string name, std::int64_t size, Category category = Category::activation) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.category = category;
  buffer.size = Bytes(size);
  return buffer;
}

/// Changes of two plans: six layers' norms and gates, a buffer that vanishes and 30 that appear.
Comparison compare_two_plans() {
  Program before;
  Program after;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string unit = "layers." + std::to_string(layer) + ".";
    before.buffers.push_back(buffer(unit + "norm", 10));
    after.buffers.push_back(buffer(unit + "norm", 10));
    before.buffers.push_back(buffer(unit + "gate", 100));
    after.buffers.push_back(buffer(unit + "gate", layer == 3 ? 90 : 120));
  }
  before.buffers.push_back(buffer("scratch", 7, Category::workspace));
  for (int i = 0; i < 30; ++i)
    after.buffers.push_back(buffer(std::string("new_") + static_cast<char>('A' + i), i + 1));
  after.buffers.back().instances = 2;
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(other_run())};
  return compare_runs(runs, [&](const RunResult& run) {
    return std::make_shared<const Program>(run.plan_hash == "f00" ? after : before);
  });
}

TEST(CompareRuns, BuffersOfEqualLayersStandTogetherTheLargestChangeFirst) {
  const Comparison comparison = compare_two_plans();
  const ComparedSection& buffers = section_of(comparison, "Buffers");
  // Five gates grew by 20 bytes each, one shrank by 10; the last new buffer has two instances.
  EXPECT_EQ(buffers.rows[0].name, "activation 5 x layers.*.gate");
  EXPECT_EQ(buffers.rows[0].cells[0].figure, Figure(std::int64_t{500}));
  EXPECT_EQ(buffers.rows[0].cells[1].figure, Figure(std::int64_t{600}));
  EXPECT_EQ(buffers.rows[1].name, "activation new_^");
  EXPECT_EQ(buffers.rows[1].cells[0].text, "-");
  EXPECT_EQ(buffers.rows[1].cells[1].figure, Figure(std::int64_t{60}));
  EXPECT_EQ(row_of(buffers, "activation layers.3.gate").cells[1].figure, Figure(std::int64_t{90}));
  EXPECT_EQ(row_of(buffers, "workspace scratch").cells[1].text, "-");
  EXPECT_EQ(buffers.rows.size(), 33U);
  // 1 + 2 + ... + 29 + 2 x 30 = 495
  EXPECT_THAT(buffers.notes,
              Contains("run 2: 30 buffers appeared (+495 B), 1 vanished (-7 B), 5 grew (+100 B), "
                       "1 shrank (-10 B)"));
  const auto lines_of = [&](OutputFormat format) {
    const std::string text = render_comparison(comparison, format, false, {});
    std::istringstream in(text.substr(text.find("Buffers")));
    std::int64_t lines = 0;
    for (std::string line; std::getline(in, line);)
      lines += line.find("new_") != std::string::npos ? 1 : 0;
    return lines;
  };
  const std::string rest = "and 13 more, which JSON and CSV list\n";
  EXPECT_THAT(render_comparison(comparison, OutputFormat::text, false, {}), HasSubstr(rest));
  EXPECT_THAT(render_comparison(comparison, OutputFormat::md, true, {}), HasSubstr(rest));
  EXPECT_EQ(lines_of(OutputFormat::text), 19);
  EXPECT_EQ(lines_of(OutputFormat::md), 19);
  EXPECT_EQ(lines_of(OutputFormat::csv), 30);
  EXPECT_EQ(lines_of(OutputFormat::json), 30);
}

TEST(CompareRuns, BuffersOfAPlanThatIsNotKnownAreNotGuessed) {
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(other_run()),
                                    RunResult(test::sample_run("run-3"))};
  const Comparison comparison = compare_runs(runs, [](const RunResult& run) {
    return run.plan_hash == "f00" ? std::make_shared<const Program>() : nullptr;
  });
  const ComparedSection& buffers = section_of(comparison, "Buffers");
  EXPECT_TRUE(buffers.rows.empty());
  EXPECT_THAT(buffers.notes,
              testing::ElementsAre("run 2: not known, as the plan of run 1 cannot be built again "
                                   "from what is stored",
                                   "run 3: the same buffers"));
}

TEST(RenderComparison, TextFitsAHundredColumnsHoweverManyRuns) {
  std::vector<RunResult> runs;
  for (int i = 0; i < 7; ++i) {
    PredictedRun run = i % 2 == 0 ? test::sample_run() : other_run();
    run.name = "a rather long name of run " + std::to_string(i);
    runs.emplace_back(run);
  }
  const std::string text = render_comparison(compare_runs(runs), OutputFormat::text, false, {});
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(display_width(line), 100U) << line;
  EXPECT_THAT(text, HasSubstr("7: run-1 [simulated]"));
}

TEST(RenderComparison, DifferencesOnlyLeavesOutWhatAgrees) {
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(other_run())};
  const std::string text = render_comparison(compare_runs(runs), OutputFormat::text, true, {});
  EXPECT_THAT(text, HasSubstr("prefetch"));
  EXPECT_THAT(text, Not(HasSubstr("seq_len")));
  EXPECT_THAT(text, HasSubstr("Traffic: no differences"));
  EXPECT_THAT(text, HasSubstr("66 B (+20.0 %)"));
}

TEST(RenderComparison, FromNothingThereIsNoFactor) {
  PredictedRun none = test::sample_run();
  none.time.contention = Nanos(0);
  PredictedRun some = none;
  some.time.contention = Nanos(2000);
  const std::vector<RunResult> runs{RunResult(none), RunResult(some)};
  const std::string text = render_comparison(compare_runs(runs), OutputFormat::text, false, {});
  EXPECT_THAT(text, HasSubstr("2.00 us (+2.00 us)"));
}

TEST(RenderComparison, HostileTextStaysText) {
  PredictedRun run = test::sample_run();
  run.name = "=cmd|' /C calc'!A0";
  run.cluster.network = "a|b\n\x1b[31m<script>";
  const std::vector<RunResult> runs{RunResult(run), RunResult(other_run())};
  const Comparison comparison = compare_runs(runs);
  const std::string csv = render_comparison(comparison, OutputFormat::csv, false, {});
  EXPECT_THAT(csv, HasSubstr(",'=cmd|' /C calc'!A0,"));
  const std::string text = render_comparison(comparison, OutputFormat::text, false, {});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  const std::string markdown = render_comparison(comparison, OutputFormat::md, false, {});
  EXPECT_THAT(markdown, HasSubstr("a\\|b"));
}

TEST(RenderComparison, JsonHasFiguresAndNulls) {
  PredictedRun unknown = other_run();
  unknown.absent.add(ResultFigure::mfu);
  const std::vector<RunResult> runs{RunResult(test::sample_run()), RunResult(unknown)};
  const Comparison comparison = compare_runs(runs);
  const auto json =
      nlohmann::json::parse(render_comparison(comparison, OutputFormat::json, false, {}));
  EXPECT_EQ(json["schema"], "mfsdp.compare/1");
  EXPECT_EQ(json["runs"][1]["run_id"], "run-2");
  bool found = false;
  for (const auto& section : json["sections"])
    for (const auto& row : section["rows"])
      if (section["title"] == "Time" && row["name"] == "MFU") {
        EXPECT_TRUE(row["values"][0].is_number());
        EXPECT_TRUE(row["values"][1].is_null());
        found = true;
      }
  EXPECT_TRUE(found);
  const std::string line = render_comparison(comparison, OutputFormat::jsonl, false, {});
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
}

}  // namespace
}  // namespace mfsdp
