#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "core/model/hf_parts.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Layers = std::vector<std::int64_t>;

/// Sizes of a model of 32 layers and 16384 positions; `fields` are added.
Json attention_config(const char* model_type, const Json& fields = {}) {
  Json config{{"model_type", model_type},   {"hidden_size", 4096},
              {"intermediate_size", 14336}, {"num_hidden_layers", 32},
              {"num_attention_heads", 32},  {"num_key_value_heads", 8},
              {"vocab_size", 32000},        {"max_position_embeddings", 16384},
              {"rms_norm_eps", 1e-05}};
  config.update(fields.is_null() ? Json::object() : fields);
  return config;
}

ModelShape attention_shape(const Json& config) {
  const auto shape = parse_hf_config(config.dump(), "config.json");
  EXPECT_TRUE(shape) << shape.error().message();
  return shape.value_or(ModelShape{});
}
std::string refusal_of(const Json& config) {
  const auto shape = parse_hf_config(config.dump(), "config.json");
  return shape ? "no error" : shape.error().message();
}

Layers from_to(std::int64_t first, std::int64_t end) {
  Layers layers(static_cast<std::size_t>(end - first));
  std::iota(layers.begin(), layers.end(), first);
  return layers;
}

// ---- windows -----------------------------------------------------------------------------------

TEST(HfAttention, AllLayersOfMistralSlide) {
  const ModelShape absent = attention_shape(attention_config("mistral"));
  EXPECT_EQ(absent.sliding_window, 4096);  // the class's own
  EXPECT_EQ(absent.sliding_layers, from_to(0, 32));
  EXPECT_EQ(attention_shape(attention_config("mistral", {{"sliding_window", 1024}})).sliding_window,
            1024);
  const ModelShape none =
      attention_shape(attention_config("mistral", {{"sliding_window", nullptr}}));
  EXPECT_EQ(none.sliding_window, 0);
  EXPECT_TRUE(none.sliding_layers.empty());
}

TEST(HfAttention, LayersOfQwenSlideFromANumberOnWhereThatIsSwitchedOn) {
  const Json window{{"sliding_window", 4096}, {"max_window_layers", 21}};
  EXPECT_EQ(attention_shape(attention_config("qwen2", window)).sliding_window, 0);
  // The class of Qwen2-MoE of transformers 5 writes 0 where it is off.
  EXPECT_EQ(attention_shape(attention_config("qwen2", {{"sliding_window", 0}})).sliding_window, 0);
  Json on = window;
  on["use_sliding_window"] = true;
  EXPECT_EQ(attention_shape(attention_config("qwen2", on)).sliding_layers, from_to(21, 32));
  EXPECT_EQ(attention_shape(attention_config("qwen3", on)).sliding_layers, from_to(21, 32));
  on.erase("max_window_layers");
  EXPECT_EQ(attention_shape(attention_config("qwen2", on)).sliding_layers,
            from_to(28, 32));  // the class's own
  on["max_window_layers"] = 32;
  EXPECT_EQ(attention_shape(attention_config("qwen2", on)).sliding_window, 0);
  // Names of layers count before the number.
  Json types = Json::array();
  for (int layer = 0; layer < 32; ++layer)
    types.push_back(layer == 3 || layer == 30 ? "sliding_attention" : "full_attention");
  on["layer_types"] = types;
  EXPECT_EQ(attention_shape(attention_config("qwen2", on)).sliding_layers, (Layers{3, 30}));
  on["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(refusal_of(attention_config("qwen2", on)),
            "config.json: layer_types: expected one for each of 32 layers, got "
            "[\"sliding_attention\"]");
}

TEST(HfAttention, LlamaHasNoWindow) {
  EXPECT_EQ(attention_shape(attention_config("llama", {{"sliding_window", 4096}})).sliding_window,
            0);
}

// ---- what families to come have ----------------------------------------------------------------

constexpr HfFamily kGemma2{.model_type = "gemma2",
                           .sliding = SlidingRule::pattern,
                           .sliding_pattern = 2,
                           .scaled_scores = true,
                           .score_cap = 50,
                           .logit_cap = 30,
                           .query_scalar = 256};
constexpr HfFamily kGemma3{.model_type = "gemma3_text",
                           .sliding = SlidingRule::pattern,
                           .sliding_pattern = 6,
                           .rope_theta = 1000000,
                           .local_rope_theta = 10000,
                           .scaled_scores = true,
                           .query_scalar = 256};

ModelShape read_family_as(const HfFamily& family, const Json& fields, std::int64_t layers,
                          std::int64_t head_dim) {
  HfModel model;
  model.shape.layers = layers;
  model.shape.head_dim = head_dim;
  model.shape.max_seq_len = 8192;
  const Json config = fields.is_null() ? Json::object() : fields;
  const std::string where = "config.json";
  const auto read = read_hf_attention(HfFields(config, where), family, model);
  EXPECT_TRUE(read) << read.error().message();
  return model.shape;
}

