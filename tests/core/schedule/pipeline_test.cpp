// Programs of stages: what they have, and how many microbatches their buffers hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/plan/instances.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanConfig staged_config(std::int64_t stages, std::int64_t layers, std::int64_t microbatches) {
  PlanConfig config = test::small_config(1, layers);
  config.mesh.resize(Axis::pp, stages);
  config.microbatches = microbatches;
  config.recompute.kind = Recompute::none;
  return config;
}

/// Instances of what a stage keeps of a block, such as the inputs of GEMMs, until backward.
std::vector<std::int64_t> kept_by_stage(const PlanConfig& config) {
  std::vector<std::int64_t> kept;
  const Job job = build_job(config, {}).value();
  for (const Program& program : job.programs) {
    std::int64_t most = 1;
    for (const Buffer& buffer : program.buffers)
      if (program.pools[buffer.pool.value].name == "activations" && buffer.name != "tokens")
        most = std::max(most, buffer.instances.value_or(1));
    kept.push_back(most);
  }
  return kept;
}

std::vector<std::string> segments_of(const Program& program) {
  std::vector<std::string> names;
  for (const Segment& segment : program.plans[0].segments)
    names.push_back(segment.name + " x " + std::to_string(segment.repeat));
  return names;
}

std::string refusal(const PlanConfig& config) {
  const auto job = build_job(config, {});
  return job ? "" : job.error().message();
}

// The textbook's numbers: min(m, p - s) with 1F1B, m with GPipe. Tensors that are sent have two.
TEST(PipelineStages, KeepMicrobatchesInFlight) {
  PlanConfig config = staged_config(4, 4, 8);
  EXPECT_THAT(kept_by_stage(config), ElementsAre(4, 3, 2, 2));
  config.microbatches = 3;
  EXPECT_THAT(kept_by_stage(config), ElementsAre(3, 3, 2, 2));
  config.schedule = PipelineSchedule::gpipe;
  EXPECT_THAT(kept_by_stage(config), ElementsAre(3, 3, 3, 3));
}

TEST(PipelineStages, CallPassesInTheOrderOfTheSchedule) {
  PlanConfig config = staged_config(2, 2, 5);
  const Job job = build_job(config, {}).value();
  ASSERT_EQ(job.programs.size(), 2);
  EXPECT_THAT(segments_of(job.programs[0]), ElementsAre("warm_up x 1", "steady x 1", "steady.2 x 3",
                                                        "drain x 1", "optimizer x 1"));
  EXPECT_THAT(segments_of(job.programs[1]),
              ElementsAre("warm_up x 1", "steady x 1", "steady.2 x 2", "steady.3 x 1", "drain x 1",
                          "optimizer x 1"));
  EXPECT_EQ(job.programs[1].classes[0].role, "stage_1");
  EXPECT_EQ(job.programs[1].classes[0].ranks, 1);
}

/// Stages have the weights of their blocks alone; the ends have the embedding and the head.
TEST(PipelineStages, HoldTheirUnits) {
  PlanConfig config = staged_config(2, 3, 2);
  config.layers_of_stages = {1, 2};
  const Job job = build_job(config, {}).value();
  const auto weights = [&](std::size_t stage) {
    std::string names;
    for (const Buffer& buffer : job.programs[stage].buffers)
      if (buffer.name.ends_with(".model_weight"))
        names += buffer.name.substr(0, buffer.name.rfind('.')) + " ";
    return names;
  };
  EXPECT_EQ(weights(0), "embedding layers.0 ");
  EXPECT_EQ(weights(1), "layers.1 layers.2 head ");
}

TEST(PipelineStages, RefuseWhatTheyDoNotSupport) {
  PlanConfig config = staged_config(2, 3, 2);
  config.layers_of_stages = {1, 1};
  EXPECT_THAT(refusal(config), HasSubstr("--layers-of-stages: expected 2 numbers (--pp) with the "
                                         "sum 3"));
  config.layers_of_stages = {1, 2};
  config.model.tied_embeddings = true;
  EXPECT_THAT(refusal(config), HasSubstr("--pp: cannot be combined with tied embeddings"));
  config = staged_config(2, 2, 2);
  config.schedule = PipelineSchedule::zb_h1;
  EXPECT_THAT(refusal(config), HasSubstr("--strategy: expected no_shard or optim"));
  config = test::small_config(1, 2);
  config.virtual_stages = 2;
  EXPECT_THAT(refusal(config), HasSubstr("--vpp: expected --pp 2 or more beside it"));
  config = staged_config(2, 2, 2);
  EXPECT_THAT(build_program(config, {}).error().message(), HasSubstr("--pp"));
}

}  // namespace
}  // namespace mfsdp
