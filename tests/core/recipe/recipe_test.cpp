#include "core/recipe/recipe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/model/hf_config.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig llama3_8b() {
  PlanConfig config;
  config.model =
      load_model("llama3_8b", std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")
          ->shape;
  return config;
}

std::int64_t flops(const std::vector<RecipeOp>& ops) {
  std::int64_t sum = 0;
  for (const RecipeOp& op : ops) sum += op.kernel()->flops;
  return sum;
}

/// Bytes of a unit's own tensors that forward makes and backward reads.
std::int64_t saved_bytes(const UnitRecipe& recipe) {
  std::set<std::string> made;
  std::set<std::string> needed;
  for (const RecipeOp& op : recipe.forward)
    for (const RecipeOperand& operand : op.operands)
      if (operand.source == Source::tensor) made.insert(operand.name);
  for (const RecipeOp& op : recipe.backward)
    for (const RecipeOperand& operand : op.operands)
      if (operand.source == Source::tensor && made.contains(operand.name))
        needed.insert(operand.name);
  std::int64_t bytes = 0;
  for (const RecipeTensor& tensor : recipe.tensors)
    if (needed.contains(tensor.name)) bytes += tensor.elements * size_of(tensor.dtype);
  return bytes;
}

std::vector<std::string> names(const std::vector<RecipeOp>& ops) {
  std::vector<std::string> list;
  for (const RecipeOp& op : ops) list.push_back(op.name);
  return list;
}

TEST(BlockRecipe, RunsTheKernelsOfALlamaBlockInOrder) {
  const UnitRecipe recipe =
      block_recipe(llama3_8b(), {.first = false, .recompute = Recompute::selective});
  EXPECT_EQ(names(recipe.forward),
            (std::vector<std::string>{"input_norm", "qkv", "rope", "attention", "attention_out",
                                      "post_norm", "gate_up", "swiglu", "down"}));
  EXPECT_EQ(
      names(recipe.backward),
      (std::vector<std::string>{
          "down.dgrad", "swiglu.backward", "down.wgrad", "gate_up.dgrad", "post_norm.backward",
          "post_norm.backward.weight_grad", "gate_up.wgrad", "attention_out.dgrad",
          "attention_out.wgrad", "attention.backward", "rope.backward", "qkv.dgrad",
          "input_norm.backward", "input_norm.backward.weight_grad", "qkv.wgrad"}));
}

TEST(Recipe, FlopsOfAStepAreTheCountOfMfu) {
  const PlanConfig config = llama3_8b();
  const UnitRecipe block =
      block_recipe(config, {.first = false, .recompute = Recompute::selective});
  const UnitRecipe head = head_recipe(config);
  // Attention's backward is 2.5 times its forward, where MFU counts twice: half a forward more,
  // 2 * 32 heads * 128 * 8192^2 / 2 per block.
  // A token counts 6 * (7,504,658,432 in matrices + 32 * 32 * 128 * 8192) = 51,470,401,536.
  const std::int64_t counted = 8192 * 51'470'401'536;
  const std::int64_t extra = 32 * (std::int64_t{32} * 128 * 8192 * 8192);
  EXPECT_EQ(32 * (flops(block.forward) + flops(block.backward)) + flops(head.forward) +
                flops(head.backward),
            counted + extra);
}

/// One cast of each tensor that a GEMM reads. Kernels that make what is cast take its largest
/// magnitude, but for attention and RoPE: their outputs, and weights, have a kernel `amax`.
TEST(BlockRecipe, CastsEachTensorOnceInFp8) {
  PlanConfig config = llama3_8b();
  config.fp8 = Fp8Recipe::current;
  const UnitRecipe recipe =
      block_recipe(config, {.first = false, .recompute = Recompute::none, .fp8 = true});
  EXPECT_EQ(names(recipe.forward), (std::vector<std::string>{"input_norm",
                                                             "qkv.weight.amax",
                                                             "qkv.input.cast",
                                                             "qkv.weight.cast",
                                                             "qkv",
                                                             "rope",
                                                             "attention",
                                                             "attention_out.input.amax",
                                                             "attention_out.weight.amax",
                                                             "attention_out.input.cast",
                                                             "attention_out.weight.cast",
                                                             "attention_out",
                                                             "post_norm",
                                                             "gate_up.weight.amax",
                                                             "gate_up.input.cast",
                                                             "gate_up.weight.cast",
                                                             "gate_up",
                                                             "swiglu",
                                                             "down.weight.amax",
                                                             "down.input.cast",
                                                             "down.weight.cast",
                                                             "down"}));
  EXPECT_EQ(names(recipe.backward), (std::vector<std::string>{"down.d_output.cast",
                                                              "down.dgrad.weight.cast",
                                                              "down.dgrad",
                                                              "swiglu.backward",
                                                              "down.wgrad",
                                                              "gate_up.d_output.cast",
                                                              "gate_up.dgrad.weight.cast",
                                                              "gate_up.dgrad",
                                                              "post_norm.backward",
                                                              "post_norm.backward.weight_grad",
                                                              "gate_up.wgrad",
                                                              "attention_out.d_output.cast",
                                                              "attention_out.dgrad.weight.cast",
                                                              "attention_out.dgrad",
                                                              "attention_out.wgrad",
                                                              "attention.backward",
                                                              "rope.backward",
                                                              "qkv.d_output.amax",
                                                              "qkv.d_output.cast",
                                                              "qkv.dgrad.weight.cast",
                                                              "qkv.dgrad",
                                                              "input_norm.backward",
                                                              "input_norm.backward.weight_grad",
                                                              "qkv.wgrad"}));
}

