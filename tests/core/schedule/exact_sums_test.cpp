#include "core/schedule/exact_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/exact_sums.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig exact_config() {
  PlanConfig config = test::small_config(2);
  config.exact_sums = true;
  config.micro_batch = 3;
  config.microbatches = 2;
  return config;
}

// 2 ranks x 2 microbatches x 3 sequences of 16 tokens: 192 tokens, below 2^8; 3 + 8 - 24 = -13.
TEST(ExactSums, GridOfTheGlobalBatch) {
  PlanConfig config = exact_config();
  EXPECT_EQ(exact_sums(config).exponent, -13);
  EXPECT_EQ(exact_sums(config).piece_rows, 8);  // a chunk of logits
  config.model.qk_norm = true;
  EXPECT_EQ(exact_sums(config).piece_rows, 16);  // a sequence
  config.model.qk_norm = false;
  config.mesh = data_parallel_mesh(3, 4);
  config.micro_batch = config.microbatches = 1;
  EXPECT_EQ(exact_sums(config).exponent, -13);  // the same global batch
}

TEST(ExactSums, LimitsLeaveRoomForWhatIsStillToBeAdded) {
  PlanConfig config = exact_config();
  EXPECT_EQ(exact_sums(config).rank_limit, 1 << 22);  // 2^23, but rounding takes another bit
  config.mesh = data_parallel_mesh(8, 4);
  EXPECT_EQ(exact_sums(config).rank_limit, 1 << 19);
  EXPECT_EQ(exact_sums(config).outer_limit, 1 << 21);
}

std::string error_of(const PlanConfig& config) {
  const auto outcome = validate(config);
  return outcome ? "" : outcome.error().message();
}

TEST(ExactSums, NamesTheFlagThatDoesNotFit) {
  PlanConfig config = exact_config();
  EXPECT_EQ(error_of(config), "");
  config.reduce_dtype = DType::bf16;
  EXPECT_EQ(error_of(config), "--reduce-dtype: expected fp32 with --exact-sums, got bf16");
  config = exact_config();
  config.logits_chunk = 24;
  EXPECT_EQ(error_of(config),
            "--logits-chunk: expected a multiple or a divisor of the 16 tokens of a sequence with "
            "--exact-sums, got 24");
  config.exact_sums = false;
  EXPECT_EQ(error_of(config), "");
  config = exact_config();
  config.mesh.resize(Axis::dp_shard, 65'537);
  EXPECT_EQ(error_of(config), "--exact-sums: expected at most 65536 GPUs, got 65537");
}

/// Kernels of the train plan that have the attribute.
std::int64_t kernels_with(const PlanConfig& config, std::string_view attribute) {
  std::int64_t count = 0;
  const Program program = build_program(config, {}).value();
  for (const Segment& segment : program.plans.front().segments)
    for (const Op& op : segment.ops)
      if (const auto* kernel = std::get_if<Kernel>(&op.body))
        count += std::ranges::count(kernel->attributes, attribute, &Attribute::name);
  return count;
}

TEST(ExactSums, PlansWithoutThemSayNothing) {
  PlanConfig config = exact_config();
  config.exact_sums = false;
  for (const std::string_view name :
       {exact_attribute::piece_rows, exact_attribute::sum_limit, exact_attribute::grid_exponent})
    EXPECT_EQ(kernels_with(config, name), 0);
}

// One block, one microbatch of one sequence in two chunks. Adding gradients: 4 matrices of the
// block, 2 chunks of the head, 3 norms in two stages, the lookup; a second microbatch also an
// accumulate for each of three units.
TEST(ExactSums, KernelsThatAddGradientsAreTold) {
  PlanConfig config = test::small_config(2, 1);
  config.exact_sums = true;
  const std::int64_t add = 4 + 2 + 3 * 2 + 1;
  EXPECT_EQ(kernels_with(config, exact_attribute::sum_limit), add);
  // A partial for each unit, and the norm.
  EXPECT_EQ(kernels_with(config, exact_attribute::grid_exponent), add + 3 + 1);
  // Forward and input gradient of 4 matrices and 2 chunks.
  EXPECT_EQ(kernels_with(config, exact_attribute::piece_rows), add + 2 * (4 + 2));
  config.microbatches = 2;
  EXPECT_EQ(kernels_with(config, exact_attribute::sum_limit), 2 * add + 3);
}

TEST(ExactSums, AttributesStaySorted) {
  const Program program = build_program(exact_config(), {}).value();
  for (const Segment& segment : program.plans.front().segments)
    for (const Op& op : segment.ops)
      if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
        EXPECT_TRUE(std::ranges::is_sorted(kernel->attributes, {}, &Attribute::name)) << op.name;
      }
}

TEST(ExactSums, PartialsOfTheNormAreWholeNumbers) {
  const Program program = build_program(exact_config(), {}).value();
  const auto buffer = [&](std::string_view name) {
    return *std::ranges::find(program.buffers, name, &Buffer::name);
  };
  EXPECT_EQ(buffer("norm_partials").dtype, DType::int64);
  EXPECT_EQ(buffer("gathered_norms").size, Bytes(2 * 4 * 8));  // ranks, units, bytes
}

/// The exponent of the grid is negative, as no other number of a plan is.
TEST(ExactSums, PlansReadBackAsTheyWereWritten) {
  const Program program = build_program(exact_config(), {}).value();
  const std::string text = to_canonical_json(program);
  const auto back = program_from_json(text, "plan.json");
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(to_canonical_json(*back), text);
}

}  // namespace
}  // namespace mfsdp
