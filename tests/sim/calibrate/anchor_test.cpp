#include "sim/calibrate/anchor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "reports/record/result_json.hpp"
#include "sim/predict/predict.hpp"
#include "tests/sim/calibrate/samples.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::kSource;
using testing_calibrate::replaced;

Result<CostModel> h200(std::int64_t gpus, std::int64_t per_node) {
  return testing_cost::model_of("h200", gpus, per_node);
}

/// The measurement of a machine whose kernels and collectives take these factors longer.
MeasuredRun measured(double kernels, double collectives, std::int64_t gpus = 8,
                     std::string_view attention = "warpgroups") {
  const auto model = load_model("llama3_1b", kSource / "scenarios/models").value();
  PlanConfig config;
  config.model = model.shape;
  config.mesh = data_parallel_mesh(1, gpus);
  const Program program =
      build_program(config, {.model_name = "llama3_1b", .tool_version = "", .stored_hash = ""})
          .value();
  CostModel costs = h200(gpus, 8).value().scaled(kernels, collectives);
  if (attention != "warpgroups") costs = costs.with_library_attention();
  MeasuredRun run;
  static_cast<RunFigures&>(run) = predict(program, costs).value().run;
  run.tool = "mfsdp-exec";
  run.facts.push_back({.topic = "software", .name = "attention", .value = std::string(attention)});
  run.run_id = "abc";
  run.name = "night-7";
  return run;
}

std::string anchor_error(const std::string& json) {
  const auto anchor = anchor_from(json, "r.json", h200);
  return anchor ? "no error" : anchor.error().message();
}