TEST(HfAttention, EverySecondLayerOfGemma2SlidesAndScoresAreCapped) {
  const ModelShape shape = read_family_as(kGemma2, {}, 5, 128);
  EXPECT_EQ(shape.sliding_layers, (Layers{0, 2, 4}));
  EXPECT_EQ(shape.sliding_window, 4096);
  EXPECT_EQ(shape.score_cap, (Rational{50, 1}));
  EXPECT_EQ(shape.logit_cap, (Rational{30, 1}));
  EXPECT_EQ(shape.query_scalar, (Rational{256, 1}));
  const ModelShape stated = read_family_as(kGemma2,
                                           {{"attn_logit_softcapping", nullptr},
                                            {"final_logit_softcapping", 20.5},
                                            {"query_pre_attn_scalar", 144}},
                                           5, 144);
  EXPECT_EQ(stated.score_cap.num, 0);
  EXPECT_EQ(stated.logit_cap, (Rational{41, 2}));
  EXPECT_EQ(stated.query_scalar.num, 0);  // as head_dim has it
}

TEST(HfAttention, EverySixthLayerOfGemma3SeesAllByAnotherTheta) {
  const ModelShape shape = read_family_as(kGemma3, {}, 13, 256);
  EXPECT_EQ(shape.sliding_layers, (Layers{0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12}));
  EXPECT_EQ(shape.rope_theta, (Rational{1000000, 1}));
  EXPECT_EQ(shape.local_rope_theta, (Rational{10000, 1}));
  EXPECT_EQ(shape.score_cap.num, 0);
  EXPECT_EQ(read_family_as(kGemma3, {{"sliding_window_pattern", 3}}, 6, 256).sliding_layers,
            (Layers{0, 1, 3, 4}));
  const ModelShape by_layer = read_family_as(
      kGemma3,
      {{"rope_parameters",
        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000}}},
         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 20000}}}}}},
      13, 256);
  EXPECT_EQ(by_layer.rope_theta, (Rational{500000, 1}));
  EXPECT_EQ(by_layer.local_rope_theta, (Rational{20000, 1}));
  EXPECT_EQ(by_layer.rope_scaling.kind, RopeKind::linear);
}

TEST(HfAttention, FamiliesWithoutCapsRefuseThem) {
  EXPECT_EQ(refusal_of(attention_config("llama", {{"attn_logit_softcapping", 50.0}})),
            "config.json: attn_logit_softcapping: expected none (not modelled: logit softcaps; "
            "docs/reference/limits.md), got 50.0");
}

// ---- RoPE --------------------------------------------------------------------------------------

TEST(HfAttention, ReadsYarn) {
  const RopeScaling qwen =
      attention_shape(
          attention_config(
              "qwen2",
              {{"rope_scaling",
                {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}}}))
          .rope_scaling;
  EXPECT_EQ(qwen, (RopeScaling{.kind = RopeKind::yarn,
                               .factor = {4, 1},
                               .low_freq_factor = {1, 1},
                               .high_freq_factor = {32, 1},
                               .original_max_seq_len = 4096}));
  const RopeScaling all =
      attention_shape(attention_config("qwen2", {{"rope_scaling",
                                                  {{"rope_type", "yarn"},
                                                   {"factor", 2.5},
                                                   {"beta_fast", 16},
                                                   {"beta_slow", 2},
                                                   {"attention_factor", 1.25}}}}))
          .rope_scaling;
  EXPECT_EQ(all, (RopeScaling{.kind = RopeKind::yarn,
                              .factor = {5, 2},
                              .low_freq_factor = {2, 1},
                              .high_freq_factor = {16, 1},
                              .original_max_seq_len = 16384,  // max_position_embeddings
                              .attention_factor = {5, 4}}));
}

TEST(HfAttention, ReadsLinear) {
  const auto scaling = [](double factor) {
    return attention_shape(attention_config("llama", {{"rope_scaling",
                                                       {{"type", "linear"}, {"factor", factor}}}}))
        .rope_scaling;
  };
  EXPECT_EQ(scaling(2.5), (RopeScaling{.kind = RopeKind::linear, .factor = {5, 2}}));
  EXPECT_EQ(scaling(1.0), RopeScaling{});
}

/// Phi-3-mini-128k's fields, with heads of 8 elements.
Json phi3(const Json& fields = {}) {
  Json config = attention_config("phi3", {{"hidden_size", 256},
                                          {"original_max_position_embeddings", 4096},
                                          {"sliding_window", 2047},
                                          {"rope_scaling",
                                           {{"type", "longrope"},
                                            {"short_factor", {1.0, 1.02, 1.5, 2}},
                                            {"long_factor", {1.5, 3.0, 10.5, 60.25}}}}});
  config.update(fields.is_null() ? Json::object() : fields);
  return config;
}

