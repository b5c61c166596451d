#include "core/model/hf_config.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/core/model/hf_texts.hpp"

namespace mfsdp {
namespace {

using hf_texts::error_of;
using hf_texts::kLlama;
using hf_texts::with;
using testing::HasSubstr;
using testing::StartsWith;

TEST(HfConfig, ReadsLlama) {
  const auto shape = parse_hf_config(kLlama, "config.json");
  ASSERT_TRUE(shape) << shape.error().message();
  ModelShape expected;
  expected.vocab = 128256;
  expected.hidden = 4096;
  expected.layers = 32;
  expected.heads = 32;
  expected.kv_heads = 8;
  expected.head_dim = 128;  // 4096 / 32
  expected.intermediate = 14336;
  expected.max_seq_len = 8192;
  expected.rms_norm_eps = Rational{1, 100000};
  expected.rope_theta = Rational{10000, 1};  // Hugging Face's default
  EXPECT_EQ(*shape, expected);
}

TEST(HfConfig, AcceptsByteOrderMarkAndNulls) {
  const std::string text =
      with("head_dim", "null",
           with("rope_scaling", "null",
                with("quantization_config", "null", with("num_key_value_heads", "null"))));
  const auto shape = parse_hf_config("\xEF\xBB\xBF" + text, "config.json");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->kv_heads, 32);
  EXPECT_EQ(shape->head_dim, 128);
  EXPECT_EQ(shape->rope_scaling, RopeScaling{});
}

TEST(HfConfig, FamiliesDifferInBiasNormAndHeadDim) {
  const auto qwen2 =
      parse_hf_config(with("attention_bias", "true", with("model_type", "\"qwen2\"")), "c");
  ASSERT_TRUE(qwen2) << qwen2.error().message();
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->qk_norm);

  const std::string small = with("hidden_size", "1024", with("num_attention_heads", "16"));
  const auto qwen3 = parse_hf_config(with("model_type", "\"qwen3\"", small), "c");
  ASSERT_TRUE(qwen3) << qwen3.error().message();
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_TRUE(qwen3->qk_norm);
  EXPECT_EQ(qwen3->head_dim, 128);  // Qwen3's default, not 1024 / 16 = 64

  const auto llama = parse_hf_config(small, "c");
  ASSERT_TRUE(llama) << llama.error().message();
  EXPECT_EQ(llama->head_dim, 64);
}

/// The hub's gpt2, but for its dropout.
constexpr std::string_view kGpt2 = R"({
  "model_type": "gpt2",
  "activation_function": "gelu_new",
  "attn_pdrop": 0.0,
  "layer_norm_epsilon": 1e-05,
  "n_ctx": 1024,
  "n_embd": 768,
  "n_head": 12,
  "n_layer": 12,
  "n_positions": 1024,
  "vocab_size": 50257
})";

TEST(HfConfig, ReadsGpt2ByItsOwnNames) {
  const auto shape = parse_hf_config(kGpt2, "c");
  ASSERT_TRUE(shape) << shape.error().message();
  ModelShape expected;
  expected.family = Family::gpt2;
  expected.vocab = 50257;
  expected.hidden = 768;
  expected.layers = 12;
  expected.heads = expected.kv_heads = 12;
  expected.head_dim = 64;        // 768 / 12
  expected.intermediate = 3072;  // 4 * 768, as n_inner is absent
  expected.max_seq_len = 1024;
  expected.tied_embeddings = expected.qkv_bias = expected.fused_weights = true;
  expected.activation = Activation::gelu_tanh;
  expected.rms_norm_eps = Rational{1, 100000};
  EXPECT_EQ(*shape, expected);
  const std::string text(kGpt2);
  EXPECT_EQ(parse_hf_config(with("n_inner", "1000", text), "c")->intermediate, 1000);
  EXPECT_EQ(error_of(with("attn_pdrop", "0.1", text)),
            "config.json: attn_pdrop: expected none (not modelled: dropout; "
            "docs/reference/limits.md), got "
            "0.1");
  EXPECT_EQ(error_of(with("activation_function", "\"relu\"", text)),
            "config.json: activation_function: expected \"gelu_new\", got \"relu\"");
  EXPECT_EQ(error_of(with("n_embd", "", text)),
            "config.json: n_embd: expected an integer from 1 to 2147483647, got nothing");
  EXPECT_TRUE(parse_hf_config(with("num_hidden_layers", "12", text), "c"));
  EXPECT_EQ(error_of(with("num_hidden_layers", "6", text)),
            "config.json: num_hidden_layers: expected the value of n_layer, 12, got 6");
  EXPECT_EQ(error_of(with("scale_attn_weights", "false", text)),
            "config.json: scale_attn_weights: expected true (unscaled attention logits are not "
            "modelled), got false");
  EXPECT_EQ(error_of(with("rope_theta", "5000", text)),
            "config.json: family gpt2: expected no RoPE and no settings of it");
}

