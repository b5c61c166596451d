// Pipelines of Megatron-Core. Expected values follow from shapes, or were published.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "core/plan/instances.hpp"
#include "sim/engines/mcore_stage.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

constexpr double kGibibyte = 1 << 30;

PlanConfig with_stages(PlanConfig config, std::int64_t stages, std::int64_t chunks = 1) {
  config.mesh.resize(Axis::pp, stages);
  if (chunks > 1) {
    config.schedule = PipelineSchedule::interleaved;
    config.virtual_stages = chunks;
  }
  return config;
}

EnginePlan stage_of(const PlanConfig& config, std::int64_t stage,
                    const EngineOptions& options = {}) {
  const auto own = engine_config(EngineKind::mcore, config, options);
  EXPECT_TRUE(own) << own.error().message();
  return engine_plan_of(EngineKind::mcore, *own, {}, kL2OfH200, options, stage);
}

double allocated_gib(const EnginePlan& plan) {
  return static_cast<double>(engine_memory(plan, {}).counters.peak_allocated) / kGibibyte;
}

// MooreThreads/SimuMax, docs/b200/b200_release_v1.2_summary.json: 8 B200, two stages, DP 4, 4096
// tokens, 8 microbatches, no overlap; peak of allocated memory, first and last stage.
TEST(McorePipeline, MemoryIsThePublishedOne) {
  const EngineOptions options =
      test::engine_options({"overlap_grad_reduce=false", "overlap_param_gather=false"});
  PlanConfig config =
      with_stages(test::config_of(test::llama(8192, 28672, 12, 64, 8, 128256), 4096, 4), 2);
  config.microbatches = 8;
  EXPECT_NEAR(allocated_gib(stage_of(config, 0, options)), 66.55, 0.1);
  EXPECT_NEAR(allocated_gib(stage_of(config, 1, options)), 62.97, 0.1);
  config.model = test::llama(16384, 53248, 4, 128, 16, 128256);
  EXPECT_NEAR(allocated_gib(stage_of(config, 0, options)), 86.61, 0.1);
  EXPECT_NEAR(allocated_gib(stage_of(config, 1, options)), 87.08, 0.1);
}

/// A message of a rank.
struct Sent {
  bool sends = true;
  std::int64_t communicator = 0;
  std::int64_t peer = 0;
  std::int64_t count = 0;
};

std::vector<Sent> messages_of(const EnginePlan& plan, std::int64_t stage) {
  std::vector<Sent> all;
  for_each_instance(*plan.program.find_plan(PlanRole::train), {}, [&](const OpRun&, const Op& op) {
    const auto* message = std::get_if<Collective>(&op.body);
    if (message == nullptr || !message->peer) return;
    all.push_back({.sends = message->kind == CollectiveKind::send,
                   .communicator = message->communicator.value,
                   .peer = stage + message->peer->step,
                   .count = message->count});
  });
  return all;
}

/// Messages of a rank to or from a peer on a communicator.
std::int64_t count_of(const std::vector<Sent>& all, bool sends, std::int64_t peer,
                      std::int64_t communicator) {
  return std::ranges::count_if(all, [&](const Sent& one) {
    return one.sends == sends && one.peer == peer && one.communicator == communicator;
  });
}

RC_GTEST_PROP(McorePipelineProperty, FreesWhatItAllocatesAndReceivesWhatIsSent, ()) {
  const auto stages = *rc::gen::inRange<std::int64_t>(2, 5);
  const auto chunks = *rc::gen::inRange<std::int64_t>(1, 4);
  const bool gathers = *rc::gen::arbitrary<bool>();
  ModelShape model = test::llama(256, 512, stages * chunks, 4, 2, 1000);
  model.tied_embeddings = *rc::gen::arbitrary<bool>();
  PlanConfig config = with_stages(test::config_of(model, 128, 2), stages, chunks);
  config.microbatches = chunks == 1 ? *rc::gen::inRange<std::int64_t>(1, 9)
                                    : stages * *rc::gen::inRange<std::int64_t>(1, 4);
  if (*rc::gen::arbitrary<bool>())
    config.mesh.resize(Axis::tp, 2);
  else if (*rc::gen::arbitrary<bool>())
    config.fp8 = Fp8Recipe::current;
  if (*rc::gen::arbitrary<bool>()) config.recompute.kind = Recompute::full;
  const EngineOptions options =
      test::engine_options({std::string("overlap_param_gather=") + (gathers ? "true" : "false")});
  std::vector<std::vector<Sent>> messages;
  for (std::int64_t s = 0; s < stages; ++s) {
    const EnginePlan plan = stage_of(config, s, options);
    test::check_balance(plan);
    messages.push_back(messages_of(plan, s));
    std::int64_t microbatches = 0;
    for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
      microbatches += segment.repeat * segment.microbatches;
    RC_ASSERT(microbatches == config.microbatches);
  }
  const std::size_t count = messages[0].size();
  RC_ASSERT(count > 0U);
  for (std::int64_t s = 0; s < stages; ++s)
    for (const Sent& one : messages[static_cast<std::size_t>(s)])
      RC_ASSERT(
          count_of(messages[static_cast<std::size_t>(s)], one.sends, one.peer, one.communicator) ==
          count_of(messages[static_cast<std::size_t>(one.peer)], !one.sends, s, one.communicator));
}

}  // namespace
}  // namespace mfsdp