TEST(HfAttention, ReadsPhi3) {
  const ModelShape shape = attention_shape(phi3());
  EXPECT_EQ(shape.rope_scaling, (RopeScaling{.kind = RopeKind::longrope,
                                             .factor = {4, 1},  // 16384 / 4096
                                             .original_max_seq_len = 4096,
                                             .short_factors = {{1, 1}, {51, 50}, {3, 2}, {2, 1}},
                                             .long_factors = {{3, 2}, {3, 1}, {21, 2}, {241, 4}}}));
  EXPECT_EQ(shape.sliding_window, 2047);
  EXPECT_EQ(shape.sliding_layers, from_to(0, 32));
  EXPECT_TRUE(shape.fused_weights);
  EXPECT_EQ(attention_shape(phi3({{"sliding_window", nullptr}})).sliding_window, 0);
  Json older = phi3();
  older["rope_scaling"]["type"] = "su";
  EXPECT_EQ(attention_shape(older), shape);
  Json shorter = phi3();
  shorter["rope_scaling"]["long_factor"] = {1.5, 3.0};
  EXPECT_EQ(
      refusal_of(shorter),
      "config.json: rope_scaling.long_factor: expected 4 numbers, one for each frequency, got "
      "2");
}

TEST(HfAttention, PartsOfHeadsTurnWhereTheFamilyDoesThat) {
  Json config = phi3({{"partial_rotary_factor", 0.75}, {"rope_scaling", nullptr}});
  EXPECT_EQ(attention_shape(config).rotary_dim, 6);
  EXPECT_EQ(attention_shape(config).rotated_dim(), 6);
  config["partial_rotary_factor"] = 0.9;  // 7.2, rounded down to 7: no pairs
  EXPECT_EQ(refusal_of(config),
            "config.json: partial_rotary_factor: expected an even number of elements, fewer than a "
            "head's 8, got 7");
  config["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(attention_shape(config).rotary_dim, 0);
}

/// Every fourth layer of SmolLM3, or those with 0.
TEST(HfAttention, LayersWithoutRopeAreNamedOrCounted) {
  const ModelShape counted = attention_shape(attention_config("smollm3"));
  EXPECT_EQ(counted.nope_layers, (Layers{3, 7, 11, 15, 19, 23, 27, 31}));
  EXPECT_TRUE(counted.has_other_rope(3));
  EXPECT_FALSE(counted.has_other_rope(4));
  Json flags = Json::array();
  for (int layer = 0; layer < 32; ++layer) flags.push_back(layer == 5 ? 0 : 1);
  EXPECT_EQ(attention_shape(attention_config("smollm3", {{"no_rope_layers", flags}})).nope_layers,
            Layers{5});
  EXPECT_EQ(refusal_of(attention_config("smollm3", {{"no_rope_layers", {1, 0}}})),
            "config.json: no_rope_layers: expected 0 or 1 for each of 32 layers, got [1,0]");
}

/// Granite multiplies attention logits by 1/64 where heads of 128 would be divided by their root.
TEST(HfAttention, MultipliersOfGraniteAreExact) {
  const ModelShape shape =
      attention_shape(attention_config("granite", {{"embedding_multiplier", 12.0},
                                                   {"attention_multiplier", 0.015625},
                                                   {"residual_multiplier", 0.22},
                                                   {"logits_scaling", 16.0}}));
  EXPECT_EQ(shape.query_scalar, (Rational{4096, 1}));
  EXPECT_EQ(shape.embedding_multiplier, (Rational{12, 1}));
  EXPECT_EQ(shape.residual_multiplier, (Rational{11, 50}));
  EXPECT_EQ(shape.logit_multiplier, (Rational{1, 16}));
  const ModelShape plain =
      attention_shape(attention_config("granite", {{"attention_multiplier", 0.08838834764831845}}));
  EXPECT_EQ(plain, attention_shape(attention_config("llama")));
}

/// OLMo 3 scales the angles of layers without a window alone.
TEST(HfAttention, ScalingOfOlmo3LeavesOutWindows) {
  const Json scaling{{"rope_type", "yarn"}, {"factor", 8.0}};
  const ModelShape shape = attention_shape(
      attention_config("olmo3", {{"rope_theta", 500000}, {"rope_scaling", scaling}}));
  EXPECT_EQ(shape.sliding_window, 4096);
  EXPECT_EQ(shape.sliding_layers.size(), 24U);  // three of four
  EXPECT_FALSE(shape.slides(3));
  EXPECT_EQ(shape.local_rope_theta, (Rational{500000, 1}));
  EXPECT_EQ(attention_shape(attention_config("olmo3")).local_rope_theta, (Rational{0, 1}));
}

}  // namespace
}  // namespace mfsdp
