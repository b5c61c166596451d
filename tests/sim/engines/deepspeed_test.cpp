// DeepSpeed's ZeRO-1, 2 and 3, from hand arithmetic: no run of them was recorded.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "sim/engines/deepspeed_coordinator.hpp"
#include "sim/engines/deepspeed_parts.hpp"
#include "sim/engines/deepspeed_states.hpp"
#include "sim/engines/deepspeed_weights.hpp"
#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::framework_plan;
using test::kSmallInputs;
using test::kSmallParameters;
using test::kSmallVocabulary;
using test::small_llama;

constexpr EngineKind kZero1 = EngineKind::deepspeed_zero1;
constexpr EngineKind kZero2 = EngineKind::deepspeed_zero2;
constexpr EngineKind kZero3 = EngineKind::deepspeed_zero3;
constexpr std::int64_t kPart = kSmallParameters / 8;  // a multiple of 16: no padding

EnginePlan plan_of_zero(EngineKind engine, const std::vector<std::string>& options = {}) {
  return framework_plan(engine, config_of(small_llama(), 3072), options);
}

TEST(DeepSpeedStates, ArePartsBesideWholeBf16Weights) {
  // ZeRO's paper: 2 bytes a parameter, and 12 of a part, after gradients are freed.
  for (const EngineKind engine : {kZero1, kZero2})
    EXPECT_EQ(test::resting_bytes(plan_of_zero(engine)),
              2 * kSmallParameters + 12 * kPart + kSmallInputs + test::kGemmWorkspaces);
}

TEST(DeepSpeedStates, PadToTwiceTheRanks) {
  const DeepSpeedParts parts({5, 30}, 4);  // 35 elements, padded to 40
  EXPECT_EQ(parts.padded(), 40);
  EXPECT_EQ(parts.part(), 10);
  EXPECT_EQ(parts.shared(0, 1), 5);
  EXPECT_EQ(parts.shared(3, 1), 5);
  EXPECT_FALSE(parts.has(1, 0));
  const auto slices = parts.slices({1, 0});  // 5 + 10 + 10 + 5, then the 5 of rank 0
  ASSERT_EQ(slices.size(), 5U);
  EXPECT_EQ(slices.front().elements, 5);
  EXPECT_EQ(slices.back().rank, 0);
  EXPECT_EQ(parts.slices({0, 1}).front().elements, 10);  // neighbours of rank 0 are one slice
}

TEST(DeepSpeedZero2, AllReducesBucketsInTheOrderOfBackward) {
  const auto counts = [](const std::vector<std::string>& options) {
    return test::collective_counts(plan_of_zero(kZero2, options), CollectiveKind::all_reduce);
  };
  // One bucket of 5e8; then the flag of overflows, and the norm.
  EXPECT_EQ(counts({}), (std::vector<std::int64_t>{kSmallParameters, 1, 1}));
  // The head is larger than the bucket. Then norm, block 3, down, gate and up, norm of block 2.
  const auto small = counts({"reduce_bucket_size=2e7"});
  ASSERT_GE(small.size(), 2U);
  EXPECT_EQ(small[0], kSmallVocabulary);
  EXPECT_EQ(small[1], 1024 + 11'274'240 + 2'883'584 + 5'767'168 + 1024);
}