/// Inputs of GEMMs are kept as transposed casts of half the bytes; attention's output also as it
/// is, for attention's backward.
TEST(BlockRecipe, SavesTransposedCastsInFp8) {
  const std::int64_t t = 8192;
  const std::int64_t whole = 2 * t * (3 * 4096 + 6144 + 28672);  // x, mid, attention; qkv; gate_up
  const std::int64_t casts = t * (3 * 4096 + 14336);
  const std::int64_t rows = 4 * t * (32 + 2);  // log-sum-exp, 1 / rms of two norms
  const std::int64_t scales = 4 * (4 + 4);     // of inputs; largest magnitudes of weights
  EXPECT_EQ(saved_bytes(block_recipe(llama3_8b(),
                                     {.first = false, .recompute = Recompute::none, .fp8 = true})),
            whole + casts + rows + scales);
}

TEST(BlockRecipe, SavesWhatThePolicySays) {
  const PlanConfig config = llama3_8b();
  const std::int64_t t = 8192;
  const std::int64_t wide = 2 * t * 4096;      // [T, h] in bf16: 67,108,864
  const std::int64_t qkv = 2 * t * 6144;       // 100,663,296
  const std::int64_t lse = 4 * t * 32;         // 1,048,576
  const std::int64_t gate_up = 2 * t * 28672;  // 469,762,048
  const std::int64_t product = 2 * t * 14336;  // 234,881,024
  const std::int64_t rstd = 2 * 4 * t;         // two norms
  // x, mid | qkv | attention | log-sum-exp | gate_up: 773 MB
  EXPECT_EQ(saved_bytes(block_recipe(config, {.first = false, .recompute = Recompute::selective})),
            2 * wide + qkv + wide + lse + gate_up + rstd);
  // and both outputs of norms and that of SwiGLU: 1,142 MB
  EXPECT_EQ(saved_bytes(block_recipe(config, {.first = false, .recompute = Recompute::none})),
            4 * wide + qkv + wide + lse + gate_up + product + rstd);
  // the block's input alone: 67 MB
  EXPECT_EQ(saved_bytes(block_recipe(config, {.first = false, .recompute = Recompute::full})),
            wide);
}

TEST(BlockRecipe, TheFirstBlocksInputBelongsToTheEmbedding) {
  EXPECT_EQ(saved_bytes(block_recipe(llama3_8b(), {.first = true, .recompute = Recompute::full})),
            0);
}

TEST(HeadRecipe, LogitsExistOneChunkAtATime) {
  PlanConfig config = llama3_8b();
  const UnitRecipe recipe = head_recipe(config);
  const auto logits = std::find_if(recipe.tensors.begin(), recipe.tensors.end(),
                                   [](const RecipeTensor& t) { return t.name == "logits"; });
  ASSERT_NE(logits, recipe.tensors.end());
  EXPECT_EQ(logits->elements, 1024 * 128256);
  EXPECT_EQ(logits->category, Category::logits);
  // 8 chunks of four kernels, then the norm's two.
  EXPECT_EQ(recipe.backward.size(), 8U * 4 + 2);
}

TEST(HeadRecipe, AnUnevenLastChunkIsShorter) {
  PlanConfig config = test::small_config();
  config.seq_len = 20;
  config.logits_chunk = 8;  // 8 + 8 + 4
  std::vector<std::int64_t> rows;
  for (const RecipeOp& op : head_recipe(config).backward)
    if (op.kernel()->kind == KernelKind::cross_entropy) rows.push_back(op.operands[0].shape[0]);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{8, 8, 4}));
}

