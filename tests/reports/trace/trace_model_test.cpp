// Traces of jobs: every class of ranks numbers its ops from 0, and calls of a pass share their ids.
#include "reports/trace/trace_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "core/plan/instances.hpp"
#include "core/plan/without_passes.hpp"
#include "reports/trace/replay.hpp"
#include "tests/support/pipeline.hpp"
#include "tests/support/predicted.hpp"

namespace mfsdp {
namespace {

std::map<OpId, const Op*> kernels_of(const Job& job, std::int64_t rank) {
  std::map<OpId, const Op*> kernels;
  for (const Op& op : ops_of(*program_of(job.programs, rank).find_plan(PlanRole::train)))
    if (op.kind() == OpKind::kernel) kernels.emplace(op.id, &op);
  return kernels;
}

/// A kernel of rank 1 whose id another kernel has on rank 0.
const Op& kernel_of_shared_id(const Job& job) {
  const auto of_first = kernels_of(job, 0);
  for (const auto& [id, op] : kernels_of(job, 1))
    if (const auto other = of_first.find(id);
        other != of_first.end() && other->second->name != op->name)
      return *op;
  throw std::runtime_error("no two kernels have one id");
}

/// Ranks 0 and 1 of two stages launch ops of one id.
MeasuredRun launches_of_one_id(OpId op) {
  MeasuredRun run;
  run.classes.resize(2);
  run.facts = {{.topic = "measured", .name = "rank", .value = std::int64_t{1}}};
  for (const std::int64_t rank : {0, 1}) {
    OpLaunch& launch = run.launches.emplace_back();
    launch.op = op;
    launch.rank = rank;
    launch.end = Nanos(5);
  }
  return run;
}

TEST(TraceModel, OpsOfEachRankAreThoseOfItsClass) {
  const Job job = test::pipeline();
  const Op& of_last = kernel_of_shared_id(job);
  const auto all = trace_model(launches_of_one_id(of_last.id), nullptr, job.programs);
  ASSERT_TRUE(all) << all.error().message();
  ASSERT_EQ(all->processes.size(), 2U);
  const TraceSlice& first = all->processes[0].tracks.front().slices.front();
  const TraceSlice& last = all->processes[1].tracks.front().slices.front();
  EXPECT_EQ(last.name, of_last.name);
  EXPECT_EQ(first.name, kernels_of(job, 0).at(of_last.id)->name);
}

/// A stored run has the names of one rank's ops alone.
TEST(TraceModel, OpsOfOtherClassesHaveNoNamesWithoutTheJob) {
  const Job job = test::pipeline();
  const Op& of_last = kernel_of_shared_id(job);
  MeasuredRun run = launches_of_one_id(of_last.id);
  OpTime& named = run.timeline.emplace_back();
  named.op = of_last.id;
  named.name = of_last.name;
  named.stream = "compute";
  const auto model = trace_model(run, nullptr);
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->processes.size(), 1U);
  EXPECT_EQ(model->processes[0].name, "rank 1");
}

Prediction of_job(const Job& job) {
  const Gpu gpu = test::value_or_throw(load_gpu("h200", test::kScenarios / "gpus"));
  const std::int64_t ranks = job.programs[0].config.mesh.world_size();
  const Cluster cluster = test::value_or_throw(make_cluster(gpu, ranks, ranks));
  const CostModel costs = test::value_or_throw(make_cost_model(cluster));
  return test::value_or_throw(predict(job.programs, costs));
}

/// An op that is called in several segments is found at each of its places.
TEST(TraceModel, WaitsOfPassesEndBeforeWhatWaits) {
  for (const char* file : {"1f1b_2x4.json", "1f1b_4x8.json"}) {
    const Job job = without_passes(test::pipeline(file));
    const Prediction predicted = of_job(job);
    const Program& program = job.programs[predicted.simulation.reported_class];
    const std::vector<TimedOp> whole = whole_step(predicted.run);
    const Replay replayed =
        replay(program, *program.find_plan(PlanRole::train), whole, predicted.run.time.step);
    std::map<std::string, int> waiters;  // by segment
    for (const WaitEdge& edge : replayed.waits) {
      EXPECT_LE(whole[edge.awaited].end, whole[edge.waiter].start) << whole[edge.waiter].op->name;
      ++waiters[whole[edge.waiter].op->segment];
    }
    EXPECT_GT(waiters["first"], 0);
    EXPECT_GT(waiters["steady"], waiters["first"]);
  }
}

TEST(TraceModel, MemoryOfAnotherClassIsNamed) {
  const Job job = without_passes(test::pipeline());
  const Prediction predicted = of_job(job);
  const auto model = trace_model(predicted.run, &job.programs[predicted.simulation.reported_class]);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->memory_of, "stage_0");  // the fullest; times are those of stage 1
}

}  // namespace
}  // namespace mfsdp
