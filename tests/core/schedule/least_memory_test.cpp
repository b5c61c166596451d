#include "core/schedule/least_memory.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/planner_axes.hpp"

namespace mfsdp {
namespace {

/// The sum of lower bounds of the built program's pools.
Bytes lower_bounds(const Program& program) {
  Bytes sum;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) sum += pool.lower_bound;
  return sum;
}

RC_GTEST_PROP(LeastMemory, IsNeverAboveTheBuiltProgram, ()) {
  LeastMemoryTable table;  // shared: parts that are taken for equal must be
  for (int built = 0; built < 8;) {
    const PlanConfig config = *test::any_planner_config();
    if (!validate(config)) continue;
    ++built;
    const auto program = build_program(config, {});
    if (!program) RC_FAIL(program.error().message());
    const LeastMemory least = table.of(config);
    RC_ASSERT(least.pools <= lower_bounds(*program));
    RC_ASSERT(least.communicators == std::ssize(program->communicators));
  }
}

TEST(LeastMemory, IsWhatOneMicrobatchTakes) {
  LeastMemoryTable table;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const bool tied : {false, true}) {
        PlanConfig config = test::small_config(4, 4);
        config.model.tied_embeddings = tied;
        config.strategy = strategy;
        config.recompute.kind = recompute;
        const auto program = build_program(config, {});
        ASSERT_TRUE(program) << program.error().message();
        EXPECT_EQ(table.of(config).pools, lower_bounds(*program))
            << to_string(strategy) << " " << to_string(recompute) << " tied " << tied;
      }
}

/// The most of the stages' lower bounds.
Bytes fullest(const Job& job) {
  Bytes most;
  for (const Program& program : job.programs) most = std::max(most, lower_bounds(program));
  return most;
}

TEST(LeastMemory, OfAPipelineIsCloseBelowItsFullestStage) {
  LeastMemoryTable table;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads_params})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (const auto& [stages, microbatches] : {std::pair{2, 1}, {2, 6}, {4, 3}, {4, 8}})
        for (const PipelineSchedule schedule :
             {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
          PlanConfig config = test::small_config(4, 8);
          config.microbatches = microbatches;
          config.mesh.resize(Axis::pp, stages);
          config.strategy = strategy;
          config.recompute.kind = recompute;
          config.schedule = schedule;
          const auto job = build_job(config, {});
          ASSERT_TRUE(job) << job.error().message();
          const double share = static_cast<double>(table.of(config).pools.value) /
                               static_cast<double>(fullest(*job).value);
          EXPECT_LE(share, 1) << to_string(strategy) << " " << to_string(recompute) << " "
                              << to_string(schedule) << " " << stages << " x " << microbatches;
          EXPECT_GE(share, 0.8) << to_string(strategy) << " " << to_string(recompute) << " "
                                << to_string(schedule) << " " << stages << " x " << microbatches;
        }
}

}  // namespace
}  // namespace mfsdp
