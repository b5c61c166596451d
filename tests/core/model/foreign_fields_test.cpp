// The fields of a config.json decide whether it is read: for sets of keys as in public files.
#include "core/model/foreign_fields.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/foreign_types.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/not_modelled.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

/// A small Llama's, with other fields added or replaced.
Json llama_with(const Json& other) {
  Json config{{"model_type", "llama"},    {"hidden_size", 256},
              {"intermediate_size", 704}, {"num_hidden_layers", 4},
              {"num_attention_heads", 4}, {"num_key_value_heads", 2},
              {"vocab_size", 512},        {"max_position_embeddings", 4096},
              {"rms_norm_eps", 1e-05}};
  config.update(other);
  return config;
}

/// A small model of DeepSeek-V3's kind, with other fields.
Json deepseek_with(const Json& other) {
  Json config = llama_with({{"model_type", "deepseek_v3"},
                            {"num_key_value_heads", 4},
                            {"rms_norm_eps", 1e-06},
                            {"first_k_dense_replace", 1},
                            {"kv_lora_rank", 64},
                            {"moe_intermediate_size", 64},
                            {"n_group", 1},
                            {"n_routed_experts", 16},
                            {"n_shared_experts", 1},
                            {"norm_topk_prob", true},
                            {"num_experts_per_tok", 4},
                            {"q_lora_rank", 96},
                            {"qk_nope_head_dim", 32},
                            {"qk_rope_head_dim", 16},
                            {"routed_scaling_factor", 2.827},
                            {"scoring_func", "sigmoid"},
                            {"topk_group", 1},
                            {"topk_method", "noaux_tc"},
                            {"v_head_dim", 32}});
  config.update(other);
  return config;
}

std::string config_error(const Json& config) {
  const auto model = read_hf_config(config.dump(), "c");
  return model ? "none" : model.error().message();
}

std::vector<std::string> notes_of(const Json& config) {
  const auto model = read_hf_config(config.dump(), "c");
  EXPECT_TRUE(model) << model.error().message();
  return model ? model->notes : std::vector<std::string>{"error"};
}

TEST(ForeignFields, RefuseWithNameAndValueWhatChangesTheComputation) {
  struct Case {
    std::string_view name;
    Json value;
    std::string_view what;
  };
  const std::vector<Case> cases{
      {"num_loops", 4, "looped layers"},
      {"norm_type", "layernorm", "other norms"},
      {"hybrid_override_pattern", "M-M*", "layers of several kinds"},
      {"layers_block_type", {"attention", "mamba"}, "layers of several kinds"},
      {"mamba_d_state", 128, "state-space layers"},
      {"linear_num_key_heads", 16, "linear attention"},
      {"attn_type_list", {1, 0}, "linear attention"},
      {"num_experts", 8, "experts of this model_type"},
      {"kv_lora_rank", 512, "multi-head latent attention"},
      {"index_topk", 2048, "sparse attention"},
      {"scoring_func", "sigmoid", "another routing of experts"},
      {"use_qk_norm", true, "norms of queries and keys"},
      {"attn_output_gate", true, "gated attention"},
      {"hidden_dropout_prob", 0.1, "dropout"},
      {"residual_multiplier", 0.22, "scaled activations"},
      {"mlp_multipliers", {0.5, 1}, "scaled activations"},
      {"alibi", true, "other positions than RoPE"},
      {"no_rope_layer_interval", 4, "layers without RoPE"},
      {"mlp_hidden_act", "relu2", "another activation"},
      {"lm_head_bias", true, "biases"},
      {"block_configs", {{"ffn", 1}}, "layers that differ in size"},
      {"per_layer_config", {{"3", {{"num_attention_heads", 2}}}}, "layers that differ in size"},
      {"vision_config", {{"depth", 2}}, "an image encoder"}};
  for (const Case& each : cases) {
    const std::string error = config_error(llama_with({{each.name, each.value}}));
    EXPECT_THAT(error, StartsWith(fmt::format("c: {}: expected none (not modelled: {}; "
                                              "docs/reference/limits.md), got ",
                                              each.name, each.what)));
  }
}