TEST(HfConfig, ReadsOlmo2) {
  const auto shape =
      parse_hf_config(with("num_key_value_heads", "", with("model_type", "\"olmo2\"")), "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->family, Family::olmo2);
  EXPECT_TRUE(shape->qk_norm && shape->output_norms);
  EXPECT_EQ(shape->kv_heads, 32);
  EXPECT_EQ(shape->qk_norm_width(shape->heads), 4096);
}

TEST(HfConfig, ReadsRopeInOldAndNewForm) {
  constexpr std::string_view kScaling =
      R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_type": "llama3")";
  const std::string scaling(kScaling);
  const auto old_form =
      parse_hf_config(with("rope_theta", "500000.0", with("rope_scaling", scaling + "}")), "c");
  ASSERT_TRUE(old_form) << old_form.error().message();
  EXPECT_EQ(old_form->rope_theta, (Rational{500000, 1}));
  const RopeScaling expected{.factor = {8, 1},
                             .low_freq_factor = {1, 1},
                             .high_freq_factor = {4, 1},
                             .original_max_seq_len = 8192};
  EXPECT_EQ(old_form->rope_scaling, expected);

  const std::string parameters = scaling + R"(, "rope_theta": 500000})";
  const auto new_form = parse_hf_config(with("rope_parameters", parameters), "c");
  ASSERT_TRUE(new_form) << new_form.error().message();
  EXPECT_EQ(*new_form, *old_form);

  const auto both = parse_hf_config(
      with("rope_parameters", parameters, with("rope_scaling", scaling + "}")), "c");
  ASSERT_TRUE(both) << both.error().message();
  EXPECT_EQ(*both, *old_form);

  const auto plain = parse_hf_config(with("rope_parameters", R"({"rope_type": "default"})"), "c");
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->rope_scaling, RopeScaling{});
}

TEST(HfConfig, ScalingByOneIsNoScaling) {
  const auto shape =
      parse_hf_config(with("rope_scaling", R"({"type": "llama3", "factor": 1, "low_freq_factor": 1,
                               "high_freq_factor": 4, "original_max_position_embeddings": 64})"),
                      "c");
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->rope_scaling, RopeScaling{});
}

TEST(HfConfig, WindowsThatNeverCutAreFullAttention) {
  const std::string mistral = with("model_type", "\"mistral\"");
  EXPECT_EQ(error_of(with("sliding_window", "null", mistral)), "no error");
  EXPECT_EQ(error_of(with("sliding_window", "8192", mistral)), "no error");
  const std::string qwen2 = with("model_type", "\"qwen2\"", with("sliding_window", "4096"));
  EXPECT_EQ(error_of(with("use_sliding_window", "false", qwen2)), "no error");
}

struct BadField {
  std::string field;
  std::string value;
  std::string message;  ///< after "config.json: "
};

/// How a test of this case is called.
void PrintTo(const BadField& bad, std::ostream* out) { *out << bad.field; }

class BadFields : public testing::TestWithParam<BadField> {};

TEST_P(BadFields, AreNamed) {
  const BadField& bad = GetParam();
  EXPECT_EQ(error_of(with(bad.field, bad.value)), "config.json: " + bad.message);
}

constexpr auto kDim = "expected an integer from 1 to 2147483647, got ";

