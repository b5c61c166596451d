#include "core/model/foreign_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "core/model/foreign_fields.hpp"
#include "core/model/foreign_words.hpp"

namespace mfsdp {
namespace {

struct ForeignType {
  std::string_view model_type;
  std::string_view what;
};

constexpr std::string_view kHalfRope = "RoPE of half of each head";

/// Classes of transformers (modeling_*.py) and of repositories on its hub.
constexpr std::array kForeignTypes{
    ForeignType{"apertus", "norms of queries and keys, and an activation with weights (xIELU)"},
    ForeignType{"arcee", "an MLP without a gate, with squared ReLU"},
    ForeignType{"bamba", foreign_words::kStateSpace},
    ForeignType{"bert", foreign_words::kEncoder},
    ForeignType{"bloom", "layer norms, and ALiBi in place of RoPE"},
    ForeignType{"codegen", foreign_words::kBesides},
    ForeignType{"cohere", foreign_words::kBesides},
    ForeignType{"cohere2", foreign_words::kBesides},
    ForeignType{"dbrx", "layer norms, and clipped queries, keys and values"},
    ForeignType{"deepseek_v4", "compressed and sparse attention, and hyper-connections"},
    ForeignType{"dots1", "experts routed by sigmoids, with grouped-query attention"},
    ForeignType{"exaone4", "norms of what attention and MLP add, and of queries and keys"},
    ForeignType{"falcon", foreign_words::kBesides},
    ForeignType{"falcon_h1", foreign_words::kStateSpace},
    ForeignType{"falcon_mamba", foreign_words::kStateSpace},
    ForeignType{"gemma3n", "layers that share keys and values, and sparse activations"},
    ForeignType{"glm", kHalfRope},
    ForeignType{"glm4", "norms before and after attention and MLP, and RoPE of half of each head"},
    ForeignType{"gpt_bigcode", foreign_words::kLayerNorms},
    ForeignType{"gpt_neo", foreign_words::kLayerNorms},
    ForeignType{"gpt_neox", foreign_words::kBesides},
    ForeignType{"gptj", foreign_words::kBesides},
    ForeignType{"granitemoehybrid", foreign_words::kStateSpace},
    ForeignType{"jamba", foreign_words::kStateSpace},
    ForeignType{"kimi_linear", foreign_words::kLinear},
    ForeignType{"lfm2", foreign_words::kConvolutions},
    ForeignType{"lfm2_moe", foreign_words::kConvolutions},
    ForeignType{"longcat_flash", "two attentions in each layer, and experts without computation"},
    ForeignType{"mamba", foreign_words::kStateSpace},
    ForeignType{"mamba2", foreign_words::kStateSpace},
    ForeignType{"minimax", foreign_words::kLinear},
    ForeignType{"minimax_m1", foreign_words::kLinear},
    ForeignType{"minimax_text_01", foreign_words::kLinear},
    ForeignType{"mllama", "cross-attention to images"},
    ForeignType{"mpt", "layer norms, and ALiBi in place of RoPE"},
    ForeignType{"nemotron", "layer norms, and an MLP without a gate, with squared ReLU"},
    ForeignType{"nemotron_h", foreign_words::kStateSpace},
    ForeignType{"olmo", "norms without weights"},
    ForeignType{"opt", "layer norms, and an MLP without a gate, with ReLU"},
    ForeignType{"phi", foreign_words::kBesides},
    ForeignType{"phimoe", "layer norms, and routing by SparseMixer"},
    ForeignType{"qwen3_5_moe_text", foreign_words::kLinear},
    ForeignType{"qwen3_5_text", foreign_words::kLinear},
    ForeignType{"qwen3_next", foreign_words::kLinear},
    ForeignType{"recurrent_gemma", "recurrent layers"},
    ForeignType{"rwkv", "recurrent layers"},
    ForeignType{"stablelm", "layer norms, and RoPE of a part of each head"},
    ForeignType{"starcoder2", foreign_words::kLayerNorms},
    ForeignType{"t5", foreign_words::kEncoder},
    ForeignType{"zamba", foreign_words::kStateSpace},
    ForeignType{"zamba2", foreign_words::kStateSpace},
};

/// A long list of words as their numbers, in the order of their first: "48 of linear_attention, 16
/// of full_attention". Empty for other values.
std::string words_by_number(const nlohmann::json& value) {
  constexpr std::size_t kShort = 8;
  const auto is_word = [](const nlohmann::json& one) { return one.is_string(); };
  if (!value.is_array() || value.size() <= kShort || !std::ranges::all_of(value, is_word))
    return {};
  std::vector<std::pair<std::string, std::size_t>> words;
  for (const nlohmann::json& one : value) {
    const auto& word = one.get_ref<const std::string&>();
    const auto found = std::ranges::find(words, word, &std::pair<std::string, std::size_t>::first);
    if (found == words.end())
      words.emplace_back(word, 1);
    else
      ++found->second;
  }
  if (words.size() > kShort) return {};
  std::string text;
  for (const auto& [word, number] : words)
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", number, printable(word));
  return text;
}

/// Fields that match a row of that kind, in the order of the table.
void add_reasons(const nlohmann::json& config, bool modelled_elsewhere,
                 std::set<std::string_view>& kinds, std::vector<std::string>& reasons) {
  for (const ForeignField& row : foreign_fields()) {
    if (row.to == ForeignTo::left_out) continue;
    if ((row.to == ForeignTo::other_families) != modelled_elsewhere) continue;
    for (const auto& [name, value] : config.items()) {
      if (find_foreign_field(name) != &row || !row.counts(value)) continue;
      if (kinds.insert(row.what).second)
        reasons.push_back(fmt::format("{} ({})", field_with_value(name, value), row.what));
    }
  }
}

}  // namespace

std::optional<std::string_view> what_class_has(std::string_view model_type) {
  const auto* const found = std::ranges::find(kForeignTypes, model_type, &ForeignType::model_type);
  return found == kForeignTypes.end() ? std::nullopt : std::optional(found->what);
}

std::vector<std::string> foreign_reasons(const nlohmann::json& config) {
  std::vector<std::string> reasons;
  std::set<std::string_view> kinds;
  add_reasons(config, false, kinds, reasons);
  if (reasons.empty()) add_reasons(config, true, kinds, reasons);
  return reasons;
}

std::string field_with_value(std::string_view name, const nlohmann::json& value) {
  const std::string text = value.is_object() ? "{...}" : words_by_number(value);
  return fmt::format("{} {}", printable(name), text.empty() ? json_excerpt(value) : text);
}

}  // namespace mfsdp