TEST(ForeignFields, AreFineWhereTheirValueChangesNothing) {
  const Json config = llama_with({{"num_loops", 1},
                                  {"norm_type", "rmsnorm"},
                                  {"normalization_type", "RMSNorm"},
                                  {"hybrid_override_pattern", "****"},
                                  {"attn_type_list", {1, 1, 1, 1}},
                                  {"mlp_multipliers", {1.0, 1.0}},
                                  {"num_experts", 1},
                                  {"num_local_experts", nullptr},
                                  {"scoring_func", "softmax"},
                                  {"use_qk_norm", false},
                                  {"position_embedding_type", "rope"},
                                  {"sparse_attention_config", {{"enabled", false}}},
                                  {"attention_dropout", 0.0},
                                  {"embd_pdrop", 0},
                                  {"classifier_dropout", 0.1},
                                  {"vision_config", nullptr},
                                  {"mtp_layers", 0}});
  EXPECT_THAT(notes_of(config), IsEmpty());
}

/// Two parts change what is trained, and the answer states both.
TEST(ForeignFields, OfQuantisationAndPredictionOfFurtherTokensAreNoted) {
  const Json plain = llama_with(Json::object());
  const Json noted =
      llama_with({{"num_nextn_predict_layers", 1},
                  {"mtp_depth", 2},
                  {"quantization_config", {{"quant_method", "fp8"}, {"fmt", "e4m3"}}}});
  EXPECT_THAT(notes_of(noted),
              ElementsAre("the model is planned as before its quantisation by \"fp8\": all weights "
                          "are of --param-dtype",
                          "the layers of multi-token prediction are left out (mtp_depth 2, "
                          "num_nextn_predict_layers 1)"));
  EXPECT_EQ(read_hf_config(noted.dump(), "c")->shape, read_hf_config(plain.dump(), "c")->shape);
}

/// The language model of a model of several parts is read as its own file would be.
TEST(TextParts, AreReadWithoutTheOtherParts) {
  Json text = llama_with({{"my_field", 1}});
  const Json whole{{"model_type", "new_vl"},
                   {"architectures", {"NewForConditionalGeneration"}},
                   {"text_config", text},
                   {"tie_word_embeddings", true},
                   {"vision_config", {{"depth", 4}}}};
  EXPECT_THAT(notes_of(whole),
              ElementsAre("only the language model is planned (text_config), without vision_config",
                          "unknown fields were ignored: text_config.my_field"));
  text["tie_word_embeddings"] = true;
  EXPECT_EQ(read_hf_config(whole.dump(), "c")->shape, read_hf_config(text.dump(), "c")->shape);
  Json other = whole;
  other["text_config"]["tie_word_embeddings"] = false;
  EXPECT_EQ(config_error(other),
            "c: text_config.tie_word_embeddings: expected true, as outside, got false");
  other["text_config"] = {{"model_type", "qwen3_5_text"}, {"linear_num_key_heads", 16}};
  EXPECT_EQ(config_error(other),
            "c: text_config.model_type: \"qwen3_5_text\" is not modelled: its class has linear "
            "attention; the file has linear_num_key_heads 16 (linear attention) "
            "(docs/reference/limits.md)");
  other["text_config"] = Json::object();
  EXPECT_THAT(config_error(other), StartsWith("c: text_config.model_type: expected deepseek_v2, "));
}

TEST(ForeignFields, AreRefusedTogether) {
  EXPECT_EQ(
      config_error(llama_with({{"alibi", true}, {"norm_type", "layernorm"}, {"num_loops", 2}})),
      "c: alibi: expected none (not modelled: other positions than RoPE; "
      "docs/reference/limits.md), "
      "got true; nor norm_type \"layernorm\" (other norms), num_loops 2 (looped layers)");
}

TEST(ForeignFields, HarmlessOnesAreNotMentioned) {
  EXPECT_THAT(
      notes_of(llama_with({{"_name_or_path", "x"},
                           {"architectures", {"LlamaForCausalLM"}},
                           {"auto_map", {{"AutoConfig", "configuration_x.X"}}},
                           {"bos_token_id", 1},
                           {"image_token_id", 7},
                           {"initializer_range", 0.02},
                           {"output_attentions", false},
                           {"pretraining_tp", 1},
                           {"rope_scaling", {{"type", "default"}, {"rope_type", "default"}}},
                           {"temperature", 0.6},
                           {"torch_dtype", "bfloat16"},
                           {"transformers_version", "4.48.3"},
                           {"use_cache", true}})),
      IsEmpty());
}

