#include "core/model/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/model/hf_config.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

ModelShape shape_of(const std::string& name) {
  const auto model = load_model(name, std::string(MFSDP_SOURCE_DIR) + "/scenarios/models");
  EXPECT_TRUE(model) << model.error().message();
  return model ? model->shape : ModelShape{};
}

std::vector<std::string> names_of(const Model& model, const Unit& unit) {
  std::vector<std::string> names;
  for (const std::size_t i : unit.parameters) names.push_back(model.parameters[i].name);
  return names;
}

using Strings = std::vector<std::string>;
using Dims = std::vector<std::int64_t>;

TEST(Model, UnitsOfAnUntiedModel) {
  const Model model = make_model(shape_of("llama3_8b"), DType::bf16);
  ASSERT_EQ(model.units.size(), 34u);  // embedding, 32 blocks, head
  EXPECT_EQ(model.units[0].name, "embedding");
  EXPECT_EQ(names_of(model, model.units[0]), Strings{"model.embed_tokens.weight"});
  EXPECT_EQ(model.units[4].name, "layers.3");
  EXPECT_EQ(
      names_of(model, model.units[4]),
      (Strings{"model.layers.3.input_layernorm.weight", "model.layers.3.self_attn.qkv_proj.weight",
               "model.layers.3.self_attn.o_proj.weight",
               "model.layers.3.post_attention_layernorm.weight",
               "model.layers.3.mlp.gate_up_proj.weight", "model.layers.3.mlp.down_proj.weight"}));
  EXPECT_EQ(model.units[33].name, "head");
  EXPECT_EQ(model.units[33].kind, UnitKind::head);
  EXPECT_EQ(names_of(model, model.units[33]), (Strings{"model.norm.weight", "lm_head.weight"}));
}

TEST(Model, ShapesOfALlamaBlock) {
  const Model model = make_model(shape_of("llama3_8b"), DType::fp16);
  const Unit& block = model.units[1];
  const std::vector<Dims> expected{{4096}, {6144, 4096},  {4096, 4096},
                                   {4096}, {28672, 4096}, {4096, 14336}};
  ASSERT_EQ(block.parameters.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Parameter& parameter = model.parameters[block.parameters[i]];
    EXPECT_EQ(parameter.shape, expected[i]) << parameter.name;
    EXPECT_EQ(parameter.decay, expected[i].size() == 2) << parameter.name;
    EXPECT_EQ(parameter.dtype, DType::fp16);
    EXPECT_EQ(parameter.unit, block.id);
  }
  const Parameter& qkv = model.parameters[block.parameters[1]];
  EXPECT_EQ(qkv.parts, (std::vector<ParameterPart>{
                           {"model.layers.0.self_attn.q_proj.weight", 4096},  // 32 * 128
                           {"model.layers.0.self_attn.k_proj.weight", 1024},  // 8 * 128
                           {"model.layers.0.self_attn.v_proj.weight", 1024}}));
  EXPECT_EQ(qkv.row_elements(), 4096);
  EXPECT_EQ(qkv.elements(), 6144 * 4096);
  const Parameter& gate_up = model.parameters[block.parameters[4]];
  EXPECT_EQ(gate_up.parts,
            (std::vector<ParameterPart>{{"model.layers.0.mlp.gate_proj.weight", 14336},
                                        {"model.layers.0.mlp.up_proj.weight", 14336}}));
  EXPECT_EQ(model.parameters[block.parameters[0]].row_elements(), 1);
}

TEST(Model, QwenBlocksHaveBiasOrNorms) {
  const Model qwen2 = make_model(shape_of("qwen2.5_7b"), DType::bf16);
  const Parameter& bias = qwen2.parameters[qwen2.units[1].parameters[2]];
  EXPECT_EQ(bias.name, "model.layers.0.self_attn.qkv_proj.bias");
  EXPECT_EQ(bias.role, ParameterRole::qkv_bias);
  EXPECT_EQ(bias.shape, Dims{(28 + 2 * 4) * 128});
  EXPECT_EQ(bias.parts[2].name, "model.layers.0.self_attn.v_proj.bias");
  EXPECT_FALSE(bias.decay);

  const Model qwen3 = make_model(shape_of("qwen3_8b"), DType::bf16);
  EXPECT_EQ(
      names_of(qwen3, qwen3.units[2]),
      (Strings{"model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.qkv_proj.weight",
               "model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight",
               "model.layers.1.self_attn.o_proj.weight",
               "model.layers.1.post_attention_layernorm.weight",
               "model.layers.1.mlp.gate_up_proj.weight", "model.layers.1.mlp.down_proj.weight"}));
  EXPECT_EQ(qwen3.parameters[qwen3.units[2].parameters[3]].shape, Dims{128});
}

