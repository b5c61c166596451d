// FSDP1's step, from hand arithmetic and from a recorded run (docs/lab/2026-11-30-engines-6.md).
#include "sim/engines/fsdp1.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/engines/flat_parameter.hpp"
#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::framework_plan;
using test::kSmallBlock;
using test::kSmallParameters;
using test::small_llama;

constexpr EngineKind kFsdp1Engine = EngineKind::fsdp1;

EnginePlan plan_of_fsdp1(const std::vector<std::string>& options = {}) {
  return framework_plan(kFsdp1Engine, config_of(small_llama(), 3072), options);
}

TEST(FlatParameters, AreAlignedAndPadded) {
  const FlatParameter flat = flat_parameter({{"a", 5}, {"b", 10}}, 4);
  EXPECT_EQ(flat.begins, (std::vector<std::int64_t>{0, 8}));
  EXPECT_EQ(flat.elements, 20);  // 18, to a multiple of four ranks
  EXPECT_EQ(flat.padding(), 5);
  EXPECT_EQ(flat.owned(0), 5);
  EXPECT_EQ(flat.owned(1), 0);  // the shard ends at 5
}

TEST(Fsdp1, KeepsTwelveBytesOfAShard) {
  // fp32 weights and two moments of an eighth; step counts of the embedding and, in each block, of
  // both norms and qkv: the first eighth of a block, 1,409,280 elements, ends inside qkv.
  EXPECT_EQ(test::resting_bytes(plan_of_fsdp1()), 12 * kSmallParameters / 8 + 4 * (1 + 4 * 3) +
                                                      test::kSmallInputs + test::kGemmWorkspaces);
}

TEST(Fsdp1, GathersBlocksTwiceAndTheRootOnce) {
  EXPECT_EQ(test::collective_counts(plan_of_fsdp1(), CollectiveKind::all_gather).size(), 9U);
  EXPECT_EQ(test::bytes_of(plan_of_fsdp1(), "flat_parameter"),
            2 * (kSmallParameters - 4 * kSmallBlock));
  PlanConfig config = config_of(small_llama(), 3072);
  config.strategy = Strategy::optim_grads;  // SHARD_GRAD_OP
  EXPECT_EQ(
      test::collective_counts(framework_plan(kFsdp1Engine, config), CollectiveKind::all_gather)
          .size(),
      5U);
}

TEST(Fsdp1, TheHostWaitsBeforeAThirdFlatParameterIsInUse) {
  const auto reserved = [](const std::vector<std::string>& options) {
    const EngineMemory memory = engine_memory(plan_of_fsdp1(options), {});
    for (const StreamMemory& stream : memory.streams)
      if (stream.name == "all_gather") return stream.reserved.value;
    return std::int64_t{0};
  };
  // Unlimited, the gathers of four blocks' forward and backward share nothing.
  EXPECT_GE(reserved({"limit_all_gathers=false"}) - reserved({}), 4 * 2 * kSmallBlock);
}

// Recorded: backward's hooks run on the stream of gathers, where flat parameters were allocated.
TEST(Fsdp1, OtherStreamsHoldFlatParametersOfForwardAlone) {
  const auto held = [](const PlanConfig& config, std::string_view name) {
    const EnginePlan plan = framework_plan(kFsdp1Engine, config);
    return std::ranges::count_if(host_allocations(plan, 1), [&](const HostAllocation& one) {
      return one.in_use && plan.program.buffers[one.buffer.value].name.ends_with(name);
    });
  };
  PlanConfig config = config_of(small_llama(), 3072);
  EXPECT_EQ(held(config, ".flat_parameter"), 4);  // of four blocks, not of the root
  EXPECT_EQ(held(config, ".shard_bf16"), 9);      // of all gathers
  config.strategy = Strategy::optim_grads;
  EXPECT_EQ(held(config, ".flat_parameter"), 0);
}

// A GPU that keeps up with its host returns memory at once; one that never does, at the step's end.
TEST(Fsdp1, HoldsNoMoreThanTheStreamsHaveNotPassed) {
  EnginePlan plan = framework_plan(kFsdp1Engine, config_of(small_llama(), 3072));
  const std::int64_t by_waits = engine_memory(plan, {}).counters.peak_reserved;
  std::size_t ops = 0;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    ops += segment.ops.size() * static_cast<std::size_t>(segment.repeat);
  plan.moments.assign(ops, {.issued = 1, .passed = 0});
  const std::int64_t at_once = engine_memory(plan, {}).counters.peak_reserved;
  plan.moments.assign(ops, {.issued = 0, .passed = 1});
  const std::int64_t at_the_end = engine_memory(plan, {}).counters.peak_reserved;
  EXPECT_LE(at_once, by_waits);
  // Flat parameters of four blocks' forward are all held.
  EXPECT_GE(at_the_end - at_once, 3 * 2 * kSmallBlock);
}

TEST(Fsdp1, NoSyncKeepsWholeGradients) {
  // At the loss of the second microbatch: 2 bytes a parameter in place of 4 of a shard.
  PlanConfig config = config_of(small_llama(), 3072);
  config.microbatches = 2;
  const auto peak = [&](const std::vector<std::string>& options) {
    return engine_memory(framework_plan(kFsdp1Engine, config, options), {}).counters.peak_allocated;
  };
  // The allocator leaves up to 1 MiB in the block of each gradient, of the root's and of four blocks'.
  constexpr double kUnsplit = 5 * (1 << 20);
  EXPECT_NEAR(static_cast<double>(peak({"no_sync=true"}) - peak({})),
              static_cast<double>(2 * kSmallParameters - 4 * kSmallParameters / 8), kUnsplit);
}

RC_GTEST_PROP(Fsdp1, EachAllocationIsFreedOrKept, ()) {
  PlanConfig config = test::any_engine_config();
  RC_PRE(config.mesh.world_size() > 1);
  if (test::pick({0, 1}) == 1) config.strategy = Strategy::optim_grads;
  std::vector<std::string> options;
  for (const char* word : {"limit_all_gathers", "forward_prefetch", "backward_prefetch", "no_sync"})
    options.push_back(std::string(word) + (test::pick({0, 1}) == 1 ? "=true" : "=false"));
  test::check_balance(framework_plan(kFsdp1Engine, config, options));
}

}  // namespace
}  // namespace mfsdp