TEST(ForeignFields, OthersAreNamedAsPassedOver) {
  EXPECT_THAT(notes_of(llama_with(
                  {{"my_field", 3},
                   {"time_step_limit", {0.0, 1.0}},
                   {"empty", nullptr},
                   {"rope_scaling",
                    {{"rope_type", "linear"}, {"factor", 2.0}, {"mrope_section", {16, 24, 24}}}}})),
              ElementsAre("unknown fields were ignored: my_field, "
                          "rope_scaling.mrope_section, time_step_limit"));
  Json many = llama_with(Json::object());
  for (int i = 0; i < 20; ++i) many[fmt::format("z{:02}", i)] = i;
  EXPECT_THAT(notes_of(many), ElementsAre(testing::EndsWith("z10, z11 and 8 more")));
}

TEST(ForeignFields, BuiltInModelsHaveNone) {
  const std::filesystem::path models = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios/models";
  const std::vector<std::string> names = list_models(models).value();
  for (const std::string& name : names) {
    const auto model = load_model(name, models);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_THAT(model->notes, IsEmpty()) << name;
  }
}

TEST(ForeignFields, RowsAreFound) {
  for (const ForeignField& row : foreign_fields()) {
    std::string name(row.name);
    if (name.ends_with('*')) name.back() = 'x';
    EXPECT_EQ(find_foreign_field(name), &row) << name << " is that of an earlier row";
    EXPECT_FALSE(is_harmless_field(name)) << name;
    EXPECT_FALSE(row.counts(nullptr)) << name;
  }
}

/// Moonshot's file is DeepSeek-V3's in all but its name, with YaRN that blends nothing.
TEST(OtherTypes, AreReadAsTheClassThatTheyName) {
  const Json kimi = deepseek_with({{"model_type", "kimi_k2"},
                                   {"architectures", {"DeepseekV3ForCausalLM"}},
                                   {"aux_loss_alpha", 0.001},
                                   {"num_nextn_predict_layers", 0},
                                   {"rope_theta", 50000.0},
                                   {"rope_scaling",
                                    {{"type", "yarn"},
                                     {"factor", 32.0},
                                     {"beta_fast", 1.0},
                                     {"beta_slow", 1.0},
                                     {"mscale", 1.0},
                                     {"mscale_all_dim", 1.0},
                                     {"original_max_position_embeddings", 4096}}}});
  EXPECT_THAT(notes_of(kimi),
              ElementsAre("model_type \"kimi_k2\" is read as deepseek_v3, whose class "
                          "DeepseekV3ForCausalLM the file names",
                          "unknown fields were ignored: aux_loss_alpha"));
  Json deepseek = kimi;
  deepseek["model_type"] = "deepseek_v3";
  EXPECT_EQ(read_hf_config(kimi.dump(), "c")->shape, read_hf_config(deepseek.dump(), "c")->shape);
  Json reversed = kimi;
  reversed["rope_scaling"]["beta_fast"] = 0.5;
  EXPECT_EQ(config_error(reversed),
            "c: rope_scaling.beta_fast: expected a number of at least beta_slow (1), got 0.5");
  EXPECT_EQ(
      config_error(llama_with(
          {{"model_type", "my_llama"}, {"architectures", {"LlamaForCausalLM"}}, {"num_loops", 2}})),
      "c: num_loops: expected none (not modelled: looped layers; "
      "docs/reference/limits.md), got 2");
}

