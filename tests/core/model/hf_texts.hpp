// Texts of config.json that tests change field by field.
#pragma once

#include <string>
#include <string_view>

#include "core/model/hf_config.hpp"

namespace mfsdp::hf_texts {

/// Llama-3-8B's shape without rope fields; "@" lines are replaced by tests.
inline constexpr std::string_view kLlama = R"({
  "model_type": "llama",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "num_hidden_layers": 32,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "vocab_size": 128256,
  "max_position_embeddings": 8192,
  "rms_norm_eps": 1e-05
})";

/// kLlama with `field` set to `value`; "" leaves the field out; new fields are added.
inline std::string with(std::string_view field, std::string_view value, std::string text = "") {
  if (text.empty()) text = kLlama;
  const std::string key = "\"" + std::string(field) + "\":";
  if (const auto at = text.find(key); at != std::string::npos) {
    const auto line = text.rfind('\n', at);
    const auto end = text.find('\n', at);
    const bool last = text[end - 1] != ',';
    text.erase(line, end - line);
    if (last) text.erase(text.rfind(','), 1);
  }
  if (!value.empty()) text.insert(1, "\n  " + key + " " + std::string(value) + ",");
  return text;
}

inline std::string error_of(const std::string& text) {
  const auto shape = parse_hf_config(text, "config.json");
  return shape ? "no error" : shape.error().message();
}

}  // namespace mfsdp::hf_texts