TEST(HeadRecipe, WeightGradientAccumulatesOverChunksInFp32) {
  PlanConfig config = llama3_8b();
  config.mesh.resize(Axis::dp_shard, 8);
  config.reduce_dtype = DType::bf16;
  const UnitRecipe recipe = head_recipe(config);
  std::map<std::string, int> writes;
  for (const RecipeOp& op : recipe.backward)
    for (const RecipeOperand& operand : op.operands)
      if (operand.name == "head_grad_sum") {
        EXPECT_EQ(operand.dtype, DType::fp32);
        ++writes[op.kernel()->kind == KernelKind::cast ? "cast" : "wgrad"];
      }
  EXPECT_EQ(writes["wgrad"], 8);
  EXPECT_EQ(writes["cast"], 1);
  // An fp32 wire takes the sum itself.
  config.reduce_dtype = DType::fp32;
  for (const RecipeTensor& tensor : head_recipe(config).tensors)
    EXPECT_NE(tensor.name, "head_grad_sum");
}

TEST(EmbeddingRecipe, TiedWeightsAddToTheHeadsGradient) {
  PlanConfig config = test::small_config();
  const auto access = [&] {
    const UnitRecipe recipe = embedding_recipe(config);
    return recipe.backward.back().operands.back().access;
  };
  EXPECT_EQ(access(), Access::write);
  config.model.tied_embeddings = true;
  EXPECT_EQ(access(), Access::read_write);
}

TEST(BlockRecipe, QwenHasBiasAndQueryKeyNorm) {
  PlanConfig config = test::small_config();
  config.model.qkv_bias = true;
  config.model.qk_norm = true;
  const auto list =
      names(block_recipe(config, {.first = false, .recompute = Recompute::selective}).backward);
  const auto has = [&](const char* name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  EXPECT_TRUE(has("qkv_bias.grad"));
  EXPECT_TRUE(has("q_norm.weight_grad"));
  EXPECT_TRUE(has("qk.again"));  // a norm output: selective makes it again
  const auto kept =
      names(block_recipe(config, {.first = false, .recompute = Recompute::none}).backward);
  EXPECT_EQ(std::find(kept.begin(), kept.end(), "qk.again"), kept.end());
}

/// Rows of logits begin on multiples of 16 bytes, for any vocabulary.
TEST(HeadRecipe, RowsOfLogitsAreAligned) {
  PlanConfig config = test::small_config();
  config.param_dtype = DType::bf16;
  for (const std::int64_t vocab : {48, 49, 55}) {
    config.model.vocab = vocab;
    const UnitRecipe recipe = head_recipe(config);
    int seen = 0;
    for (const auto* list : {&recipe.forward, &recipe.backward, &recipe.eval})
      for (const RecipeOp& op : *list)
        for (const RecipeOperand& operand : op.operands)
          if (operand.name == "logits") {
            ++seen;
            EXPECT_EQ(operand.shape.back(), vocab);
            EXPECT_EQ(operand.strides, (vocab == 48 ? std::vector<std::int64_t>{}
                                                    : std::vector<std::int64_t>{56, 1}))
                << op.name;
          }
    EXPECT_GE(seen, 6);
    const auto logits = std::ranges::find(recipe.tensors, "logits", &RecipeTensor::name);
    ASSERT_NE(logits, recipe.tensors.end());
    EXPECT_EQ(logits->elements % (vocab == 48 ? 48 : 56), 0);
  }
}

/// Every tensor that a kernel reads was written before, in forward then backward order.
TEST(BlockRecipe, NothingIsReadBeforeItIsWritten) {
  for (const Recompute policy : {Recompute::none, Recompute::selective, Recompute::full})
    for (const bool first : {true, false})
      for (const bool qwen : {true, false}) {
        PlanConfig config = test::small_config();
        config.model.qk_norm = config.model.qkv_bias = qwen;
        const UnitRecipe recipe = block_recipe(config, {.first = first, .recompute = policy});
        std::set<std::string> written;
        for (const auto* list : {&recipe.forward, &recipe.backward})
          for (const RecipeOp& op : *list) {
            for (const RecipeOperand& operand : op.operands) {
              const bool reads =
                  operand.access == Access::read || operand.access == Access::read_write;
              if (operand.source != Source::tensor || !reads) continue;
              EXPECT_TRUE(written.contains(operand.name)) << op.name << " reads " << operand.name;
            }
            for (const RecipeOperand& operand : op.operands)
              if (operand.access != Access::read) written.insert(operand.name);
          }
      }
}

}  // namespace
}  // namespace mfsdp
