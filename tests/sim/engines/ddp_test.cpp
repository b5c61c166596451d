// DDP's step, from hand arithmetic: no run of it was recorded.
#include "sim/engines/ddp.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/engines/ddp_buckets.hpp"
#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::framework_plan;
using test::kSmallParameters;
using test::small_llama;

constexpr std::int64_t kDdpTensors = 3 + 4 * 6;

EnginePlan plan_of_ddp(const std::vector<std::string>& options = {}) {
  return framework_plan(EngineKind::ddp, config_of(small_llama(), 3072), options);
}

TEST(Ddp, KeepsWeightsBucketsAndMomentsInFp32) {
  // Weights, buckets and two moments: 16 bytes a parameter; a step count for each tensor.
  EXPECT_EQ(test::resting_bytes(plan_of_ddp()),
            16 * kSmallParameters + 4 * kDdpTensors + test::kSmallInputs + test::kGemmWorkspaces);
}

TEST(Ddp, ReducesBucketsInTheOrderOfBackward) {
  // The first bucket has 1 MiB or more: the head. The next ones have 25 MiB or more.
  const std::vector<std::int64_t> expected{
      32'768'000,
      1024 + 2'883'584 + 5'767'168,                  // norm; down, gate and up of block 3
      2 * 1024 + 1'048'576 + 1'572'864 + 8'650'752,  // the rest of it; the same of block 2
      2 * 1024 + 1'048'576 + 1'572'864 + 8'650'752,
      2 * 1024 + 1'048'576 + 1'572'864 + 8'650'752,
      2 * 1024 + 1'048'576 + 1'572'864 + 32'768'000};  // block 0, embedding
  EXPECT_EQ(test::collective_counts(plan_of_ddp(), CollectiveKind::all_reduce), expected);
  EXPECT_EQ(
      test::collective_counts(plan_of_ddp({"bucket_cap_mb=1000"}), CollectiveKind::all_reduce),
      std::vector{kSmallParameters});
}

/// Bytes of buffers whose names have that end, when the first step allocates `until`.
std::int64_t live_at(const EnginePlan& plan, std::string_view end, std::string_view until) {
  std::map<std::uint32_t, std::int64_t> live;
  for (const HostAllocation& one : host_allocations(plan, 1)) {
    const std::string& name = plan.program.buffers[one.buffer.value].name;
    if (name == until) break;
    if (one.is_free)
      live.erase(one.buffer.value);
    else if (name.ends_with(end))
      live[one.buffer.value] = one.size;
  }
  std::int64_t bytes = 0;
  for (const auto& [buffer, size] : live) bytes += size;
  return bytes;
}

// All but the embedding, whose rows are looked up in fp32, and nine norms.
constexpr std::int64_t kMatrices = kSmallParameters - 32'768'000 - 9 * 1024;

TEST(Ddp, KeepsABf16CastOfEachMatrixUntilItsBackward) {
  EXPECT_EQ(live_at(plan_of_ddp(), "_cast", "root.d_loss"), 2 * kMatrices);
  // Recomputed blocks leave only the head's when autocast ends.
  PlanConfig recomputed = config_of(small_llama(), 3072);
  recomputed.recompute.kind = Recompute::full;
  EXPECT_EQ(live_at(framework_plan(EngineKind::ddp, recomputed), "_cast", "root.d_loss"),
            2 * 32'768'000);
}

TEST(Ddp, GradientsAreViewsOfBucketsIfAsked) {
  const auto gradients = [](const std::vector<std::string>& options) {
    return live_at(plan_of_ddp(options), "_grad_fp32", "root.embedding_exp_avg");
  };
  EXPECT_EQ(gradients({}), 4 * kMatrices);
  EXPECT_EQ(gradients({"gradient_as_bucket_view=true"}), 0);
}

TEST(Ddp, NoSyncReducesOnce) {
  PlanConfig config = config_of(small_llama(), 1024);
  config.microbatches = 3;
  const auto reductions = [&](const std::vector<std::string>& options) {
    return test::collective_counts(framework_plan(EngineKind::ddp, config, options),
                                   CollectiveKind::all_reduce)
        .size();
  };
  // The first microbatch, and those after it.
  EXPECT_EQ(reductions({}), 2 * 6U);
  EXPECT_EQ(reductions({"no_sync=true"}), 6U);
}

TEST(DdpBuckets, EndWithTheTensorThatFillsThem) {
  const auto buckets = ddp_buckets({3, 4, 5, 1, 9, 2}, 5, 6);
  EXPECT_EQ(buckets, (std::vector<std::vector<std::size_t>>{{0, 1}, {2, 3}, {4}, {5}}));
}

/// Largest live bytes of buckets in some steps.
std::int64_t most_of_buckets(std::int64_t steps) {
  const EnginePlan plan = plan_of_ddp();
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const HostAllocation& one : host_allocations(plan, steps)) {
    if (!plan.program.buffers[one.buffer.value].name.starts_with("root.bucket")) continue;
    live += one.is_free ? -one.size : one.size;
    most = std::max(most, live);
  }
  return most;
}

// Measured: llama3_1b allocated 40,533,649,920 bytes at most, and 35,590,424,576 without the first
// bucket's 4 bytes for each of 1,235,814,400 parameters.
TEST(Ddp, TheFirstBucketLivesUntilTheSecondBackwardReduces) {
  EXPECT_EQ(most_of_buckets(1), 4 * kSmallParameters);
  EXPECT_EQ(most_of_buckets(2), 2 * 4 * kSmallParameters);
}

RC_GTEST_PROP(Ddp, StepsKeepTheSameFromTheSecondOn, ()) {
  PlanConfig config = test::any_engine_config();
  config.model.qk_norm = false;
  config.reduce_dtype = DType::fp32;
  RC_PRE(config.mesh.world_size() > 1);
  const EnginePlan plan = framework_plan(
      EngineKind::ddp, config,
      {std::string("no_sync=") + (test::pick({0, 1}) == 1 ? "true" : "false"),
       std::string("gradient_as_bucket_view=") + (test::pick({0, 1}) == 1 ? "true" : "false")});
  const test::Balance second = test::balance_of(plan, 2);
  const test::Balance third = test::balance_of(plan, 3);
  RC_ASSERT(second.kept == third.kept);
  RC_ASSERT(third.bytes > second.bytes);
}

}  // namespace
}  // namespace mfsdp
