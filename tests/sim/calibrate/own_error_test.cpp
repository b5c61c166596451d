#include "sim/calibrate/own_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/model/hf_config.hpp"
#include "sim/calibrate/accuracy.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

const std::filesystem::path kShippedScenarios = testing_cost::kGpus.parent_path();

ModelShape shape_of(const std::string& name) {
  return load_model(name, kShippedScenarios / "models").value().shape;
}

PredictionKind kind(const std::string& engine, const std::string& gpu) {
  return {.engine = engine, .family = "llama", .training = "adamw", .gpu = gpu};
}

OwnStep step(const PredictionKind& of, std::int64_t gpus, double measured, double predicted) {
  return {.kind = of,
          .model = "llama3_8b",
          .gpus = gpus,
          .measured_ms = measured,
          .predicted_ms = predicted};
}

TEST(OwnErrorOf, IsTheMeanAndTheWorstOfItsKindAlone) {
  const std::vector<OwnStep> steps{step(kind("mfsdp", "h200"), 2, 100, 98),    // 2 %
                                   step(kind("mfsdp", "h200"), 4, 100, 106),   // 6 %
                                   step(kind("mfsdp", "h100"), 8, 100, 200),   // another GPU
                                   step(kind("fsdp2", "h200"), 8, 100, 300)};  // another engine
  const auto error = own_error(steps, kind("mfsdp", "h200"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->runs, 2);
  EXPECT_NEAR(error->mean, 0.04, 1e-12);
  EXPECT_NEAR(error->worst, 0.06, 1e-12);
  EXPECT_EQ(own_error_text(kind("mfsdp", "h200"), error),
            "step error 4.0 % on average, 6.0 % at worst of 2 runs (mfsdp, llama, 2 to 4 h200)");
  PredictionKind muon = kind("mfsdp", "h200");
  muon.training = "muon";
  EXPECT_FALSE(own_error(steps, muon));
  EXPECT_EQ(own_error_text(muon, std::nullopt),
            "step error not known: no run of mfsdp with llama, muon on h200 was measured");
}

TEST(OwnErrorOf, OneRunHasNoAverage) {
  const std::vector<OwnStep> steps{step(kind("mfsdp", "h200"), 1, 100, 64)};
  EXPECT_EQ(own_error_text(kind("mfsdp", "h200"), own_error(steps, kind("mfsdp", "h200"))),
            "step error 36.0 % in 1 run (mfsdp, llama, 1 h200)");
}

TEST(OwnErrorOf, RunsThatCorrectedItAreCounted) {
  std::vector<OwnStep> steps{step(kind("fsdp2", "h100"), 2, 100, 104),
                             step(kind("fsdp2", "h100"), 2, 100, 98)};
  steps[1].is_mended = true;
  EXPECT_EQ(own_error_text(kind("fsdp2", "h100"), own_error(steps, kind("fsdp2", "h100"))),
            "step error 3.0 % on average, 4.0 % at worst of 2 runs (fsdp2, llama, 2 h100; 1 "
            "corrected the prediction)");
}

// Rows name their class in words; it is that of the model that they name.
TEST(OwnSteps, EveryRowHasTheClassOfItsModel) {
  const auto steps = load_own_steps(kShippedScenarios / "fidelity/own_steps.csv");
  ASSERT_TRUE(steps) << steps.error().message();
  for (const OwnStep& each : *steps)
    EXPECT_EQ(each.kind.family, family_class(shape_of(each.model))) << each.model;
}

// docs/lab/steps.md and docs/guide/predict.md state these.
TEST(OwnSteps, AreWhatTheDocumentationSays) {
  const auto steps = load_own_steps(kShippedScenarios / "fidelity/own_steps.csv").value();
  const auto of = [&](PredictionKind which) { return own_error(steps, which).value(); };
  const OwnError llamas = of(kind("mfsdp", "h200"));
  EXPECT_EQ(llamas.runs, 91);
  EXPECT_NEAR(llamas.mean, 0.0174, 0.00005);
  EXPECT_NEAR(llamas.worst, 0.0498, 0.00005);
  EXPECT_NEAR(of(kind("mfsdp", "h100")).mean, 0.0286, 0.00005);
  EXPECT_EQ(of(kind("fsdp2-compile", "h200")).runs, 20);
  PredictionKind gemma = kind("mfsdp", "h200");
  gemma.family = family_class(shape_of("gemma3_1b"));
  EXPECT_NEAR(of(gemma).worst, 0.0459, 0.00005);
  EXPECT_FALSE(own_error(steps, kind("mfsdp", "b200")));
  EXPECT_FALSE(own_error(steps, kind("mcore", "h200")));
}

OwnMemory memory(const PredictionKind& of, double allocated, double reserved) {
  return {.kind = of,
          .model = "llama3_8b",
          .allocated = {.measured = 100, .predicted = allocated},
          .reserved = OwnBytes{.measured = 100, .predicted = reserved},
          .device = {}};
}

TEST(OwnMemoryOf, IsOfItsKindAlone) {
  std::vector<OwnMemory> rows{
      memory(kind("fsdp2", "h200"), 100.01, 98), memory(kind("fsdp2", "h200"), 100, 101),
      memory(kind("fsdp2", "h100"), 150, 150), memory(kind("fsdp2 --bf16-loss", "h200"), 200, 200)};
  rows[1].is_mended = true;
  const PredictionKind mine = kind("fsdp2", "h200");
  const OwnMemoryError error = own_memory_error(rows, mine);
  EXPECT_EQ(error.allocated.runs, 2);
  EXPECT_NEAR(error.reserved.mean(), 0.015, 1e-12);
  const auto band = memory_band(error, mine);
  ASSERT_TRUE(band);
  EXPECT_NEAR(band->allocated, 0.001, 1e-12);  // 0.01 %, rounded up
  EXPECT_NEAR(band->reserved, 0.02, 1e-12);
  EXPECT_EQ(band->source,
            "at worst of 2 runs (fsdp2, llama, h200; reserved: 2; device: not measured, as "
            "reserved), 1 of which corrected the description of the engine");
  const PredictionKind other = kind("mcore", "h200");
  EXPECT_FALSE(memory_band(own_memory_error(rows, other), other));
  EXPECT_EQ(unknown_memory_error(other),
            "memory error: not known; no run of mcore with llama on h200 was compared");
}

// docs/reference/accuracy.md has all of them.
TEST(OwnRuns, HaveOneRowForEachKind) {
  const auto runs = load_own_runs(kShippedScenarios / "fidelity");
  ASSERT_TRUE(runs) << runs.error().message();
  for (const OwnMemory& each : runs->memory)
    EXPECT_EQ(each.kind.family, family_class(shape_of(each.model))) << each.model;
  const auto rows = accuracy(*runs);
  std::int64_t measured = 0;
  for (const AccuracyRow& row : rows) measured += row.memory.allocated.runs;
  EXPECT_EQ(measured, static_cast<std::int64_t>(runs->memory.size()));
  const std::vector<std::string> first = accuracy_cells(rows)[1];
  EXPECT_EQ(first[0], "mfsdp");
  EXPECT_EQ(first[3], "");  // its pools are exact, and no runs are listed
}

TEST(AccuracyOfEngines, LeavesOutRunsThatCorrectedIt) {
  OwnRuns runs{
      .steps = {step(kind("fsdp2", "h200"), 1, 100, 104),
                step(kind("fsdp2 --bf16-loss", "h100"), 1, 100, 98),
                step(kind("fsdp2", "h200"), 1, 100, 50)},
      .memory = {memory(kind("fsdp2", "h200"), 101, 102), memory(kind("ddp", "h200"), 150, 150)}};
  runs.steps[2].is_mended = true;
  runs.memory[1].is_mended = true;
  const auto engines = accuracy_of_engines(runs);
  ASSERT_EQ(engines.size(), 2U);
  EXPECT_EQ(engines[0].engine, "fsdp2");
  EXPECT_EQ(engines[0].step.runs, 2);
  EXPECT_NEAR(engines[0].step.mean(), 0.03, 1e-12);
  EXPECT_NEAR(engines[0].reserved.mean(), 0.02, 1e-12);
  EXPECT_EQ(engines[0].corrected, 1);
  EXPECT_EQ(engines[1].allocated.runs, 0);
  EXPECT_EQ(accuracy_cells(engines)[2],
            (std::vector<std::string>{"ddp", "", "", "", "", "", "", "", "", "", "1"}));
}

TEST(FamilyClass, GoesByWhatTheBlocksHave) {
  EXPECT_EQ(family_class(shape_of("llama3_8b")), "llama");
  EXPECT_EQ(family_class(shape_of("qwen3_8b")), "llama");
  EXPECT_EQ(family_class(shape_of("phi3_mini")), "llama with windows and heads of 96");
  EXPECT_EQ(family_class(shape_of("mixtral_8x7b")), "llama with experts");
  EXPECT_EQ(family_class(shape_of("qwen3_30b_a3b")), "llama with experts");
  EXPECT_EQ(family_class(shape_of("gemma3_1b")), "gemma with windows and heads of 256");
  EXPECT_EQ(family_class(shape_of("gpt_oss_20b")), "gpt_oss");
  EXPECT_EQ(family_class(shape_of("deepseek_v3")), "deepseek");
  EXPECT_EQ(family_class(shape_of("olmo2_1b")), "olmo2");
  EXPECT_EQ(family_class(shape_of("gpt2")), "gpt2");
}

TEST(TrainingClass, NamesWhatIsNotAsUsual) {
  PlanConfig config;
  EXPECT_EQ(training_class(config), "adamw");
  config.optimizer = Optimizer::muon;
  EXPECT_EQ(training_class(config), "muon");
  config.param_dtype = DType::fp32;
  config.document_mask = true;
  EXPECT_EQ(training_class(config), "muon with fp32 weights and document masks");
  config = {};
  config.main_dtype = DType::bf16;
  EXPECT_EQ(training_class(config), "adamw with bf16 weights between steps");
  config = PlanConfig{};
  config.mesh.dense = {{.axis = Axis::pp, .size = 2}};
  EXPECT_EQ(training_class(config), "adamw with pipeline stages");
  config = PlanConfig{};
  config.fp8 = Fp8Recipe::current;
  EXPECT_EQ(training_class(config), "adamw with FP8");
  config.fp8_gather = true;
  EXPECT_EQ(training_class(config), "adamw with FP8 gathered");
  config = PlanConfig{};
  config.fp8 = Fp8Recipe::mxfp8;
  EXPECT_EQ(training_class(config), "adamw with FP8 mxfp8");
}

TEST(GpuClass, KnowsLimitsOfPowerAndPublishedTables) {
  Gpu gpu = testing_cost::cluster_of("h200", 8).gpu;
  EXPECT_EQ(gpu_class(gpu), "h200");
  gpu.power = PowerLimits{.own = 500, .tables = 700};
  EXPECT_EQ(gpu_class(gpu), "h200 at 500 W");
  gpu.power.reset();
  gpu.published_prices = "by others";
  EXPECT_EQ(gpu_class(gpu), "h200 with published tables");
}

TEST(OwnSteps, AWrongFileIsNamedWithItsLine) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "steps.csv";
  const std::string header =
      "engine,family,training,gpu,gpus,model,measured_ms,predicted_ms,when\n";
  const auto written = [&](const std::string& row) {
    std::ofstream(file) << header << row << "\n";
    return load_own_steps(file);
  };
  EXPECT_TRUE(written("mfsdp,llama,adamw,h200,2,llama3_8b,100,98,before"));
  const auto engine = written("fsdp3,llama,adamw,h200,2,llama3_8b,100,98,before");
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message(), HasSubstr("steps.csv:2: engine: expected one of mfsdp"));
  const auto time = written("mfsdp,llama,adamw,h200,2,llama3_8b,0,98,before");
  ASSERT_FALSE(time);
  EXPECT_THAT(time.error().message(), HasSubstr("steps.csv:2"));
}

}  // namespace
}  // namespace mfsdp
