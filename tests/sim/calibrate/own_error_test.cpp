#include "sim/calibrate/own_error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/model/hf_config.hpp"
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
  EXPECT_EQ(llamas.runs, 72);
  EXPECT_NEAR(llamas.mean, 0.0191, 0.00005);
  EXPECT_NEAR(llamas.worst, 0.0498, 0.00005);
  EXPECT_NEAR(of(kind("mfsdp", "h100")).mean, 0.0286, 0.00005);
  EXPECT_EQ(of(kind("fsdp2-compile", "h200")).runs, 16);
  PredictionKind gemma = kind("mfsdp", "h200");
  gemma.family = family_class(shape_of("gemma3_1b"));
  EXPECT_NEAR(of(gemma).worst, 0.3598, 0.00005);
  EXPECT_FALSE(own_error(steps, kind("mfsdp", "b200")));
  EXPECT_FALSE(own_error(steps, kind("mcore", "h200")));
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
  const std::string header = "engine,family,training,gpu,gpus,model,measured_ms,predicted_ms\n";
  const auto written = [&](const std::string& row) {
    std::ofstream(file) << header << row << "\n";
    return load_own_steps(file);
  };
  EXPECT_TRUE(written("mfsdp,llama,adamw,h200,2,llama3_8b,100,98"));
  const auto engine = written("fsdp3,llama,adamw,h200,2,llama3_8b,100,98");
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message(), HasSubstr("steps.csv:2: engine: expected one of mfsdp"));
  const auto time = written("mfsdp,llama,adamw,h200,2,llama3_8b,0,98");
  ASSERT_FALSE(time);
  EXPECT_THAT(time.error().message(), HasSubstr("steps.csv:2"));
}

}  // namespace
}  // namespace mfsdp
