#include "core/model/lora.hpp"

#include <gtest/gtest.h>

#include "core/model/model_shape.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// Llama-3-8B: hidden 4096, 32 query and 8 key heads of 128, inner 14336, 32 layers.
ModelShape llama3_8b() {
  ModelShape shape = test::small_config().model;
  shape.vocab = 128256;
  shape.hidden = 4096;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.intermediate = 14336;
  shape.layers = 32;
  shape.tied_embeddings = false;
  return shape;
}

std::int64_t parameters_of(std::int64_t rank, const std::vector<std::string>& targets) {
  Model model = make_model(llama3_8b(), DType::bf16);
  const std::int64_t before = model.parameter_count();
  add_lora(model, rank, targets);
  return model.parameter_count() - before;
}

// A layer of n outputs and k inputs has rank (n + k) of them. PEFT prints these two numbers too.
TEST(Lora, CountsAsPeftDoes) {
  // q: 4096 + 4096, v: 1024 + 4096
  EXPECT_EQ(parameters_of(8, {"q_proj", "v_proj"}), 32 * 8 * (8192 + 5120));  // 3,407,872
  // and k: 5120, o: 8192, gate and up: 4096 + 14336 each, down: 18432
  EXPECT_EQ(parameters_of(
                16, {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
            32 * 16 * (8192 + 5120 + 5120 + 8192 + 3 * 18432));  // 41,943,040
}

TEST(Lora, StandsLastInTheUnitsOfBlocks) {
  Model model = make_model(llama3_8b(), DType::bf16);
  add_lora(model, 4, {"o_proj", "up_proj"});
  const Unit& block = model.units[1];
  ASSERT_EQ(block.parameters.size(), 6U + 4U);
  std::vector<std::string> names;
  for (std::size_t i = 6; i < 10; ++i) {
    const Parameter& parameter = model.parameters[block.parameters[i]];
    names.push_back(parameter.name);
    EXPECT_TRUE(is_lora(parameter.name));
    EXPECT_TRUE(is_lora(parameter.role));
    EXPECT_EQ(parameter.unit, block.id);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"model.layers.0.self_attn.o_proj.lora_A.weight",
                                             "model.layers.0.self_attn.o_proj.lora_B.weight",
                                             "model.layers.0.mlp.up_proj.lora_A.weight",
                                             "model.layers.0.mlp.up_proj.lora_B.weight"}));
  const Parameter& b = model.parameters[block.parameters[9]];
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{14336, 4}));
  for (const Unit& unit : model.units)
    for (const std::size_t p : unit.parameters) EXPECT_EQ(model.parameters[p].unit, unit.id);
}

TEST(Lora, LayersAreRowsOfTheirMatrix) {
  const ModelShape shape = llama3_8b();
  const auto targets = lora_targets(shape);
  ASSERT_EQ(targets.size(), 7U);
  EXPECT_EQ(targets[2].name, "v_proj");
  EXPECT_EQ(targets[2].begin, 4096 + 1024);  // after query and key
  EXPECT_EQ(targets[2].begin + targets[2].outputs, shape.qkv_width());
  EXPECT_EQ(targets[5].name, "up_proj");
  EXPECT_EQ(targets[5].begin, 14336);  // after gate
}

}  // namespace
}  // namespace mfsdp