TEST(Anchor, FindsTheFactorsOfItsRun) {
  const auto anchor = anchor_from(to_json(measured(1.1, 1.25)), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_TRUE(anchor->parts);
  EXPECT_NEAR(anchor->kernel_factor, 1.1, 1.1 * 0.01);
  EXPECT_NEAR(anchor->collective_factor, 1.25, 1.25 * 0.05);
  EXPECT_LT(anchor->before, -0.08);  // 1 / 1.1 - 1 = -0.09 of the compute
  EXPECT_NEAR(anchor->after, 0, 2e-3);
  EXPECT_EQ(anchor->domains, 1);
  EXPECT_TRUE(anchor->waited);
  EXPECT_THAT(anchor->text(), HasSubstr("(night-7)"));
  EXPECT_THAT(anchor->text(), HasSubstr("kernels x 1.10, collectives x 1.2"));
}

TEST(Anchor, ARunThatIsAsPredictedChangesNothing) {
  const auto anchor = anchor_from(to_json(measured(1, 1)), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_EQ(anchor->kernel_factor, 1);
  EXPECT_EQ(anchor->collective_factor, 1);
  EXPECT_EQ(anchor->before, 0);
}

/// Results of versions before our own attention kernels do not state the attention.
TEST(Anchor, ARunWithoutOurOwnAttentionIsPricedByCudnns) {
  const MeasuredRun run = measured(1, 1, 8, "cudnn");
  MeasuredRun old = run;
  std::erase_if(old.facts, [](const Fact& fact) { return fact.name == "attention"; });
  for (const std::string& json : {to_json(run), to_json(old)}) {
    const auto anchor = anchor_from(json, "r.json", h200);
    ASSERT_TRUE(anchor) << anchor.error().message();
    EXPECT_EQ(anchor->kernel_factor, 1);
    EXPECT_EQ(anchor->before, 0);
  }
}

TEST(Anchor, TakesOneFactorWhereOnlyTheStepIsKnown) {
  MeasuredRun run = measured(1, 1);
  const Nanos predicted = run.time.step;
  run.time = {};
  run.time.median_step = Nanos(predicted.value * 6 / 5);
  const auto anchor = anchor_from(to_json(run), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_FALSE(anchor->parts);
  EXPECT_NEAR(anchor->kernel_factor, 1.2, 1e-6);
  EXPECT_EQ(anchor->collective_factor, anchor->kernel_factor);
  EXPECT_NEAR(anchor->after, 0, 1e-3);
}

TEST(Anchor, OneGpuHasNoCollectivesToScale) {
  const auto anchor = anchor_from(to_json(measured(1.3, 1, 1)), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_NEAR(anchor->kernel_factor, 1.3, 0.01);
  EXPECT_EQ(anchor->collective_factor, 1);
  EXPECT_FALSE(anchor->waited);
}

TEST(Anchor, RefusesOtherRuns) {
  MeasuredRun run = measured(1, 1);
  PredictedRun prediction;
  static_cast<RunFigures&>(prediction) = run;
  EXPECT_EQ(anchor_error(to_json(prediction)),
            "r.json: source is \"simulated\"; expected \"measured\": a prediction anchors nothing");
  run.status = RunStatus::failed;
  EXPECT_EQ(anchor_error(to_json(run)),
            "r.json: status is \"failed\"; expected \"complete\" or \"interrupted\"");
  run.status = RunStatus::complete;
  run.engine = "fsdp2";
  EXPECT_EQ(anchor_error(to_json(run)), "r.json: engine is \"fsdp2\"; expected \"mfsdp\"");
  run.engine = measured(1, 1).engine;
  run.cluster.gpu = "h100";
  EXPECT_EQ(anchor_error(to_json(run)),
            "r.json: was measured on h100; expected a run on h200 (--gpu)");
  run.cluster.gpu = "h200";
  run.time.median_step = run.time.compute = Nanos(run.time.step.value * 10);
  run.time.tokens_per_second_per_gpu /= 10;
  EXPECT_THAT(anchor_error(to_json(run)),
              HasSubstr("times as long as predicted; expected 0.25 to 4"));
  run.time.median_step = Nanos(0);
  EXPECT_THAT(anchor_error(to_json(run)), HasSubstr("time/median_step_ns is 0"));
  const std::string json = to_json(measured(1, 1));
  EXPECT_THAT(anchor_error(replaced(json, "mfsdp.result/1", "mfsdp.result/9")),
              HasSubstr("schema is \"mfsdp.result/9\"; expected \"mfsdp.result/1\""));
  EXPECT_THAT(
      anchor_error(replaced(json, "\"compute_ns\"", "\"compute\"")),
      HasSubstr(
          "r.json.time.compute_ns: expected an integer from 0 to 1000000000000000, got nothing"));
  EXPECT_THAT(anchor_error(json.substr(0, json.size() / 2)), HasSubstr("r.json:"));
  EXPECT_THAT(anchor_error("[]"), HasSubstr("r.json.schema: expected text, got nothing"));
}

TEST(Anchor, NoRunPassesThePeak) {
  MeasuredRun run = measured(1, 1);
  const auto faster = static_cast<std::int64_t>(1.2 / run.time.mfu);
  run.time.median_step = Nanos(run.time.step.value / (faster + 1));
  run.time.compute = run.time.median_step;
  run.time.tokens_per_second_per_gpu *= static_cast<double>(faster + 1);
  EXPECT_THAT(anchor_error(to_json(run)), HasSubstr("times the peak of h200; expected at most"));
}

TEST(Anchor, SaysWhereItsFactorOfCollectivesEnds) {
  const auto anchor = anchor_from(to_json(measured(1, 30)), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_EQ(anchor->collective_factor, 4);
  EXPECT_THAT(anchor->text(), HasSubstr("collectives x 4.00, a bound of the fit (night-7)"));
}

TEST(Anchor, CountsTheDomainsOfItsRun) {
  const auto anchor = anchor_from(to_json(measured(1, 1, 16)), "r.json", h200);
  ASSERT_TRUE(anchor) << anchor.error().message();
  EXPECT_EQ(anchor->domains, 2);
}

TEST(Anchor, RefusesARunThatContradictsItself) {
  MeasuredRun run = measured(1, 1);
  run.cluster.gpus = 16;
  EXPECT_EQ(anchor_error(to_json(run)),
            "r.json: cluster/gpus is 16; expected 8, dp_outer 1 x dp_shard 8 of its config");
  run = measured(1, 1);
  run.cluster.gpus_per_node = 0;
  EXPECT_EQ(anchor_error(to_json(run)),
            "r.json.cluster.gpus_per_node: expected an integer from 1 to 1000000000000000, "
            "got 0");
  // 8192 tokens a micro-batch, measured with one; the step and its rate stay.
  run = measured(1, 1);
  run.config.micro_batch *= 2;
  EXPECT_EQ(anchor_error(to_json(run)),
            "r.json: time/tokens_per_second_per_gpu gives 8192 tokens a step and GPU; expected "
            "16384 from its config");
}

TEST(Scaled, MultipliesKernelsAndCollectives) {
  const CostModel model = h200(8, 8).value();
  const CostModel scaled = model.scaled(2, 3).scaled(1.5, 1);
  Kernel kernel;
  kernel.kind = KernelKind::gemm;
  kernel.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 4096}};
  const auto ns = [](Nanos time) { return static_cast<double>(time.value); };
  EXPECT_NEAR(ns(scaled.kernel(kernel)), 3 * ns(model.kernel(kernel)), 2);
  const auto gather = [&](const CostModel& costs) {
    return costs.collective(CollectiveKind::all_gather, Bytes(1 << 26), {.ranks = 8});
  };
  EXPECT_EQ(ns(gather(scaled).duration), 3 * ns(gather(model).duration));
  EXPECT_EQ(ns(gather(scaled).latency), 3 * ns(gather(model).latency));
  // The same SMs, and the same bytes in three times as long.
  EXPECT_EQ(gather(scaled).contention.occupancy, gather(model).contention.occupancy);
  EXPECT_EQ(gather(scaled).contention.drag, gather(model).contention.drag);
  EXPECT_NEAR(static_cast<double>(gather(scaled).contention.draw) * 3,
              static_cast<double>(gather(model).contention.draw), 2);
  EXPECT_EQ(scaled.copy(CopyKind::h2d, Bytes(1 << 26)), model.copy(CopyKind::h2d, Bytes(1 << 26)));
}

}  // namespace
}  // namespace mfsdp