TEST(DeepSpeedZero2, TheLastRankKeepsGradientsThatItsPartShares) {
  // The last part is inside the head, of which the whole gradient is copied.
  EXPECT_EQ(test::bytes_of(plan_of_zero(kZero2), "own_gradients"), 2 * kSmallVocabulary);
  EXPECT_EQ(test::bytes_of(plan_of_zero(kZero2), "reduce_bucket"), 1'000'000'000);
}

TEST(DeepSpeedZero2, OverlapTakesASecondBucket) {
  const auto buckets = [](const EnginePlan& plan) {
    return std::ranges::count_if(plan.program.buffers, [](const Buffer& buffer) {
      return buffer.name.ends_with(".reduce_bucket");
    });
  };
  EXPECT_EQ(buckets(plan_of_zero(kZero2)), 1);
  EXPECT_EQ(buckets(plan_of_zero(kZero2, {"overlap_comm=true"})), 2);
}

TEST(DeepSpeedZero1, ReducesAfterTheLastMicrobatchInTheOrderOfModules) {
  PlanConfig config = config_of(small_llama(), 1024);
  config.microbatches = 2;
  const auto counts = [&](EngineKind engine) {
    return test::collective_counts(framework_plan(engine, config, {"reduce_bucket_size=2e7"}),
                                   CollectiveKind::all_reduce);
  };
  const auto once = counts(kZero1);
  // The embedding has all of parts 0 and 1, more than a bucket, and some of part 2; the head has some
  // of part 5 and all of parts 6 and 7, of which the last one fills the bucket.
  EXPECT_EQ(once[0], 2 * kPart);
  EXPECT_EQ(once[1], kSmallVocabulary - 2 * kPart);
  ASSERT_GE(once.size(), 5U);
  EXPECT_EQ(once.end()[-3], kSmallVocabulary);  // before the flag of overflows, and the norm
  EXPECT_GT(counts(kZero2).size(), once.size());
}

TEST(DeepSpeedZero3, KeepsSixteenBytesOfAShard) {
  // Weights and gradients in bf16, fp32 weights and two moments; the bucket; nine norms in bf16.
  EXPECT_EQ(test::resting_bytes(plan_of_zero(kZero3)),
            16 * kPart + 1'000'000'000 + 2 * 9 * 1024 + kSmallInputs + test::kGemmWorkspaces);
}

TEST(DeepSpeedZero3, GathersByModuleAndReleasesAll) {
  // No prefetch, no reuse: each of 2 + 4 x 4 matrices is gathered in forward and in backward; then,
  // after the update, the nine norms, each for itself, of which each rank has an eighth.
  const EnginePlan plan =
      plan_of_zero(kZero3, {"stage3_prefetch_bucket_size=0", "stage3_max_reuse_distance=0"});
  const auto counts = test::collective_counts(plan, CollectiveKind::all_gather);
  ASSERT_EQ(counts.size(), 2 * 18 + 9U);
  EXPECT_EQ(counts.front(), kSmallVocabulary / 8);
  EXPECT_EQ(counts[1], 1'572'864 / 8);  // qkv
  EXPECT_EQ(counts.back(), 1024 / 8);
  // A model of less than stage3_max_reuse_distance is gathered once.
  std::int64_t gathered = 0;
  for (const std::int64_t count :
       test::collective_counts(plan_of_zero(kZero3), CollectiveKind::all_gather))
    gathered += count;
  EXPECT_EQ(gathered, (kSmallParameters - 9 * 1024) / 8 + 9 * 1024 / 8);
}

TEST(DeepSpeedCoordinator, PrefetchesAndReleasesAsItsSourcesDo) {
  const DeepSpeedCoordinator::Call a{0};
  const DeepSpeedCoordinator::Call b{1};
  const DeepSpeedCoordinator::Call c{2};
  DeepSpeedCoordinator coordinator({{.elements = 10}, {.elements = 20}, {.elements = 30}},
                                   {a, b, c, c, b, a},
                                   {.prefetch_bucket = 25, .live_parameters = 1000});
  coordinator.reset();
  using List = std::vector<std::size_t>;
  auto fetched = coordinator.fetch();
  EXPECT_EQ(fetched.now, List{0});
  EXPECT_EQ(fetched.ahead, (List{1, 2}));  // 20 are fewer than 25, so 30 follow
  EXPECT_EQ(coordinator.release(a), List{0});
  fetched = coordinator.fetch();  // b is here; c and b again are passed; a is gathered
  EXPECT_EQ(fetched.now, List{});
  EXPECT_EQ(fetched.ahead, List{0});
  EXPECT_EQ(coordinator.release(b), List{});  // a later use was passed
  (void)coordinator.fetch();
  EXPECT_EQ(coordinator.release(c), List{2});  // the next call is its own
  EXPECT_EQ(coordinator.fetch().now, List{2});
  EXPECT_EQ(coordinator.release(c), List{2});
  (void)coordinator.fetch();
  EXPECT_EQ(coordinator.release(b), List{1});
  (void)coordinator.fetch();
  EXPECT_EQ(coordinator.release(a), List{0});
}

TEST(DeepSpeedCoordinator, KeepsWhatIsUsedSoon) {
  DeepSpeedCoordinator coordinator({{.elements = 10}}, {{0}, {0}}, {.reuse_distance = 1});
  coordinator.reset();
  EXPECT_EQ(coordinator.fetch().now, std::vector<std::size_t>{0});
  EXPECT_TRUE(coordinator.release({0}).empty());
  EXPECT_TRUE(coordinator.fetch().now.empty());
  EXPECT_EQ(coordinator.release({0}).size(), 1U);
}

/// Small limits in half of the cases, so that buckets are many.
std::vector<std::string> any_options(EngineKind engine) {
  std::vector<std::string> options;
  if (test::pick({0, 1}) == 1) options.emplace_back("reduce_bucket_size=100000");
  if (engine != kZero1)
    options.emplace_back(test::pick({0, 1}) == 1 ? "overlap_comm=true" : "overlap_comm=false");
  if (engine != kZero3) return options;
  if (test::pick({0, 1}) == 1) options.emplace_back("stage3_prefetch_bucket_size=50000");
  if (test::pick({0, 1}) == 1) options.emplace_back("stage3_max_live_parameters=200000");
  if (test::pick({0, 1}) == 1) options.emplace_back("stage3_max_reuse_distance=100000");
  if (test::pick({0, 1}) == 1) options.emplace_back("stage3_param_persistence_threshold=0");
  if (test::pick({0, 1}) == 1) options.emplace_back("contiguous_gradients=false");
  if (test::pick({0, 1}) == 1) options.emplace_back("sub_group_size=100000");
  return options;
}

RC_GTEST_PROP(DeepSpeed, EachAllocationIsFreedOrKept, ()) {
  PlanConfig config = test::any_engine_config();
  config.model.qk_norm = false;
  RC_PRE(config.mesh.world_size() > 1);
  const EngineKind engine = *rc::gen::element(kZero1, kZero2, kZero3);
  test::check_balance(framework_plan(engine, config, any_options(engine)));
}

}  // namespace
}  // namespace mfsdp
