// FSDP2's options: reductions, units, types between steps.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::small_llama;

EnginePlan plan_of_options(const PlanConfig& config, const std::vector<std::string>& options) {
  return test::plan_of(EngineKind::fsdp2, config, test::engine_options(options));
}

/// Collectives of a step, by their kind.
std::map<CollectiveKind, std::int64_t> collectives_of(const EnginePlan& plan) {
  std::map<CollectiveKind, std::int64_t> count;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops)
      if (const auto* made = std::get_if<Collective>(&op.body)) count[made->kind] += segment.repeat;
  return count;
}

std::int64_t allocated(const EnginePlan& plan) {
  return engine_memory(plan, {}).counters.peak_allocated;
}

/// Four microbatches reduce each of five units four times, or once. In between, a rank keeps whole
/// gradients in fp32, and no shards of them.
TEST(Fsdp2Options, AccumulateUnsharded) {
  PlanConfig config = config_of(small_llama(), 3072);
  config.microbatches = 4;
  const EnginePlan plain = plan_of_options(config, {});
  const EnginePlan unreduced = plan_of_options(config, {"--accumulate-unsharded"});
  constexpr CollectiveKind kReduce = CollectiveKind::reduce_scatter;
  EXPECT_EQ(collectives_of(plain)[kReduce], 4 * 5);
  EXPECT_EQ(collectives_of(unreduced)[kReduce], 5);
  EXPECT_EQ(collectives_of(unreduced)[CollectiveKind::all_gather],
            collectives_of(plain)[CollectiveKind::all_gather]);
  const auto elements = make_model(config.model, DType::bf16).parameter_count();
  const auto more = static_cast<double>(allocated(unreduced) - allocated(plain));
  EXPECT_NEAR(more, 4.0 * static_cast<double>(elements - elements / 8), 0.01 * more);
  // Reductions in bf16 need no cast: gradients stay in bf16.
  config.reduce_dtype = DType::bf16;
  const auto narrow =
      static_cast<double>(allocated(plan_of_options(config, {"--accumulate-unsharded"})) -
                          allocated(plan_of_options(config, {})));
  EXPECT_NEAR(narrow, 2.0 * static_cast<double>(elements) - 4.0 * static_cast<double>(elements / 8),
              0.01 * narrow);
}

TEST(Fsdp2Options, OneMicrobatchIsReducedAnyway) {
  const PlanConfig config = config_of(small_llama(), 3072);
  EXPECT_EQ(allocated(plan_of_options(config, {})),
            allocated(plan_of_options(config, {"--accumulate-unsharded"})));
}

/// Weights and both moments: 3 * 4 bytes of a rank's eighth, or 3 * 2.
TEST(Fsdp2Options, WeightsInBf16HaveStatesInBf16) {
  PlanConfig config = config_of(small_llama(), 3072);
  const auto state = [&] {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : plan_of_options(config, {}).program.buffers)
      if (buffer.category == Category::main_weight || buffer.category == Category::optimizer_state)
        bytes += buffer.size.value;
    return bytes;
  };
  const auto elements = make_model(config.model, DType::bf16).parameter_count();
  constexpr std::int64_t kSteps = 4 * (4 * 6 + 3);  // a counter of each weight, in fp32
  EXPECT_EQ(state(), 12 * elements / 8 + kSteps);
  config.main_dtype = DType::bf16;
  EXPECT_EQ(state(), 6 * elements / 8 + kSteps);
}

/// Gathers in forward and backward, and reductions, of four blocks and the root.
TEST(Fsdp2Options, UnitsAreGatheredAndReducedAtOnce) {
  const PlanConfig config = config_of(small_llama(), 3072);
  const auto counts = [&](const std::string& units, const std::string& modules = "fused") {
    const auto made =
        collectives_of(plan_of_options(config, {"--fsdp-unit=" + units, "--modules=" + modules}));
    return std::pair(made.at(CollectiveKind::all_gather), made.at(CollectiveKind::reduce_scatter));
  };
  EXPECT_EQ(counts("block"), std::pair(1L + 2 * 4, 1L + 4));
  EXPECT_EQ(counts("model"), std::pair(1L, 1L));
  EXPECT_EQ(counts("blocks:2"), std::pair(1L + 2 * 2, 1L + 2));
  EXPECT_EQ(counts("blocks:3"), std::pair(1L + 2 * 2, 1L + 2));
  // The embedding is gathered again for backward; norm and head stay.
  EXPECT_EQ(counts("block,ends"), std::pair(2L + 2 * 4 + 1, 2L + 4));
  EXPECT_EQ(counts("parts", "transformers"), std::pair(1L + 2 * 3 * 4, 1L + 3 * 4));
}

TEST(Fsdp2Options, HaveOneSpelling) {
  const auto spelled = [](const std::string& text) {
    return test::engine_options({text}).changes(EngineKind::fsdp2);
  };
  for (const std::string text :
       {"block,ends", "blocks:2", "blocks:7,ends", "parts", "parts,ends", "model"})
    EXPECT_EQ(spelled("--fsdp-unit=" + text), "--fsdp-unit " + text);
  for (const std::string text : {"op", "3"})
    EXPECT_EQ(spelled("--selective-ac=" + text), "--selective-ac " + text);
  EXPECT_EQ(spelled("--fsdp-unit=block"), "");
  EngineOptions options;
  for (const char* text : {"", "blocks", "blocks:0", "blocks:2x", "model,ends", "block,tops"})
    EXPECT_FALSE(options.set("--fsdp-unit", text)) << text;
  for (const char* text : {"", "0", "ops", "-1"})
    EXPECT_FALSE(options.set("--selective-ac", text)) << text;
}

TEST(Fsdp2Options, ARefusalNamesAllOfThem) {
  PlanConfig config = config_of(small_llama(), 3072);
  config.recompute.kind = Recompute::full;
  config.model.tied_embeddings = true;
  const auto own = engine_config(
      EngineKind::fsdp2, config,
      test::engine_options({"--hold-logits", "--selective-ac=op", "--fsdp-unit=block,ends"}));
  ASSERT_FALSE(own);
  std::vector<std::string> flags{own.error().where};
  for (const Error& other : own.error().also) flags.push_back(other.where);
  EXPECT_EQ(flags, (std::vector<std::string>{"--selective-ac", "--selective-ac", "--hold-logits",
                                             "--fsdp-unit"}));
}

}  // namespace
}  // namespace mfsdp
