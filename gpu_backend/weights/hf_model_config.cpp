#include "gpu_backend/weights/hf_model_config.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/read_file.hpp"
#include "core/model/hf_config.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestConfig = std::size_t{16} << 20;

std::string_view torch_dtype(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bfloat16";
    case DType::fp16: return "float16";
    case DType::fp64: return "float64";
    default: return "float32";
  }
}

Json scaling_of(const RopeScaling& scaling) {
  if (scaling == RopeScaling{}) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor.value()},
          {"low_freq_factor", scaling.low_freq_factor.value()},
          {"high_freq_factor", scaling.high_freq_factor.value()},
          {"original_max_position_embeddings", scaling.original_max_seq_len}};
}

/// What only one family's class reads.
Json family_of(const ModelShape& shape) {
  if (shape.qkv_bias)
    return {{"model_type", "qwen2"},
            {"architectures", {"Qwen2ForCausalLM"}},
            {"use_sliding_window", false}};
  if (shape.qk_norm)
    return {{"model_type", "qwen3"},
            {"architectures", {"Qwen3ForCausalLM"}},
            {"attention_bias", false},
            {"use_sliding_window", false}};
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"pretraining_tp", 1}};
}

/// What two configs may disagree about, by Hugging Face's names.
struct Field {
  std::string_view name;
  std::string value;
};

auto fields_of(const ModelShape& s) {
  const auto integer = [](std::int64_t value) { return std::to_string(value); };
  const auto real = [](const Rational& value) { return fmt::format("{}", value.value()); };
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  const RopeScaling& scaling = s.rope_scaling;
  return std::array{
      Field{"vocab_size", integer(s.vocab)},
      Field{"hidden_size", integer(s.hidden)},
      Field{"num_hidden_layers", integer(s.layers)},
      Field{"num_attention_heads", integer(s.heads)},
      Field{"num_key_value_heads", integer(s.kv_heads)},
      Field{"head_dim", integer(s.head_dim)},
      Field{"intermediate_size", integer(s.intermediate)},
      Field{"tie_word_embeddings", yes(s.tied_embeddings)},
      Field{"biases of query, key and value", yes(s.qkv_bias)},
      Field{"norms of query and key", yes(s.qk_norm)},
      Field{"rms_norm_eps", real(s.rms_norm_eps)},
      Field{"rope_theta", real(s.rope_theta)},
      Field{"rope_scaling.factor", real(scaling.factor)},
      Field{"rope_scaling.low_freq_factor", real(scaling.low_freq_factor)},
      Field{"rope_scaling.high_freq_factor", real(scaling.high_freq_factor)},
      Field{"rope_scaling.original_max_position_embeddings", integer(scaling.original_max_seq_len)},
  };
}

}  // namespace

Result<std::string> hf_config_text(const ModelShape& shape, DType dtype) {
  Json config = family_of(shape);
  config.update({{"attention_dropout", 0.0},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"head_dim", shape.head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", shape.hidden},
                 {"initializer_range", kInitialDeviation},
                 {"intermediate_size", shape.intermediate},
                 {"max_position_embeddings", shape.max_seq_len},
                 {"num_attention_heads", shape.heads},
                 {"num_hidden_layers", shape.layers},
                 {"num_key_value_heads", shape.kv_heads},
                 {"rms_norm_eps", shape.rms_norm_eps.value()},
                 {"rope_scaling", scaling_of(shape.rope_scaling)},
                 {"rope_theta", shape.rope_theta.value()},
                 {"tie_word_embeddings", shape.tied_embeddings},
                 {"torch_dtype", torch_dtype(dtype)},
                 {"use_cache", true},
                 {"vocab_size", shape.vocab}});
  std::string text = config.dump(2) + "\n";
  const auto read = parse_hf_config(text, "config.json of the plan's model");
  if (!read) return tl::unexpected<Error>(read.error());
  if (*read != shape)
    return fail("plan, model", "has a shape that no config.json of transformers can state");
  return text;
}

Result<void> check_hf_config(const std::filesystem::path& folder, const ModelShape& shape) {
  const std::filesystem::path path = folder / kHfConfig;
  MFSDP_LET(text, read_file(path, "a config.json", kLargestConfig));
  MFSDP_LET(found, parse_hf_config(text, path.string()));
  const auto expected = fields_of(shape);
  const auto got = fields_of(found);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (expected.at(i).value != got.at(i).value)
      return fail(fmt::format("{}, {}", path.string(), expected.at(i).name),
                  fmt::format("expected {}, as the plan's model has, got {}", expected.at(i).value,
                              got.at(i).value));
  return {};
}

}  // namespace mfsdp
