#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/model/hf_config.hpp"
#include "tests/core/model/hf_texts.hpp"

namespace mfsdp {
namespace {

using hf_texts::error_of;
using hf_texts::kLlama;
using hf_texts::with;

/// As published, in four bits: the shape is that of a model that is not.
TEST(HfConfig, ReadsGptOss) {
  std::string oss = with("model_type", "\"gpt_oss\"");
  for (const auto& [field, value] :
       {std::pair{"num_local_experts", "32"},
        {"num_experts_per_tok", "4"},
        {"attention_bias", "true"},
        {"sliding_window", "128"},
        {"quantization_config", R"({"quant_method": "mxfp4"})"},
        {"rope_scaling", R"({"rope_type": "yarn", "factor": 32.0, "truncate": false})"}})
    oss = with(field, value, oss);
  const auto shape = parse_hf_config(oss, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->family, Family::gpt_oss);
  EXPECT_TRUE(shape->qkv_bias && shape->normalised_routing && shape->rope_scaling.exact_range);
  EXPECT_EQ(shape->swiglu_limit, (Rational{7, 1}));  // what the class has
  EXPECT_EQ(shape->swiglu_alpha.value(), 1.702);
  EXPECT_EQ(shape->sliding_layers.size(), 16u);  // of 32: the first and every second from there
  EXPECT_EQ(shape->sliding_layers.front(), 0);
  EXPECT_EQ(parse_hf_config(with("swiglu_limit", "6.5", oss), "c")->swiglu_limit,
            (Rational{13, 2}));
  EXPECT_EQ(error_of(with("attention_bias", "false", oss)),
            "config.json: attention_bias: expected true (this model_type without them is not "
            "modelled), got false");
}

std::string deepseek_v3() {
  std::string v3 = with("model_type", "\"deepseek_v3\"");
  for (const auto& [field, value] :
       {std::pair{"rms_norm_eps", "1e-06"},
        {"num_key_value_heads", "32"},
        {"qk_nope_head_dim", "128"},
        {"qk_rope_head_dim", "64"},
        {"v_head_dim", "128"},
        {"kv_lora_rank", "512"},
        {"q_lora_rank", "null"},
        {"n_routed_experts", "64"},
        {"n_shared_experts", "2"},
        {"num_experts_per_tok", "6"},
        {"moe_intermediate_size", "1408"},
        {"first_k_dense_replace", "1"},
        {"topk_method", "\"noaux_tc\""},
        {"n_group", "8"},
        {"topk_group", "4"},
        {"norm_topk_prob", "true"},
        {"routed_scaling_factor", "2.5"},
        {"num_nextn_predict_layers", "1"},
        {"quantization_config", R"({"quant_method": "fp8"})"},
        {"rope_scaling", R"({"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                             "original_max_position_embeddings": 4096})"}})
    v3 = with(field, value, v3);
  return v3;
}

/// The scores' scale is made of YaRN's magnitude, which neither changes cosines nor sines.
TEST(HfConfig, ReadsDeepseek) {
  const std::string v3 = deepseek_v3();
  const auto shape = parse_hf_config(v3, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->family, Family::deepseek);
  EXPECT_EQ(shape->head_dim, 192);
  EXPECT_EQ(shape->rotary_dim, 64);
  EXPECT_EQ(shape->value_dim, 128);
  EXPECT_EQ(shape->query_latent, 0);
  EXPECT_EQ(shape->shared_intermediate, 2816);
  EXPECT_EQ(shape->dense_layers, std::vector<std::int64_t>{0});
  EXPECT_TRUE(shape->sigmoid_routing && shape->normalised_routing);
  EXPECT_EQ(shape->routed_scale, (Rational{5, 2}));
  EXPECT_EQ(shape->rope_scaling.attention_factor, (Rational{1, 1}));
  // 192 / (0.1 ln 40 + 1)^4
  EXPECT_NEAR(shape->query_scalar.value(), 54.680142, 1e-6);
  EXPECT_EQ(error_of(with("topk_group", "9", v3)),
            "config.json: topk_group: expected an integer from 1 to 8, got 9");
  EXPECT_EQ(error_of(with("n_group", "7", v3)),
            "config.json: n_group: expected a divisor of n_routed_experts (64), got 7");
  EXPECT_EQ(error_of(with("scoring_func", "\"softmax\"", v3)),
            "config.json: scoring_func: expected \"sigmoid\", got \"softmax\"");
  std::string v2 = with("model_type", "\"deepseek_v2\"", v3);
  for (const auto& [field, value] : {std::pair{"topk_method", "\"greedy\""},
                                     {"norm_topk_prob", "false"},
                                     {"quantization_config", "null"}})
    v2 = with(field, value, v2);
  const auto softmax = parse_hf_config(v2, "c");
  ASSERT_TRUE(softmax) << softmax.error().message();
  EXPECT_EQ(softmax->router_groups, 0);
  EXPECT_FALSE(softmax->sigmoid_routing || softmax->normalised_routing);
}

/// deepseek_v3() with other magnitudes in its rope_scaling: keys with values, each with a comma.
std::string with_magnitudes(const std::string& magnitudes) {
  constexpr std::string_view kOwn = R"("mscale": 1.0, "mscale_all_dim": 1.0,)";
  std::string text = deepseek_v3();
  return text.replace(text.find(kOwn), kOwn.size(), magnitudes);
}

TEST(HfConfig, MagnitudesOfYarnAreNumbersOrNone) {
  for (const std::string key : {"mscale", "mscale_all_dim"})
    for (const std::string value : {"\"1\"", "-1.0", "1e+300"})
      EXPECT_EQ(error_of(with_magnitudes("\"" + key + "\": " + value + ",")),
                "config.json: rope_scaling." + key +
                    ": expected a positive number of at most 18 digits, got " + value);
  // 192 / (0.1 * 1e6 ln 40 + 1)^4 = 1e-20: not a digit of nine is left.
  EXPECT_EQ(error_of(with_magnitudes("\"mscale_all_dim\": 1000000,")),
            "config.json: rope_scaling.mscale_all_dim: expected a number near 1, got 1000000");

  const auto none = parse_hf_config(with_magnitudes(""), "c");
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_EQ(none->query_scalar, (Rational{0, 1}));
  EXPECT_EQ(none->rope_scaling.attention_factor, (Rational{0, 1}));  // 0.1 ln 40 + 1
  for (const std::string off : {"0", "0.0", "null"}) {
    const auto shape = parse_hf_config(with_magnitudes("\"mscale_all_dim\": " + off + ","), "c");
    ASSERT_TRUE(shape) << shape.error().message();
    EXPECT_EQ(*shape, *none) << off;
    const auto own =
        parse_hf_config(with_magnitudes("\"mscale\": 1, \"mscale_all_dim\": " + off + ","), "c");
    ASSERT_TRUE(own) << own.error().message();
    EXPECT_EQ(*own, *none) << off;
  }
}

/// The defaults of absent fields differ between transformers and DeepSeek's own classes.
TEST(HfConfig, DeepseekHasToStateWhatClassesDisagreeAbout) {
  const std::string v3 = deepseek_v3();
  EXPECT_EQ(error_of(with("q_lora_rank", "", v3)),
            "config.json: q_lora_rank: expected a positive integer, or null (queries without a "
            "latent vector), got nothing");
  EXPECT_EQ(error_of(with("n_shared_experts", "", v3)),
            "config.json: n_shared_experts: expected the number of shared experts, or null, "
            "got nothing");
  EXPECT_EQ(error_of(with("first_k_dense_replace", "", v3)),
            "config.json: first_k_dense_replace: expected the number of dense layers, got nothing");
  EXPECT_EQ(error_of(with("routed_scaling_factor", "", v3)),
            "config.json: routed_scaling_factor: expected a positive number, got nothing");
  const auto alone = parse_hf_config(with("n_shared_experts", "null", v3), "c");
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ(alone->shared_intermediate, 0);
  // For V2 both have 0 dense layers and a factor of 1.
  std::string v2 = with("model_type", "\"deepseek_v2\"", v3);
  for (const char* field : {"first_k_dense_replace", "routed_scaling_factor", "topk_method",
                            "norm_topk_prob", "quantization_config"})
    v2 = with(field, "", v2);
  const auto shape = parse_hf_config(v2, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_TRUE(shape->dense_layers.empty());
  EXPECT_EQ(shape->routed_scale, (Rational{0, 1}));
}

TEST(HfConfig, DeepseekErrorsNameKeysOfTheFile) {
  const std::string v3 = deepseek_v3();
  EXPECT_EQ(error_of(with("qk_rope_head_dim", "3", v3)),
            "config.json: qk_rope_head_dim: expected an even number (RoPE rotates pairs), got 3");
  EXPECT_EQ(error_of(with("qk_nope_head_dim", "9", with("qk_rope_head_dim", "3", v3))),
            "config.json: qk_rope_head_dim: expected an even number (RoPE rotates pairs), got 3");
  EXPECT_EQ(error_of(with("qk_nope_head_dim", "3", v3)),
            "config.json: qk_nope_head_dim: expected an even number, got 3");
  EXPECT_EQ(error_of(with("qk_nope_head_dim", "1048576", v3)),
            "config.json: qk_nope_head_dim: expected at most 1048576 together with "
            "qk_rope_head_dim, got 1048576");
  EXPECT_EQ(error_of(with("num_key_value_heads", "16", v3)),
            "config.json: num_key_value_heads: expected 32, as num_attention_heads, got 16");
  // As many groups as a token may have, which would be none at all.
  EXPECT_EQ(error_of(with("n_group", "3", with("topk_group", "3", v3))),
            "config.json: n_group: expected a divisor of n_routed_experts (64), got 3");
  // 2147483647 / 1073741824 = 1.99...
  EXPECT_EQ(error_of(with("moe_intermediate_size", "1073741824", v3)),
            "config.json: n_shared_experts: expected an integer from 0 to 1, got 2");
}

/// Routing by sigmoids beside plain attention: MiniMax-M2's, and GLM-4.5's with groups.
TEST(HfConfig, ReadsSigmoidRouting) {
  std::string minimax = with("model_type", "\"minimax_m2\"");
  for (const auto& [field, value] : {std::pair{"num_local_experts", "16"},
                                     {"num_experts_per_tok", "4"},
                                     {"rotary_dim", "32"},
                                     {"scoring_func", "\"sigmoid\""},
                                     {"use_qk_norm", "true"},
                                     {"qk_norm_type", "\"per_layer\""}})
    minimax = with(field, value, minimax);
  const auto shape = parse_hf_config(minimax, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->family, Family::minimax_m2);
  EXPECT_TRUE(shape->sigmoid_routing && shape->normalised_routing && shape->qk_norm);
  EXPECT_EQ(shape->rotary_dim, 32);
  EXPECT_EQ(error_of(with("rotary_dim", "64", with("partial_rotary_factor", "0.25", minimax))),
            "config.json: rotary_dim: expected 32, as partial_rotary_factor has it, got 64");
  EXPECT_EQ(error_of(with("scoring_func", "\"softmax\"", minimax)),
            "config.json: scoring_func: expected \"sigmoid\", got \"softmax\"");
  EXPECT_EQ(error_of(with("qk_norm_type", "\"per_head\"", minimax)),
            "config.json: qk_norm_type: expected \"per_layer\", got \"per_head\"");
  EXPECT_EQ(error_of(with("shared_intermediate_size", "64", minimax)),
            "config.json: shared_intermediate_size: expected 0 (not modelled here: a shared "
            "expert), got 64");
  std::string glm = with("model_type", "\"glm4_moe\"");
  for (const auto& [field, value] : {std::pair{"n_routed_experts", "16"},
                                     {"n_shared_experts", "1"},
                                     {"num_experts_per_tok", "4"},
                                     {"moe_intermediate_size", "512"},
                                     {"first_k_dense_replace", "1"},
                                     {"n_group", "1"},
                                     {"topk_group", "1"},
                                     {"routed_scaling_factor", "2.5"},
                                     {"attention_bias", "true"}})
    glm = with(field, value, glm);
  const auto read = parse_hf_config(glm, "c");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->family, Family::glm4_moe);
  EXPECT_TRUE(read->sigmoid_routing && read->qkv_bias && !read->qk_norm);
  EXPECT_EQ(read->rotary_dim, 64);  // half of a head of 128, which the class assumes
  EXPECT_EQ(read->shared_intermediate, 512);
  EXPECT_TRUE(parse_hf_config(with("use_qk_norm", "true", glm), "c")->qk_norm);
  EXPECT_EQ(parse_hf_config(with("partial_rotary_factor", "1.0", glm), "c")->rotary_dim, 0);
}

/// The indexer's parameters are in the shape. Its choice of tokens is a gap, which is an error to
/// callers that compute.
TEST(HfConfig, ReadsSparseAttention) {
  std::string sparse = with("model_type", "\"deepseek_v32\"", deepseek_v3());
  for (const auto& [field, value] : {std::pair{"q_lora_rank", "96"},
                                     {"index_n_heads", "4"},
                                     {"index_head_dim", "16"},
                                     {"index_topk", "2048"}})
    sparse = with(field, value, sparse);
  const auto model = read_hf_config(sparse, "c");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->gaps.index_topk, 2048);
  EXPECT_EQ(model->shape.index_heads, 4);
  EXPECT_TRUE(model->shape.has_indexer(31));
  EXPECT_THAT(error_of(sparse),
              testing::StartsWith("config.json: sparse attention to 2048 tokens is planned as "));
  std::string layers = "[\"deepseek_sparse_attention\"";  // as GLM-5.2's file has it
  for (int layer = 1; layer < 32; ++layer) layers += ", \"deepseek_sparse_attention\"";
  const auto named = read_hf_config(with("layer_types", layers + "]", sparse), "c");
  ASSERT_TRUE(named) << named.error().message();
  EXPECT_EQ(named->shape, model->shape);
  EXPECT_THAT(error_of(with("layer_types", layers + "]", deepseek_v3())),
              testing::HasSubstr("\"full_attention\" or \"sliding_attention\""));
  std::string types = "[\"full\"";
  for (int layer = 1; layer < 32; ++layer) types += ", \"shared\"";
  const auto shared = read_hf_config(with("indexer_types", types + "]", sparse), "c");
  ASSERT_TRUE(shared) << shared.error().message();
  EXPECT_FALSE(shared->shape.has_indexer(31));
  // 31 indexers fewer, of 4*16*96 + (16 + 4)*4096 + 2*16 elements.
  EXPECT_EQ(parameter_count(model->shape) - parameter_count(shared->shape), 31 * 88096);
  EXPECT_EQ(error_of(with("index_topk_freq", "4", sparse)),
            "config.json: index_topk_freq: expected none, or indexer_types beside it, got 4");
  EXPECT_EQ(error_of(with("q_lora_rank", "null", sparse)),
            "config.json: q_lora_rank: expected a positive integer (the indexer reads that "
            "vector), got null");
}

/// Norms of latent vectors have an epsilon of their own.
TEST(HfConfig, ReadsTheEpsilonOfLatentVectors) {
  EXPECT_EQ(parse_hf_config(deepseek_v3(), "c")->latent_norm_eps, (Rational{0, 1}));
  const auto other = parse_hf_config(with("rms_norm_eps", "1e-05", deepseek_v3()), "c");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(other->latent_eps(), (Rational{1, 1000000}));
  EXPECT_EQ(other->rms_norm_eps, (Rational{1, 100000}));
}

/// Experts have the width intermediate_size in Mixtral and OLMoE, and another field in Qwen3.
TEST(HfConfig, ReadsExperts) {
  const std::string mixtral =
      with("num_local_experts", "8",
           with("num_experts_per_tok", "2", with("model_type", "\"mixtral\"")));
  const auto shape = parse_hf_config(mixtral, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->family, Family::mixtral);
  EXPECT_EQ(shape->experts, 8);
  EXPECT_EQ(shape->experts_per_token, 2);
  EXPECT_EQ(shape->expert_intermediate, 14336);
  EXPECT_EQ(shape->intermediate, 0);
  EXPECT_TRUE(shape->normalised_routing);
  EXPECT_EQ(shape->router_aux_loss, (Rational{0, 1}));  // output_router_logits is off
  const auto balanced = parse_hf_config(with("output_router_logits", "true", mixtral), "c");
  EXPECT_EQ(balanced->router_aux_loss, (Rational{1, 1000}));  // what the class has
  std::string qwen = with("model_type", "\"qwen3_moe\"");
  for (const auto& [field, value] : {std::pair{"num_experts", "16"},
                                     {"num_experts_per_tok", "4"},
                                     {"moe_intermediate_size", "768"},
                                     {"decoder_sparse_step", "2"},
                                     {"mlp_only_layers", "[1]"},
                                     {"norm_topk_prob", "true"},
                                     {"output_router_logits", "true"},
                                     {"router_aux_loss_coef", "0.05"}})
    qwen = with(field, value, qwen);
  const auto read = parse_hf_config(qwen, "c");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->expert_intermediate, 768);
  EXPECT_EQ(read->intermediate, 14336);
  // Every second layer has experts, the first of those by name none: 0, 1, 2, 4, 6, ..., 30.
  ASSERT_EQ(read->dense_layers.size(), 17u);
  EXPECT_EQ(read->dense_layers[1], 1);
  EXPECT_EQ(read->dense_layers[2], 2);
  EXPECT_EQ(read->dense_layers.back(), 30);
  EXPECT_TRUE(read->has_experts(3));
  EXPECT_FALSE(read->has_experts(1));
  EXPECT_TRUE(read->normalised_routing);
  EXPECT_EQ(read->router_aux_loss, (Rational{1, 20}));
  EXPECT_EQ(error_of(with("num_experts_per_tok", "17", qwen)),
            "config.json: num_experts_per_tok: expected an integer from 1 to 16, got 17");
  EXPECT_EQ(error_of(with("mlp_only_layers", "[32]", qwen)),
            "config.json: mlp_only_layers: expected a list of layers from 0 to 31, got [32]");
  EXPECT_EQ(
      error_of(with("decoder_sparse_step", "64", qwen)),
      "config.json: decoder_sparse_step: expected a layer with experts, or a dense model, got 64");
  // Layers 0, 2, ..., 30 have none by decoder_sparse_step, layer 1 by name: with it all.
  EXPECT_EQ(
      error_of(with("num_hidden_layers", "2", qwen)),
      "config.json: mlp_only_layers: expected a layer with experts, or a dense model, got [1]");
  EXPECT_EQ(
      error_of(with("moe_intermediate_size", "", qwen)),
      "config.json: moe_intermediate_size: expected an integer from 1 to 2147483647, got nothing");
  // The class of transformers 5 writes num_local_experts, and other programs both.
  const auto renamed =
      parse_hf_config(with("num_local_experts", "16", with("num_experts", "", qwen)), "c");
  ASSERT_TRUE(renamed) << renamed.error().message();
  EXPECT_EQ(renamed->experts, 16);
  EXPECT_TRUE(parse_hf_config(with("num_local_experts", "16", qwen), "c"));
  EXPECT_EQ(error_of(with("num_local_experts", "8", qwen)),
            "config.json: num_local_experts: expected 16 (num_experts) or none, got 8");
  EXPECT_EQ(error_of(with("num_experts", "", qwen)),
            "config.json: num_experts: expected an integer from 1 to 65536, got nothing");
  EXPECT_EQ(error_of(with("router_jitter_noise", "0.1", mixtral)),
            "config.json: router_jitter_noise: expected 0 (noise in the router's input is not "
            "modelled), got 0.1");
}

}  // namespace
}  // namespace mfsdp
