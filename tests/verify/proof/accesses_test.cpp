#include "verify/proof/order/accesses.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/plan/structure_faults.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::op_at;
using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

/// A sound plan with one op of most kinds; edits break it.
struct Sound : PlanBuilder {
  BufferId state = buffer("state", true);
  BufferId temporary = buffer("temporary");
  OpId acquired = acquire(compute, temporary);
  OpId worked = kernel(compute, "work", {state}, {temporary});
  OpId summed;
  OpId recorded;
  OpId waited;

  Sound() {
    release(compute, temporary);
    recorded = record(compute, "worked");
    waited = wait(reduce, "worked");
    add(reduce, "begin", GroupBegin{.communicator = reductions});
    summed = collective(reduce, "sum", reductions, state);
    add(reduce, "end", GroupEnd{.communicator = reductions});
    record(reduce, "summed");
    wait(compute, "summed");
  }
};

std::set<std::string> rules_after(const std::function<void(Program&, Sound&)>& edit) {
  Sound sound;
  Program program = sound.finish();
  edit(program, sound);
  return rules_of(program);
}
Operand& output_of_work(Program& program, const Sound& sound) {
  return std::get<Kernel>(op_at(program, sound.worked).body).operands.back();
}

TEST(Structure, SoundPlan) {
  EXPECT_THAT(rules_after([](Program&, Sound&) {}), IsEmpty());
}

TEST(Structure, UnknownIds) {
  const std::vector<std::function<void(Program&, Sound&)>> edits{
      [](Program& p, Sound&) { p.buffers[0].pool = PoolId(7); },
      [](Program& p, Sound&) { p.pools[0].registered = CommunicatorId(7); },
      [](Program& p, Sound& s) { op_at(p, s.worked).stream = StreamId(0xFFFFFFFF); },
      [](Program& p, Sound& s) { op_at(p, s.worked).unit = UnitId(7); },
      [](Program& p, Sound& s) { output_of_work(p, s).buffer = BufferId(0xFFFFFFFF); },
      [](Program& p, Sound& s) { op_at(p, s.acquired).body = Acquire{.buffer = BufferId(7)}; },
      [](Program& p, Sound& s) { op_at(p, s.recorded).body = Record{.event = EventId(7)}; },
      [](Program& p, Sound& s) {
        std::get<Wait>(op_at(p, s.waited).body).bindings = {{s.worked, 0}};
      },
      [](Program& p, Sound& s) {
        std::get<Collective>(op_at(p, s.summed).body).communicator = CommunicatorId(7);
      },
      [](Program& p, Sound&) { p.plans[0].segments[0].live_in = {BufferId(7)}; }};
  for (std::size_t i = 0; i < edits.size(); ++i)
    EXPECT_THAT(rules_after(edits[i]), ElementsAre("MF001")) << "edit " << i;
}

TEST(Structure, DoubleIds) {
  EXPECT_THAT(rules_after([](Program& p, Sound&) { p.events[1].id = p.events[0].id; }),
              testing::Contains("MF002"));
  EXPECT_THAT(rules_after([](Program& p, Sound& s) { op_at(p, s.worked).id = s.acquired; }),
              ElementsAre("MF002"));
}

TEST(Structure, OutOfBounds) {
  EXPECT_THAT(rules_after([](Program& p, Sound& s) { output_of_work(p, s).offset = 1; }),
              ElementsAre("MF003"));
  EXPECT_THAT(rules_after([](Program& p, Sound&) { p.pools[0].height = Bytes(511); }),
              ElementsAre("MF003"));
  // The second rank's part leaves the buffer at one end or the other.
  for (const std::int64_t step : {1, -1})
    EXPECT_THAT(rules_after([&](Program& p, Sound& s) {
                  output_of_work(p, s).rank_strides = {{.axis = Axis::dp_shard, .bytes = step}};
                }),
                ElementsAre("MF003"));
}

