#include "core/model/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

struct Unmodelled {
  std::string_view part;  ///< of the name: small letters, no dashes, blanks or underscores
  std::string_view what;
};

constexpr std::string_view kExperts = "a mixture of experts";
constexpr std::string_view kLayerNorms = "layer norms and another MLP";

/// The first that matches counts, so narrower parts stand before wider ones.
constexpr std::array kUnmodelled{
    Unmodelled{.part = "deepseek",
               .what = "parts that deepseek_v2 and deepseek_v3, which are modelled, do not have"},
    Unmodelled{.part = "kimi", .what = "experts and multi-head latent attention"},
    Unmodelled{.part = "gemma3n",
               .what = "layers that share keys and values, and sparse activations"},
    Unmodelled{.part = "gemma3", .what = "an image encoder; its text models are of gemma3_text"},
    Unmodelled{.part = "recurrentgemma", .what = "recurrent layers"},
    Unmodelled{.part = "llama4", .what = "experts and chunked attention"},
    Unmodelled{.part = "mllama", .what = "cross-attention to images"},
    Unmodelled{.part = "vision", .what = "an image encoder"},
    Unmodelled{.part = "vl", .what = "an image encoder"},
    Unmodelled{.part = "qwen3next", .what = "experts and linear attention"},
    Unmodelled{.part = "glm4", .what = "other norms, or a mixture of experts"},
    Unmodelled{.part = "grok", .what = kExperts},
    Unmodelled{.part = "minimax", .what = "experts and linear attention"},
    Unmodelled{.part = "dbrx", .what = kExperts},
    Unmodelled{.part = "jamba", .what = "state-space layers"},
    Unmodelled{.part = "mamba", .what = "state-space layers"},
    Unmodelled{.part = "nemotron", .what = "another MLP"},
    Unmodelled{.part = "olmo3", .what = "OLMo 2's norms and sliding windows"},
    Unmodelled{.part = "olmo1b", .what = "norms without weights"},
    Unmodelled{.part = "olmo7b", .what = "norms without weights"},
    Unmodelled{.part = "granite", .what = "scaled residuals and logits"},
    Unmodelled{.part = "phimoe", .what = kExperts},
    Unmodelled{.part = "phi4m", .what = "encoders of images and sound"},  // mm, multimodal
    Unmodelled{.part = "phi4flash", .what = "state-space layers"},
    Unmodelled{.part = "phi1", .what = kLayerNorms},
    Unmodelled{.part = "phi2", .what = kLayerNorms},
    Unmodelled{.part = "falcon", .what = kLayerNorms},
    Unmodelled{.part = "gptneox", .what = kLayerNorms},
    Unmodelled{.part = "pythia", .what = kLayerNorms},
    Unmodelled{.part = "bloom", .what = kLayerNorms},
    Unmodelled{.part = "cohere", .what = kLayerNorms},
    Unmodelled{.part = "commandr", .what = kLayerNorms},
    Unmodelled{.part = "starcoder", .what = kLayerNorms},
    Unmodelled{.part = "bert", .what = "an encoder"},
    Unmodelled{.part = "t5", .what = "an encoder"},
};

constexpr std::string_view kSeparators = "-_ /";

/// Whether one of the name's words, or several after each other, begin with the part: "phi" is in
/// "microsoft/Phi-4", not in "dolphin".
bool has_word(std::string_view name, std::string_view part) {
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool begins_word = i == 0 || kSeparators.find(name[i - 1]) != std::string_view::npos;
    if (begins_word && joined_words(name.substr(i), kSeparators).starts_with(part)) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string_view> what_is_not_modelled(std::string_view name) {
  constexpr std::size_t longest = 200;  // no name is longer
  if (name.size() > longest) return std::nullopt;
  // Distilled models have the layers of what they were distilled into.
  if (has_word(name, "distill")) return std::nullopt;
  const auto found = std::ranges::find_if(
      kUnmodelled, [&](const Unmodelled& family) { return has_word(name, family.part); });
  if (found == kUnmodelled.end()) return std::nullopt;
  return found->what;
}

std::string not_modelled_text(std::string_view name, std::string_view what) {
  return fmt::format("'{}' is not modelled: it has {} (docs/limits.md)", printable(name), what);
}

}  // namespace mfsdp