INSTANTIATE_TEST_SUITE_P(
    Sizes, BadFields,
    testing::Values(
        BadField{"hidden_size", "", std::string("hidden_size: ") + kDim + "nothing"},
        BadField{"hidden_size", "null", std::string("hidden_size: ") + kDim + "null"},
        BadField{"hidden_size", "0", std::string("hidden_size: ") + kDim + "0"},
        BadField{"hidden_size", "-4096", std::string("hidden_size: ") + kDim + "-4096"},
        BadField{"hidden_size", "4096.0", std::string("hidden_size: ") + kDim + "4096.0"},
        BadField{"hidden_size", "\"4096\"", std::string("hidden_size: ") + kDim + "\"4096\""},
        BadField{"hidden_size", "[4096]", std::string("hidden_size: ") + kDim + "[4096]"},
        BadField{"hidden_size", "true", std::string("hidden_size: ") + kDim + "true"},
        BadField{"intermediate_size", "9223372036854775808",  // 2^63
                 std::string("intermediate_size: ") + kDim + "9223372036854775808"},
        BadField{"intermediate_size", "36893488147419103232",  // 2^65, beyond unsigned
                 std::string("intermediate_size: ") + kDim + "3.6893488147419103e+19"},
        BadField{"vocab_size", "2147483648",  // 2^31
                 std::string("vocab_size: ") + kDim + "2147483648"},
        BadField{"max_position_embeddings", "",
                 std::string("max_position_embeddings: ") + kDim + "nothing"},
        BadField{"num_hidden_layers", "4097",
                 "num_hidden_layers: expected an integer from 1 to 4096, got 4097"},
        BadField{"num_attention_heads", "0",
                 "num_attention_heads: expected an integer from 1 to 1048576, got 0"},
        BadField{"num_attention_heads", "24",
                 "head_dim: expected an even integer, as hidden_size (4096) is not a multiple of "
                 "num_attention_heads (24), got nothing"},
        BadField{"num_key_value_heads", "5",
                 "num_key_value_heads: expected a divisor of num_attention_heads (32), got 5"},
        BadField{"num_key_value_heads", "64",
                 "num_key_value_heads: expected an integer from 1 to 32, got 64"},
        BadField{"head_dim", "127",
                 "head_dim: expected an even number (RoPE rotates pairs), got 127"}));

const std::string kTypes =
    "model_type: expected deepseek_v2, deepseek_v3, deepseek_v32, gemma, gemma2, gemma3_text, "
    "glm4_moe, glm_moe_dsa, gpt2, gpt_oss, granite, llama, llama4_text, mimo, minimax_m2, mistral, "
    "mixtral, "
    "olmo2, olmo3, olmoe, phi3, qwen2, qwen2_5_vl_text, qwen2_moe, qwen2_vl_text, qwen3, "
    "qwen3_moe, qwen3_vl_moe_text, qwen3_vl_text or smollm3, ";

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadFields,
    testing::Values(
        BadField{"model_type", "", kTypes + "got nothing"},
        BadField{"model_type", "\"dbrx\"",
                 "model_type: \"dbrx\" is not modelled: its class has layer norms, and clipped "
                 "queries, keys and values (docs/reference/limits.md)"},
        BadField{"model_type", "7", kTypes + "got 7"},
        BadField{"model_type", "\"qwen2\\n\\u001b[31m\"",  // stays on one line, no escape codes
                 "model_type: \"qwen2\\n\\u001b[31m\" is not known, and what its class computes "
                 "is not in the file; if it computes as llama does, set model_type to \"llama\""},
        BadField{"attention_bias", "true",
                 "attention_bias: expected false (attention biases are not supported), got true"},
        BadField{"attention_bias", "0", "attention_bias: expected true or false, got 0"},
        BadField{"mlp_bias", "true",
                 "mlp_bias: expected false (biases in the MLP are not supported), got true"},
        BadField{"hidden_act", "\"gelu\"", "hidden_act: expected \"silu\", got \"gelu\""},
        BadField{"tie_word_embeddings", "\"yes\"",
                 "tie_word_embeddings: expected true or false, got \"yes\""},
        BadField{"quantization_config", "8",
                 "quantization_config: expected an object or null, got 8"},
        BadField{
            "layer_types", R"(["full_attention", "linear_attention"])",
            "layer_types: expected \"full_attention\" or \"sliding_attention\" for every layer, "
            "got [\"full_attention\",\"linear_attention\"]"},
        BadField{"num_local_experts", "8",
                 "num_local_experts: expected none (not modelled: experts of this model_type; "
                 "docs/reference/limits.md), got 8"},
        BadField{"num_experts", "128",
                 "num_experts: expected none (not modelled: experts of this model_type; "
                 "docs/reference/limits.md), "
                 "got 128"},
        BadField{"attention_dropout", "0.1",
                 "attention_dropout: expected none (not modelled: dropout; "
                 "docs/reference/limits.md), got "
                 "0.1"},
        BadField{"qk_norm", "true",
                 "qk_norm: expected none (not modelled: norms of queries and keys; "
                 "docs/reference/limits.md), got true"},
        BadField{"residual_multiplier", "0.22",
                 "residual_multiplier: expected none (not modelled: scaled activations; "
                 "docs/reference/limits.md), got 0.22"},
        BadField{"is_causal", "false",
                 "is_causal: expected true (bidirectional attention is not modelled), got false"},
        BadField{"architectures", R"(["LlamaForSequenceClassification"])",
                 "architectures: expected a class ...ForCausalLM (other heads are not modelled), "
                 "got [\"LlamaForSequenceClassification\"]"},
        BadField{"partial_rotary_factor", "0.5",
                 "partial_rotary_factor: expected 1 (RoPE rotates whole heads), got 0.5"}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, BadFields,
    testing::Values(
        BadField{"rms_norm_eps", "", "rms_norm_eps: expected a number, got nothing"},
        BadField{"rms_norm_eps", "0",
                 "rms_norm_eps: expected a positive number of at most 18 digits, got 0"},
        BadField{"rms_norm_eps", "1e-300",
                 "rms_norm_eps: expected a positive number of at most 18 digits, got 1e-300"},
        BadField{"rms_norm_eps", "1.5",
                 "rms_norm_eps: expected a number above 0 and below 1, got 1.5"},
        BadField{"rope_theta", "-1",
                 "rope_theta: expected a positive number of at most 18 digits, got -1"},
        BadField{"rope_theta", "18446744073709551615",
                 "rope_theta: expected a positive number of at most 18 digits, got "
                 "18446744073709551615"},
        BadField{"rope_theta", "0.5", "rope_theta: expected a number of at least 1, got 0.5"},
        BadField{"rope_scaling", "8.0", "rope_scaling: expected an object or null, got 8.0"},
        BadField{"rope_scaling", R"({"rope_type": "mrope"})",
                 "rope_scaling.rope_type: expected \"llama3\", \"default\", \"yarn\", \"linear\", "
                 "\"dynamic\" or \"longrope\", got \"mrope\""},
        BadField{"rope_scaling", R"({"factor": 4.0})",
                 "rope_scaling.rope_type: expected \"llama3\", \"default\", \"yarn\", \"linear\", "
                 "\"dynamic\" or \"longrope\", got nothing"},
        BadField{"rope_scaling", R"({"rope_type": "llama3", "factor": 8})",
                 "rope_scaling.low_freq_factor: expected a number, got nothing"},
        BadField{"rope_scaling",
                 R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                     "high_freq_factor": 3, "original_max_position_embeddings": 8192})",
                 "rope_scaling.high_freq_factor: expected a number of at least low_freq_factor "
                 "(4), got 3"},
        BadField{"rope_scaling",
                 R"({"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                     "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
                 "rope_scaling.factor: expected a number of at least 1, got 0.5"},
        BadField{"rope_parameters", R"({"full_attention": {"rope_type": "yarn"}})",
                 "rope_parameters: expected one set of parameters for all layers, got "
                 "{\"full_attention\":{\"rope_type\":\"yarn\"}}"}));

