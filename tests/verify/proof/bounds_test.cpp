#include "verify/proof/memory/bounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::PlanBuilder;

/// Gradients of 256 bytes, each acquired on compute and released on the reductions' stream;
/// compute waits for the reduction before the last but `slots`.
Program gradients(int slots) {
  PlanBuilder plan;
  plan.program.config.grad_slots = 2;
  for (int i = 0; i < 4; ++i) {
    const BufferId grad = plan.buffer("grad" + std::to_string(i));
    plan.program.buffers.back().category = Category::unsharded_grad;
    plan.wait(plan.compute, "reduced" + std::to_string((i + 4 - slots) % 4));
    plan.acquire(plan.compute, grad);
    plan.kernel(plan.compute, "backward", {}, {grad});
    plan.record(plan.compute, "ready" + std::to_string(i));
    plan.wait(plan.reduce, "ready" + std::to_string(i));
    plan.release(plan.reduce, grad);
    plan.record(plan.reduce, "reduced" + std::to_string(i));
  }
  return plan.finish();
}

TEST(Bounds, LiveGradientsOverAllInterleavings) {
  for (int slots = 1; slots <= 4; ++slots) {
    const auto proof = prove(gradients(slots));
    EXPECT_EQ(proof->bounds.live_full_gradients, slots);
    EXPECT_EQ(proof->bounds.peak.value, 256 * slots);
    EXPECT_EQ(proof->bounds.pools[0].lower_bound.value, 256 * slots);
    EXPECT_EQ(proof->bounds.pools[0].height.value, 1 << 20);
    EXPECT_EQ(test::rules_of(gradients(slots)),
              slots <= 2 ? std::set<std::string>{} : std::set<std::string>{"MF602"});
  }
}

TEST(Bounds, LiveWeights) {
  for (const std::int64_t live : {1, 2, 3}) {
    PlanBuilder plan;
    plan.program.config.prefetch = 1;
    std::vector<BufferId> weights;
    for (std::int64_t i = 0; i < live; ++i) {
      weights.push_back(plan.buffer("w" + std::to_string(i)));
      plan.program.buffers.back().category = Category::unsharded_weight;
      plan.acquire(plan.gather, weights.back());
    }
    for (const BufferId id : weights) plan.release(plan.gather, id);
    EXPECT_EQ(prove(plan.finish())->bounds.live_full_weights, live);
    EXPECT_EQ(test::rules_of(plan.finish()),
              live <= 2 ? std::set<std::string>{} : std::set<std::string>{"MF601"});
  }
}

TEST(Bounds, StatedLowerBound) {
  Program program = gradients(2);
  program.pools[0].lower_bound = Bytes(512);
  EXPECT_EQ(test::finding_of(program, "MF603").rule, "");
  program.pools[0].lower_bound = Bytes(511);
  EXPECT_EQ(
      test::finding_of(program, "MF603").message,
      "pool 'device' states a lower bound of 511 bytes, but its plans have up to 512 bytes live");
}

TEST(Bounds, PersistentBuffersAndTheHost) {
  PlanBuilder plan;
  plan.buffer("state", true);
  plan.buffer("pinned", true, 0, plan.host);
  const auto proof = prove(plan.finish());
  EXPECT_EQ(proof->bounds.peak.value, 256);  // of the device
  EXPECT_EQ(proof->bounds.pools[1].lower_bound.value, 256);
}

}  // namespace
}  // namespace mfsdp
