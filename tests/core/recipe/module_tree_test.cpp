#include "core/recipe/module_tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/hf_config.hpp"

namespace mfsdp {
namespace {

Model built_in(const std::string& name) {
  const auto model = load_model(name, std::string(MFSDP_SOURCE_DIR) + "/scenarios/models");
  EXPECT_TRUE(model) << model.error().message();
  return make_model(model ? model->shape : ModelShape{}, DType::bf16);
}

/// Sum over top-level lines; deeper ones are inside them.
std::int64_t total(const std::vector<ModuleNode>& nodes) {
  std::int64_t sum = 0;
  for (const ModuleNode& node : nodes)
    if (node.depth == 0) sum += node.repeat * node.elements;
  return sum;
}

TEST(ModuleTree, FoldsIdenticalBlocks) {
  const auto nodes = module_nodes(built_in("llama3_8b"));
  // model, embed_tokens, layers, 2 modules and 6 parameters of a block, norm, lm_head
  ASSERT_EQ(nodes.size(), 13u);
  EXPECT_EQ(nodes[0].name, "model");
  // All but the head: 8,030,261,248 - 525,336,576.
  EXPECT_EQ(nodes[0].elements, 7'504'924'672);
  EXPECT_EQ(
      nodes[2],
      (ModuleNode{
          .name = "layers.0-31", .depth = 1, .repeat = 32, .elements = 218'112'000, .shape = {}}));
  EXPECT_EQ(nodes[5], (ModuleNode{.name = "qkv_proj.weight",
                                  .depth = 3,
                                  .repeat = 1,
                                  .elements = 6144 * 4096,
                                  .shape = {6144, 4096}}));
  EXPECT_EQ(nodes[12].name, "lm_head.weight");
  EXPECT_EQ(nodes[12].depth, 0u);
}

TEST(ModuleTree, TopLevelSumsToTheParameterCount) {
  for (const char* name : {"llama3_405b", "llama3_1b", "qwen2.5_7b", "qwen3_0.6b", "llama_nano"}) {
    const Model model = built_in(name);
    EXPECT_EQ(total(module_nodes(model)), model.parameter_count()) << name;
  }
}

TEST(ModuleTree, BlocksThatDifferStayApart) {
  Model model = built_in("llama_tiny");  // 4 blocks
  for (Parameter& parameter : model.parameters)
    if (parameter.name == "model.layers.2.mlp.down_proj.weight") parameter.shape = {256, 320};
  std::vector<std::string> blocks;
  for (const ModuleNode& node : module_nodes(model))
    if (node.name.starts_with("layers.")) blocks.push_back(node.name);
  EXPECT_EQ(blocks, (std::vector<std::string>{"layers.0-1", "layers.2", "layers.3"}));
}

TEST(ModuleTree, Text) {
  EXPECT_EQ(module_tree_text(built_in("llama_nano")),
            "model                                                                 45,536\n"
            "  embed_tokens.weight [264, 32]                                        8,448\n"
            "  norm.weight [32]                                                        32\n"
            "  layers.0-2  x3                                                      12,352\n"
            "    input_layernorm.weight [32]                                           32\n"
            "    self_attn                                                          3,072\n"
            "      qkv_proj.weight [64, 32]                                         2,048\n"
            "      o_proj.weight [32, 32]                                           1,024\n"
            "    post_attention_layernorm.weight [32]                                  32\n"
            "    mlp                                                                9,216\n"
            "      gate_up_proj.weight [192, 32]                                    6,144\n"
            "      down_proj.weight [32, 96]                                        3,072\n"
            "parameters                                                            45,536\n");
}

TEST(ModuleTree, EmptyModel) { EXPECT_TRUE(module_nodes(Model{}).empty()); }

}  // namespace
}  // namespace mfsdp
