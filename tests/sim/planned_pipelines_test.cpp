// Pipelines that the planner makes have the textbook's bubble, where stages are equal and links free.
#include <gtest/gtest.h>

#include "core/plan/pipeline_order.hpp"
#include "core/plan/without_passes.hpp"
#include "core/schedule/build.hpp"
#include "tests/sim/timed_plan.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kPart = 100;

/// A block's forward takes one unit of time, its backward two. Where weight gradients wait, those of
/// qkv take one unit and the rest of backward one.
Prices block_prices(PipelineSchedule schedule) {
  Prices prices = test::tiny_prices();
  const bool waits = schedule == PipelineSchedule::zb_h1;
  prices.kernel = [waits](const Op& op) {
    const bool splits = waits && op.name.ends_with(".qkv.wgrad");
    std::int64_t units = op.name.ends_with(".attention") || splits ? 1 : 0;
    if (op.name.ends_with(".attention.backward")) units = waits ? 1 : 2;
    return KernelPrice(Nanos(units * kPart));
  };
  prices.copy = [](const Copy&) { return CopyPrice{}; };
  prices.collective = [](const Collective&, const Communicator&) { return CollectivePrice{}; };
  return prices;
}

std::int64_t step_of(const PipelineShape& shape) {
  PlanConfig config = test::small_config(1, shape.stages * shape.chunks);
  config.mesh.resize(Axis::pp, shape.stages);
  config.strategy = Strategy::no_shard;
  config.recompute.kind = Recompute::none;
  config.schedule = shape.schedule;
  config.virtual_stages = shape.chunks > 1 ? shape.chunks : 0;
  config.microbatches = shape.microbatches;
  config.microbatch_group = shape.group;
  const Job job = without_passes(build_job(config, {}).value());
  std::vector<SimulatedPlan> classes;
  for (const Program& program : job.programs)
    classes.push_back({.program = &program,
                       .plan = &program.plans[0],
                       .prices = block_prices(shape.schedule)});
  return simulate(classes, {}, {}).value().time.step.value / kPart;
}

TEST(PlannedPipelines, HaveTheBubbleOfTheirSchedule) {
  using enum PipelineSchedule;
  // m v (F + B) + (p - 1) (F + B), of which F + B is three units for each chunk.
  EXPECT_EQ(step_of({.schedule = one_f_one_b, .stages = 4, .microbatches = 8}), 33);
  EXPECT_EQ(step_of({.schedule = gpipe, .stages = 4, .microbatches = 8}), 33);
  EXPECT_EQ(step_of({.schedule = interleaved, .stages = 4, .chunks = 2, .microbatches = 8}), 57);
  EXPECT_EQ(step_of({.schedule = interleaved, .stages = 4, .chunks = 4, .microbatches = 8}), 105);
  EXPECT_EQ(step_of({.schedule = interleaved, .stages = 8, .chunks = 2, .microbatches = 16}), 117);
  // (p - 1) (F + I - W)
  EXPECT_EQ(step_of({.schedule = zb_h1, .stages = 4, .microbatches = 8}), 27);
}

}  // namespace
}  // namespace mfsdp
