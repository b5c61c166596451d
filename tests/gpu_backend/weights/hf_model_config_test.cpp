#include "gpu_backend/weights/hf_model_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/model/hf_config.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kModels = MFSDP_SOURCE_DIR "/scenarios/models";

ModelShape shape_of(const std::string& name) { return load_model(name, kModels).value().shape; }

TEST(HfModelConfig, EveryBuiltInModelReadsBackAsItWas) {
  const auto names = list_models(kModels).value();
  ASSERT_GT(names.size(), 10U);
  for (const std::string& name : names) {
    const ModelShape shape = shape_of(name);
    const auto text = hf_config_text(shape, DType::bf16);
    ASSERT_TRUE(text) << name << ": " << text.error().message();
    EXPECT_EQ(parse_hf_config(*text, name).value(), shape) << name;
  }
}

TEST(HfModelConfig, SaysWhatTransformersReads) {
  const auto llama =
      nlohmann::json::parse(hf_config_text(shape_of("llama3_1b"), DType::fp16).value());
  EXPECT_EQ(llama["architectures"], nlohmann::json({"LlamaForCausalLM"}));
  EXPECT_EQ(llama["model_type"], "llama");
  EXPECT_EQ(llama["torch_dtype"], "float16");
  EXPECT_EQ(llama["hidden_size"], 2048);
  EXPECT_EQ(llama["tie_word_embeddings"], true);
  EXPECT_EQ(llama["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(llama["rope_scaling"]["factor"].dump(), "32.0");  // transformers wants a float
  EXPECT_EQ(llama["rope_scaling"]["original_max_position_embeddings"], 8192);
  EXPECT_EQ(llama["attention_bias"], false);
  const auto type = [](const char* model) {
    const auto config = nlohmann::json::parse(hf_config_text(shape_of(model), DType::fp32).value());
    EXPECT_EQ(config["torch_dtype"], "float32");
    return config["model_type"].get<std::string>() + " " +
           config["architectures"].at(0).get<std::string>();
  };
  EXPECT_EQ(type("qwen2.5_7b"), "qwen2 Qwen2ForCausalLM");
  EXPECT_EQ(type("qwen3_8b"), "qwen3 Qwen3ForCausalLM");
  EXPECT_EQ(type("mistral_7b"), "llama LlamaForCausalLM");
  EXPECT_EQ(type("mistral_7b_v0.1"), "mistral MistralForCausalLM");
  EXPECT_EQ(type("phi3_mini"), "phi3 Phi3ForCausalLM");
  EXPECT_EQ(type("gpt2"), "gpt2 GPT2LMHeadModel");
  EXPECT_EQ(type("olmo2_1b"), "olmo2 Olmo2ForCausalLM");
  EXPECT_EQ(type("olmoe_1b_7b"), "olmoe OlmoeForCausalLM");
  EXPECT_EQ(type("mixtral_8x7b"), "mixtral MixtralForCausalLM");
  EXPECT_EQ(type("qwen1.5_moe_a2.7b"), "qwen2_moe Qwen2MoeForCausalLM");
  EXPECT_EQ(type("deepseek_v2_lite"), "deepseek_v2 DeepseekV2ForCausalLM");
  EXPECT_EQ(type("deepseek_v3"), "deepseek_v3 DeepseekV3ForCausalLM");
  EXPECT_EQ(type("gpt_oss_20b"), "gpt_oss GptOssForCausalLM");
  EXPECT_EQ(type("moe_nano"), "qwen3_moe Qwen3MoeForCausalLM");
}

TEST(HfModelConfig, WindowsAndScalingsReadBackAsTheyWere) {
  const auto reads_back = [](const ModelShape& shape) {
    const auto text = hf_config_text(shape, DType::bf16);
    if (!text) return text.error().message();
    return parse_hf_config(*text, "config.json").value() == shape ? std::string("yes") : *text;
  };
  ModelShape qwen = shape_of("qwen2.5_0.5b");
  qwen.sliding_window = 4096;
  qwen.sliding_layers = {3, 5, 23};
  EXPECT_EQ(reads_back(qwen), "yes");
  qwen.rope_scaling = {.kind = RopeKind::yarn,
                       .factor = {4, 1},
                       .low_freq_factor = {1, 1},
                       .high_freq_factor = {32, 1},
                       .original_max_seq_len = 32768};
  EXPECT_EQ(reads_back(qwen), "yes");
  qwen.rope_scaling.attention_factor = {5, 4};
  EXPECT_EQ(reads_back(qwen), "yes");
  ModelShape mistral = shape_of("mistral_7b_v0.1");
  mistral.rope_scaling = {.kind = RopeKind::linear, .factor = {5, 2}};
  EXPECT_EQ(reads_back(mistral), "yes");
  mistral.sliding_layers.pop_back();  // a class without a word for that
  EXPECT_EQ(reads_back(mistral),
            "plan, model: has a shape that no config.json of transformers can state");
  ModelShape phi3 = shape_of("phi3_mini");
  phi3.rotary_dim = 72;  // of 96
  phi3.max_seq_len = 131072;
  phi3.rope_scaling = {.kind = RopeKind::longrope,
                       .factor = {32, 1},
                       .original_max_seq_len = 4096,
                       .short_factors = std::vector<Rational>(36, {21, 20}),
                       .long_factors = std::vector<Rational>(36, {61, 2})};
  EXPECT_EQ(reads_back(phi3), "yes");
}

TEST(HfModelConfig, RefusesShapesOfNoFamily) {
  ModelShape shape = shape_of("llama_nano");
  shape.qkv_bias = shape.qk_norm = true;
  EXPECT_EQ(hf_config_text(shape, DType::bf16).error().message(),
            "plan, model: has a shape that no config.json of transformers can state");
  shape = shape_of("llama_nano");
  shape.rope_theta = {.num = 10'000, .den = 3};
  EXPECT_FALSE(hf_config_text(shape, DType::bf16));
}

TEST(HfModelConfig, AnotherModelsConfigIsRefusedWithBothValues) {
  const test::ScratchFolder folder;
  const std::string path = (folder / "config.json").string();
  const ModelShape shape = shape_of("llama3_1b");
  const auto error_with = [&](auto change) {
    ModelShape other = shape;
    change(other);
    test::write_file(path, hf_config_text(other, DType::bf16).value());
    const auto checked = check_hf_config(folder.path(), shape);
    return checked ? "none" : checked.error().message();
  };
  EXPECT_EQ(error_with([](ModelShape& s) { s.max_seq_len = 4096; }), "none");
  EXPECT_EQ(error_with([](ModelShape& s) { s.layers = 17; }),
            path + ", num_hidden_layers: expected 16, as the plan's model has, got 17");
  EXPECT_EQ(error_with([](ModelShape& s) { s.tied_embeddings = false; }),
            path + ", tie_word_embeddings: expected true, as the plan's model has, got false");
  // The words of the file, not of what is made of it here.
  EXPECT_EQ(error_with([](ModelShape& s) { s.qk_norm = true; }),
            path + ", model_type: expected llama, as the plan's model has, got qwen3");
  EXPECT_EQ(error_with([](ModelShape& s) { s = shape_of("mixtral_8x7b"); }),
            path + ", model_type: expected llama, as the plan's model has, got mixtral");
  EXPECT_EQ(error_with([](ModelShape& s) { s = shape_of("qwen3_30b_a3b"); }),
            path + ", model_type: expected llama, as the plan's model has, got qwen3_moe");
  EXPECT_EQ(error_with([](ModelShape& s) { s.rms_norm_eps = {.num = 1, .den = 1'000'000}; }),
            path + ", rms_norm_eps: expected 1e-05, as the plan's model has, got 1e-06");
  EXPECT_EQ(error_with([](ModelShape& s) { s.rope_scaling.factor = {.num = 8, .den = 1}; }),
            path + ", rope_scaling.factor: expected 32, as the plan's model has, got 8");
  EXPECT_EQ(error_with([](ModelShape& s) { s.rope_theta = {.num = 10'000, .den = 1}; }),
            path + ", rope_theta: expected 500000, as the plan's model has, got 10000");
}

TEST(HfModelConfig, AMissingConfigIsNamed) {
  const test::ScratchFolder folder;
  const auto checked = check_hf_config(folder.path(), shape_of("llama_nano"));
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr("config.json: cannot be opened: No such file"));
}

}  // namespace
}  // namespace mfsdp
