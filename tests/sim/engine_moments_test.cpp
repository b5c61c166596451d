#include "sim/predict/engine_moments.hpp"

#include <gtest/gtest.h>

#include "sim/engines/step_builder.hpp"

namespace mfsdp {
namespace {

Nanos ten_each(const Op& /*op*/) { return Nanos(10); }

// acquire, kernel, wait of the gathers' stream for it, kernel there, release that this stream uses.
TEST(EngineMoments, AReleaseIsPassedWhenItsStreamHasDoneWhatWasIssuedBefore) {
  PlanConfig config;
  config.mesh = data_parallel_mesh(1, 2);
  StepBuilder step(config, {});
  step.begin_segment("only", 1, 1);
  step.at(step.add_unit("root", UnitKind::embedding_and_head), Phase::forward);
  const Tensor made = step.allocate("made", 512, Category::activation);
  step.memory_bound(KernelKind::cast, "first", 1024);
  step.wait(StreamRole::all_gather, step.record(StreamRole::compute));
  step.memory_bound(KernelKind::cast, "second", 1024, StreamRole::all_gather);
  step.free_after(made, StreamRole::all_gather);
  const Mark mark = step.record(StreamRole::all_gather);
  step.host_wait(mark);
  const EnginePlan plan = step.finish();
  const std::vector<Op>& ops = plan.program.find_plan(PlanRole::train)->segments.front().ops;
  std::vector<OpTime> timeline;
  for (const Op& op : ops)
    if (std::holds_alternative<Kernel>(op.body)) {
      const std::int64_t begin = 100 * static_cast<std::int64_t>(timeline.size() + 1);
      OpTime& time = timeline.emplace_back();
      time.op = op.id;
      time.end = Nanos(begin + 50);
    }
  const std::vector<OpMoment> moments = moments_of(plan, timeline, ten_each);
  ASSERT_EQ(moments.size(), ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (std::holds_alternative<Release>(ops[i].body)) {
      EXPECT_EQ(moments[i].passed, 250);
    }
    if (!std::holds_alternative<HostWait>(ops[i].body)) {
      EXPECT_EQ(moments[i].issued, 10 * static_cast<std::int64_t>(i + 1));
    } else {
      EXPECT_EQ(moments[i].issued, 250);  // the host waited for the second kernel
    }
  }
}

}  // namespace
}  // namespace mfsdp