TEST(HfConfig, NamesTheFieldThatMakesTooManyParameters) {
  // A block of 3 * hidden * intermediate = 3 * 2^25 * (2^31 - 1) > 2^53 is too large by itself.
  EXPECT_EQ(error_of(with("hidden_size", "33554432", with("intermediate_size", "2147483647"))),
            "config.json: intermediate_size: expected fewer than 2^53 parameters in all");
  // 64 experts of 3 * 4096 * (2^31 - 1) = 2.6e13 have 1.7e15, 512 have 1.35e16 > 2^53 = 9.0e15.
  EXPECT_EQ(
      error_of(with("moe_intermediate_size", "2147483647",
                    with("n_shared_experts", "0", with("n_routed_experts", "512", deepseek_v3())))),
      "config.json: moe_intermediate_size: expected fewer than 2^53 parameters in all");
  // Mixtral's experts have the width intermediate_size.
  EXPECT_EQ(
      error_of(with("intermediate_size", "2147483647",
                    with("num_experts_per_tok", "2",
                         with("num_local_experts", "512", with("model_type", "\"mixtral\""))))),
      "config.json: intermediate_size: expected fewer than 2^53 parameters in all");
  // A block of 3 * 4096 * (2^31 - 1) = 2.6e13, times 1000 layers 2.6e16 > 2^53 = 9.0e15.
  EXPECT_EQ(error_of(with("intermediate_size", "2147483647", with("num_hidden_layers", "1000"))),
            "config.json: num_hidden_layers: expected fewer than 2^53 parameters in all");
  // One block of hidden 4194304: 2.5 h^2 for attention + 3 h for the MLP = 4.4e13; two tables of
  // 2147483647 * 4194304 = 9.007e15 each.
  EXPECT_EQ(error_of(with("vocab_size", "2147483647",
                          with("hidden_size", "4194304",
                               with("intermediate_size", "1", with("num_hidden_layers", "1"))))),
            "config.json: vocab_size: expected fewer than 2^53 parameters in all");
}