TEST(OtherTypes, AreRefusedForWhatTheFileHas) {
  struct Case {
    Json config;
    std::vector<std::string_view> reasons;
  };
  Json many = Json::array();
  for (int i = 0; i < 12; ++i) many.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  const std::vector<Case> cases{
      {llama_with({{"model_type", "minimax_m9"},
                   {"num_local_experts", 16},
                   {"qk_norm_type", "per_layer"},
                   {"rotary_dim", 32},
                   {"scoring_func", "sigmoid"}}),
       {"qk_norm_type \"per_layer\" (norms over all of a layer's heads)",
        "rotary_dim 32 (RoPE of a part of each head)"}},
      {llama_with({{"model_type", "nemotron_h"},
                   {"hybrid_override_pattern", "M-M*-"},
                   {"mamba_num_heads", 8},
                   {"mlp_hidden_act", "relu2"}}),
       {"its class has state-space layers", "hybrid_override_pattern \"M-M*-\"",
        "mamba_num_heads 8 (state-space layers)", "mlp_hidden_act \"relu2\" (another activation)"}},
      {llama_with({{"model_type", "qwen3_next"},
                   {"full_attention_interval", 4},
                   {"linear_num_key_heads", 16},
                   {"partial_rotary_factor", 0.25}}),
       {"full_attention_interval 4 (linear attention)",
        "partial_rotary_factor 0.25 (RoPE of a part of each head)"}},
      {llama_with({{"model_type", "granitemoe"}, {"logits_scaling", 8.0}}),
       {"logits_scaling 8.0 (scaled activations)"}},
      {llama_with({{"model_type", "apertus"}, {"hidden_act", "xielu"}}),
       {"hidden_act \"xielu\" (another activation)"}},
      {llama_with({{"model_type", "brand_new"}, {"layer_types", {"full_attention", "conv"}}}),
       {"layer_types [\"full_attention\",\"conv\"] (layers of several kinds)"}},
      {llama_with({{"model_type", "brand_new"}, {"layer_types", many}}),
       {"layer_types 9 of linear_attention, 3 of full_attention (layers of several kinds)"}},
      {llama_with({{"model_type", "brand_new_moe"}, {"num_experts", 64}}),
       {"num_experts 64 (experts of this model_type)"}},
      {Json{{"model_type", "new_vl"}, {"vision_config", {{"depth", 4}}}},
       {"vision_config {...} (an image encoder)"}},
      {Json{{"model_type", "mamba"}}, {"its class has state-space layers"}}};
  for (const Case& each : cases) {
    const std::string error = config_error(each.config);
    EXPECT_THAT(error, AllOf(StartsWith(fmt::format("c: model_type: {} is not modelled: ",
                                                    each.config["model_type"].dump())),
                             HasSubstr("(docs/reference/limits.md)")));
    for (const std::string_view reason : each.reasons) EXPECT_THAT(error, HasSubstr(reason));
  }
  // A field that one of the families has is not a reason when there is one that none has.
  EXPECT_THAT(config_error(cases.front().config), Not(HasSubstr("num_local_experts")));
}

TEST(OtherTypes, OfWhichNothingIsKnownAreToldWhatTheyCouldBe) {
  EXPECT_EQ(config_error(llama_with({{"model_type", "brand_new"}})),
            "c: model_type: \"brand_new\" is not known, and what its class computes is not in the "
            "file; if it computes as llama does, set model_type to \"llama\"");
  EXPECT_THAT(
      config_error(Json{{"model_type", "brand_new"}}),
      AllOf(StartsWith("c: model_type: expected deepseek_v2, "), HasSubstr("got \"brand_new\"")));
}

TEST(OtherTypes, AreKnownByTheirWholeName) {
  EXPECT_EQ(what_class_has("nemotron_h"), "state-space layers");
  EXPECT_EQ(what_class_has("nemotron_h2"), std::nullopt);
  EXPECT_EQ(what_class_has("minimax"), "linear attention");
  EXPECT_EQ(what_class_has("minimax_m2"), std::nullopt);
}

TEST(NotModelledNames, OneBeginningIsNotOneModel) {
  for (const std::string_view modelled :
       {"deepseek-ai/deepseek-llm-7b-base", "deepseek-ai/deepseek-coder-6.7b-base",
        "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "nvidia/Mistral-NeMo-Minitron-8B-Base",
        "MiniMaxAI/MiniMax-M2", "zai-org/GLM-4.5-Air", "google/gemma-3-27b-it",
        "Qwen/Qwen3-VL-8B-Instruct", "tiiuae/Falcon3-7B-Base", "ibm-granite/granite-3b-code-base",
        "moonshotai/Kimi-K2-Base", "moonshotai/Moonlight-16B-A3B"})
    EXPECT_EQ(what_is_not_modelled(modelled), std::nullopt) << modelled;
  for (const auto& [name, what] : std::array<std::pair<std::string_view, std::string_view>, 6>{
           {{"MiniMaxAI/MiniMax-M1-80k", "linear attention"},
            {"moonshotai/Kimi-Linear-48B-A3B-Base", "linear attention"},
            {"nvidia/Nemotron-H-8B-Base-8K", "state-space layers"},
            {"tiiuae/falcon-7b", "attention in parallel with the MLP"},
            {"tiiuae/Falcon-H1-7B-Base", "state-space layers"},
            {"databricks/dbrx-base", "layer norms"}}})
    EXPECT_THAT(std::string(what_is_not_modelled(name).value_or("")), HasSubstr(std::string(what)))
        << name;
}

}  // namespace
}  // namespace mfsdp