TEST(Structure, NumbersThatNoPlanHas) {
  const std::vector<std::function<void(Program&, Sound&)>> edits{
      [](Program& p, Sound& s) { output_of_work(p, s).offset = -1; },
      [](Program& p, Sound& s) { output_of_work(p, s).offset = kLargest; },
      [](Program& p, Sound& s) { output_of_work(p, s).shape = {kLargest, kLargest}; },
      [](Program& p, Sound& s) { output_of_work(p, s).shape = {-1, 256}; },
      [](Program& p, Sound& s) { output_of_work(p, s).strides = {1, 1}; },
      [](Program& p, Sound& s) {
        output_of_work(p, s).rank_strides = {{.axis = Axis::dp_shard, .bytes = kLargest}};
      },
      [](Program& p, Sound&) { p.buffers[0].offset = Bytes(-256); },
      [](Program& p, Sound&) { p.buffers[0].offset = Bytes(13); },
      [](Program& p, Sound&) { p.pools[0].alignment = 0; },
      [](Program& p, Sound&) { p.plans[0].segments[0].repeat = 0; },
      [](Program& p, Sound&) { p.config.mesh.resize(Axis::dp_shard, 0); },
      [](Program& p, Sound&) {
        Group& group = p.groups.emplace_back();
        group.unit = p.units.emplace_back().id;
        group.cut = {Axis::dp_shard, Axis::dp_shard};
      },
      [](Program& p, Sound&) { p.buffers[0].holds = Contents{.kind = ContentKind::gradient}; },
      [](Program& p, Sound& s) { op_at(p, s.acquired).body = Acquire{.buffer = s.state}; },
      [](Program& p, Sound& s) {
        std::get<Wait>(op_at(p, s.waited).body).bindings.front().distance = -1;
      },
      [](Program& p, Sound& s) { op_at(p, s.acquired).lag = 1; },
      [](Program& p, Sound& s) { p.buffers[s.state.value].instances = 2; },
      [](Program& p, Sound&) { p.buffers[1].instances = 1; },
      [](Program& p, Sound&) { p.events[0].instances = 5000; },
      [](Program& p, Sound& s) {
        std::get<Collective>(op_at(p, s.summed).body).peer = PeerStep{.axis = Axis::dp_shard};
      },
      [](Program& p, Sound& s) {
        std::get<Collective>(op_at(p, s.summed).body).kind = CollectiveKind::send;
      },
      [](Program& p, Sound& s) {
        std::get<Wait>(op_at(p, s.waited).body).bindings.front().distance = kLargest;
      },
      [](Program& p, Sound& s) { std::get<Wait>(op_at(p, s.waited).body).bindings.clear(); },
      [](Program& p, Sound& s) { std::get<Collective>(op_at(p, s.summed).body).count = -1; }};
  for (std::size_t i = 0; i < edits.size(); ++i)
    EXPECT_THAT(rules_after(edits[i]), ElementsAre("MF004")) << "edit " << i;
}

TEST(Structure, StridesTwiceAlongAnAxis) {
  EXPECT_THAT(rules_after([&](Program& p, Sound& s) {
                output_of_work(p, s).rank_strides = {{.axis = Axis::dp_shard, .bytes = 0},
                                                     {.axis = Axis::dp_shard, .bytes = 0}};
              }),
              ElementsAre("MF004"));
}

TEST(Structure, ManyStreams) {
  EXPECT_THAT(rules_after([](Program& p, Sound&) {
                while (p.streams.size() <= kMostPlanStreams)
                  p.streams.push_back({.id = StreamId(p.streams.size())});
              }),
              ElementsAre("MF004"));
}

TEST(Structure, Groups) {
  const auto group_rules = [](const std::vector<OpKind>& kinds) {
    PlanBuilder plan;
    plan.buffer("state", true);
    for (const OpKind kind : kinds) {
      if (kind == OpKind::group_begin) plan.add(plan.gather, "begin", GroupBegin{plan.gathers});
      if (kind == OpKind::group_end) plan.add(plan.gather, "end", GroupEnd{plan.gathers});
      if (kind == OpKind::record) plan.record(plan.gather, "inside");
    }
    return rules_of(plan.finish());
  };
  using enum OpKind;
  EXPECT_THAT(group_rules({group_begin, group_end, record}), IsEmpty());
  EXPECT_THAT(group_rules({group_begin, group_begin, group_end}), ElementsAre("MF005"));
  EXPECT_THAT(group_rules({group_begin}), ElementsAre("MF005"));
  EXPECT_THAT(group_rules({group_end}), ElementsAre("MF005"));
  EXPECT_THAT(group_rules({group_begin, record, group_end}), ElementsAre("MF005"));
  PlanBuilder other;
  other.buffer("state", true);
  other.add(other.gather, "begin", GroupBegin{other.gathers});
  other.add(other.gather, "end", GroupEnd{other.reductions});
  EXPECT_THAT(rules_of(other.finish()), ElementsAre("MF005"));
}

}  // namespace
}  // namespace mfsdp