TEST(HfConfig, ContradictingRopeFieldsAreErrors) {
  EXPECT_EQ(error_of(with("rope_parameters", R"({"rope_theta": 5})", with("rope_theta", "10000"))),
            "config.json: rope_parameters.rope_theta: expected the value of rope_theta outside "
            "(10000), got 5");
  EXPECT_EQ(error_of(with("rope_scaling", R"({"rope_type": "default"})",
                          with("rope_parameters",
                               R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4, "original_max_position_embeddings": 64})"))),
            "config.json: rope_parameters: expected the same scaling as in rope_scaling, got "
            "{\"factor\":8,\"high_freq_factor\":4,\"low_fr...");
}

TEST(HfConfig, CountsThatTheFamilyDoesNotImplyAreAskedFor) {
  const std::string mistral = with("model_type", "\"mistral\"", with("num_key_value_heads", ""));
  EXPECT_EQ(error_of(mistral),
            "config.json: num_key_value_heads: expected an integer from 1 to 32, got nothing");
}

ModelGaps gaps_of(const std::string& text) {
  const auto model = read_hf_config(text, "config.json");
  EXPECT_TRUE(model) << model.error().message();
  return model ? model->gaps : ModelGaps{};
}

TEST(HfConfig, ScalingsOfRopeThatNobodyComputesAreGaps) {
  EXPECT_EQ(gaps_of(with("rope_scaling", R"({"rope_type": "dynamic", "factor": 4.0})")),
            ModelGaps{.rope_type = "dynamic"});
  EXPECT_EQ(
      gaps_of(with("rope_scaling",
                   R"({"type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0})")),
      (ModelGaps{.rope_type = "yarn", .rope_why = "mscale (0.7) differs from mscale_all_dim (1)"}));
}

TEST(HfConfig, GapsAreErrorsForWhoeverComputes) {
  EXPECT_EQ(error_of(with("rope_scaling", R"({"type": "dynamic", "factor": 4.0})")),
            "config.json: RoPE scaling 'dynamic' is not computed (docs/reference/limits.md): other "
            "values, "
            "the same memory and time");
  EXPECT_EQ(
      error_of(with("rope_scaling",
                    R"({"type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0})")),
      "config.json: RoPE scaling 'yarn' is not computed, as mscale (0.7) differs from "
      "mscale_all_dim (1) (docs/reference/limits.md): other values, the same memory and time");
}

TEST(HfConfig, SwitchesThatAreOffAreNothing) {
  for (const char* off : {"null", "false", "0", "0.0"})
    EXPECT_EQ(error_of(with("attention_dropout", off)), "no error") << off;
  EXPECT_EQ(error_of(with("num_local_experts", "1")), "no error");
  EXPECT_EQ(error_of(with("architectures", R"(["LlamaModel"])")), "no error");
}

TEST(HfConfig, BrokenJsonNamesItsPlace) {
  EXPECT_THAT(error_of(""), StartsWith("config.json: expected"));
  EXPECT_THAT(error_of(" \n\t"), StartsWith("config.json: expected"));
  EXPECT_EQ(error_of("[1, 2]"), "config.json: expected a JSON object, got [1,2]");
  EXPECT_EQ(error_of("null"), "config.json: expected a JSON object, got null");
  EXPECT_THAT(error_of("{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 4x\n}"),
              StartsWith("config.json:3:"));
  EXPECT_THAT(error_of("{\n\"model_type\": \"llama\""), StartsWith("config.json:2:"));
  EXPECT_THAT(error_of("{\"model_type\": \"\xFF\"}"), StartsWith("config.json:1:"));
  EXPECT_THAT(error_of(R"({"hidden_size": 1, "hidden_size": 2})"), HasSubstr("hidden_size"));
  const std::string deep = std::string(100'000, '[');
  EXPECT_THAT(error_of("{\"a\": " + deep), HasSubstr("deep"));
  for (const std::string& text : {std::string("{\"a\": 1e999}"), std::string("{\"a\": NaN}"),
                                  std::string("{} {}"), std::string("{\"a\": \"\n\"}")}) {
    EXPECT_THAT(error_of(text), StartsWith("config.json"));
    EXPECT_EQ(error_of(text).find('\n'), std::string::npos) << error_of(text);
  }
}

}  // namespace
}  // namespace mfsdp