TEST(Model, ExpertsHaveTheCheckpointsNames) {
  const Model qwen3 = make_model(shape_of("moe_nano"), DType::bf16);
  EXPECT_EQ(names_of(qwen3, qwen3.units[1]).back(), "model.layers.0.mlp.down_proj.weight");
  const Strings block = names_of(qwen3, qwen3.units[2]);
  EXPECT_EQ(
      Strings(block.end() - 3, block.end()),
      (Strings{"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.gate_up_proj.weight",
               "model.layers.1.mlp.experts.down_proj.weight"}));
  const auto parameter = [&](const Model& model, std::size_t from_last) {
    return model
        .parameters[*(model.units[2].parameters.end() - static_cast<std::ptrdiff_t>(from_last))];
  };
  EXPECT_EQ(parameter(qwen3, 3).shape, (Dims{8, 32}));
  EXPECT_EQ(parameter(qwen3, 2).shape, (Dims{8 * 2 * 32, 32}));
  EXPECT_EQ(parameter(qwen3, 1).shape, (Dims{8 * 32, 32}));
  ASSERT_EQ(parameter(qwen3, 2).parts.size(), 16u);
  EXPECT_EQ(parameter(qwen3, 2).parts[3],
            (ParameterPart{"model.layers.1.mlp.experts.1.up_proj.weight", 32}));
  EXPECT_EQ(parameter(qwen3, 1).parts[7],
            (ParameterPart{"model.layers.1.mlp.experts.7.down_proj.weight", 32}));
  const Model qwen2 = make_model(shape_of("qwen1.5_moe_a2.7b"), DType::bf16);
  EXPECT_EQ(parameter(qwen2, 3).parts[1],
            (ParameterPart{"model.layers.1.mlp.shared_expert.up_proj.weight", 5632}));
  EXPECT_EQ(parameter(qwen2, 2).name, "model.layers.1.mlp.shared_expert.down_proj.weight");
  EXPECT_EQ(parameter(qwen2, 1).name, "model.layers.1.mlp.shared_expert_gate.weight");
  EXPECT_EQ(parameter(qwen2, 1).shape, (Dims{1, 2048}));
  const Model mixtral = make_model(shape_of("mixtral_8x7b"), DType::bf16);
  EXPECT_EQ(parameter(mixtral, 3).name, "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(parameter(mixtral, 2).parts[1],
            (ParameterPart{"model.layers.1.block_sparse_moe.experts.0.w3.weight", 14336}));
  EXPECT_EQ(parameter(mixtral, 1).parts[0],
            (ParameterPart{"model.layers.1.block_sparse_moe.experts.0.w2.weight", 4096}));
}

TEST(Model, TiedModelsHaveOneUnitForEmbeddingAndHead) {
  const Model model = make_model(shape_of("llama3_1b"), DType::bf16);
  ASSERT_EQ(model.units.size(), 17u);  // 16 blocks
  EXPECT_EQ(model.units[0].name, "embedding_head");
  EXPECT_EQ(model.units[0].kind, UnitKind::embedding_and_head);
  EXPECT_EQ(names_of(model, model.units[0]),
            (Strings{"model.embed_tokens.weight", "model.norm.weight"}));
}

TEST(Model, PartsAddUpAndUnitsCoverAllParametersInOrder) {
  for (const char* name : {"llama3_8b", "qwen2.5_0.5b", "qwen3_32b", "llama_nano"}) {
    const Model model = make_model(shape_of(name), DType::bf16);
    std::size_t next = 0;
    for (std::size_t u = 0; u < model.units.size(); ++u) {
      EXPECT_EQ(model.units[u].id, UnitId(u));
      for (const std::size_t i : model.units[u].parameters) EXPECT_EQ(i, next++);
    }
    EXPECT_EQ(next, model.parameters.size());
    for (const Parameter& parameter : model.parameters) {
      std::int64_t rows = 0;
      for (const ParameterPart& part : parameter.parts) rows += part.rows;
      EXPECT_EQ(rows, parameter.parts.empty() ? 0 : parameter.shape[0]) << parameter.name;
    }
  }
}

TEST(Model, BlockCountsAgreeWithTheParameters) {
  for (const char* name : {"llama3_8b", "qwen2.5_0.5b", "qwen3_32b", "moe_nano", "mixtral_8x7b",
                           "qwen1.5_moe_a2.7b"}) {
    const ModelShape shape = shape_of(name);
    const Model model = make_model(shape, DType::bf16);
    std::int64_t all = 0;
    std::int64_t matrices = 0;
    for (const std::size_t i : model.units[2].parameters) {
      const Parameter& parameter = model.parameters[i];
      all += parameter.elements();
      if (parameter.shape.size() == 2) matrices += parameter.elements();
    }
    EXPECT_EQ(block_elements(shape, shape.has_experts(1)), all) << name;
    EXPECT_EQ(block_matrix_elements(shape, shape.has_experts(1)), matrices) << name;
  }
}

TEST(Model, OverflowIsAnException) {
  ModelShape shape = shape_of("llama_nano");
  shape.heads = std::int64_t{1} << 40;
  shape.head_dim = std::int64_t{1} << 40;
  EXPECT_THROW((void)make_model(shape, DType::bf16), OverflowError);
  shape = shape_of("llama_nano");
  shape.vocab = std::int64_t{1} << 60;
  EXPECT_THROW((void)make_model(shape, DType::bf16).parameter_count(), OverflowError);
}

}  // namespace
}  // namespace mfsdp
