#include "core/plan/live_buffers.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

Op acquire(int buffer) {
  Op op;
  op.body = Acquire{BufferId(buffer)};
  return op;
}

Op release(int buffer) {
  Op op;
  op.body = Release{BufferId(buffer)};
  return op;
}

Segment segment(const char* name, std::int64_t repeat, std::int64_t microbatches) {
  Segment made;
  made.name = name;
  made.repeat = repeat;
  made.microbatches = microbatches;
  return made;
}

using Ids = std::vector<BufferId>;

// Two microbatches are begun before the first one ends: two instances of buffer 1 are live between.
TEST(LiveBuffers, AreListedOnceForEachInstance) {
  Plan plan;
  plan.passes = {{.id = PassId(0), .name = "forward", .ops = {acquire(1)}},
                 {.id = PassId(1), .name = "backward", .ops = {release(1)}}};
  plan.segments = {segment("warm_up", 2, 1), segment("steady", 3, 1), segment("drain", 2, 0)};
  plan.segments[0].calls = {{PassId(0)}};
  plan.segments[1].calls = {{PassId(1), 1}, {PassId(0)}};
  plan.segments[2].calls = {{PassId(1), 1, -1}};
  state_live_buffers(plan);
  EXPECT_EQ(plan.segments[0].live_in, Ids{});
  EXPECT_EQ(plan.segments[0].live_out, (Ids{BufferId(1), BufferId(1)}));
  EXPECT_EQ(plan.segments[1].live_out, plan.segments[1].live_in);
  EXPECT_EQ(plan.segments[2].live_out, Ids{});
}

// A kept buffer's release by a renewal is no end of a lifetime.
TEST(LiveBuffers, WhatIsLiveBeforeTheStepStays) {
  Plan plan;
  plan.segments = {segment("only", 1, 1)};
  plan.segments[0].ops = {release(2), acquire(3), release(3)};
  const Ids first{BufferId(1)};
  state_live_buffers(plan, first);
  EXPECT_EQ(plan.segments[0].live_in, first);
  EXPECT_EQ(plan.segments[0].live_out, first);
}

}  // namespace
}  // namespace mfsdp
