// Plans whose frozen linear layers are stored in 4 bits (core/plan/nf4.hpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/model/lora.hpp"
#include "core/plan/nf4.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "core/shard/groups.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig qlora(PlanConfig config) {
  config.layout = LayoutRule::packed;
  config.lora_rank = 16;
  config.lora_alpha = {8, 1};
  config.lora_targets = {"q_proj", "v_proj"};
  config.base_dtype = BaseDType::nf4;
  return config;
}

PlanConfig llama3_8b(std::int64_t ranks) {
  PlanConfig config;
  config.model =
      load_model("llama3_8b", std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")
          ->shape;
  config.mesh = data_parallel_mesh(1, ranks);
  return qlora(config);
}

const Buffer* buffer_called(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.buffers, name, &Buffer::name);
  return found == program.buffers.end() ? nullptr : &*found;
}

/// QLoRA's paper, section 3: double quantisation takes the scales from 0.5 bits a parameter to
/// 8/64 + 32/(64 * 256) = 0.127.
TEST(QuantisedBase, HasTheBitsOfThePaper) {
  constexpr std::int64_t kElements = 218'103'808;  // a block of Llama-3-8B without its norms
  ASSERT_EQ(kElements % kNf4Elements, 0);
  EXPECT_EQ(8 * nf4_bytes(kElements),
            4 * kElements + 8 * (kElements / 64) + 32 * (kElements / (64 * 256)));
}

/// Linear layers of blocks alone, each rank with its part.
TEST(QuantisedBase, IsStoredInFourBits) {
  const Program program = build_program(llama3_8b(8), {}).value();
  const Buffer* const base = buffer_called(program, "layers.0.base.model_weight");
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(base->dtype, DType::uint8);
  EXPECT_EQ(base->size, Bytes(nf4_bytes(218'103'808) / 8));
  EXPECT_EQ(buffer_called(program, "layers.0.base.scale_means")->size, Bytes(4 * 4));
  // Two norms, of 4096 elements each, are frozen in bf16; so are embedding and head.
  EXPECT_GE(buffer_called(program, "layers.0.frozen.model_weight")->size, Bytes(2 * 2 * 4096 / 8));
  EXPECT_EQ(buffer_called(program, "head.frozen.model_weight")->dtype, DType::bf16);
  EXPECT_EQ(buffer_called(program, "embedding.base.model_weight"), nullptr);
  // The gathered buffer has the stored bytes. Weights in bf16 are beside it.
  EXPECT_EQ(buffer_called(program, "layers.0.weights.0.stored")->size,
            Bytes(nf4_bytes(218'103'808)));
  EXPECT_GE(buffer_called(program, "layers.0.weights.0")->size, Bytes(2 * 218'103'808));
}

/// Every use of a block has its weights made once, after they were gathered, by a kernel that moves
/// their bytes.
TEST(QuantisedBase, IsDequantisedForEachUse) {
  for (const std::int64_t ranks : {1, 2}) {
    PlanConfig config = qlora(test::small_config(ranks));
    const Program program = build_program(config, {}).value();
    const auto read = program_from_json(to_canonical_json(program), "plan");  // checks it
    ASSERT_TRUE(read) << read.error().message();
    std::int64_t made = 0;
    std::int64_t gathers = 0;
    for (const Segment& segment : program.plans[0].segments)
      for (const Op& op : segment.ops) {
        const auto* const kernel = std::get_if<Kernel>(&op.body);
        made += kernel != nullptr && kernel->kind == KernelKind::dequantise ? segment.repeat : 0;
        gathers += op.name.ends_with(".base.all_gather") ? segment.repeat : 0;
      }
    const std::int64_t uses = 2 * config.model.layers * config.microbatches;
    EXPECT_GE(made, uses - 1);  // the last block may stay for its backward
    EXPECT_LE(made, uses);
    EXPECT_EQ(gathers, ranks > 1 ? made : 0);
  }
}

TEST(QuantisedBase, LiesUnderAdaptersAlone) {
  const auto error_of = [](const PlanConfig& config) { return validate(config).error().message(); };
  PlanConfig config = llama3_8b(8);
  ASSERT_TRUE(validate(config));
  config.layout = LayoutRule::megatron_fsdp;
  EXPECT_EQ(error_of(config), "--base-dtype: expected --layout packed with nf4");
  config = llama3_8b(8);
  config.lora_rank = 0;
  config.lora_alpha = {};
  config.lora_targets.clear();
  EXPECT_EQ(error_of(config),
            "--base-dtype: expected --lora-rank with nf4: a base of 4 bits is frozen");
}

}  // namespace
}  // namespace mfsdp
