#include "core/model/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/model/foreign_words.hpp"

namespace mfsdp {
namespace {

struct Unmodelled {
  std::string_view part;  ///< of the name: lower case, no dashes, blanks or underscores
  std::string_view what;
};

constexpr std::string_view kModelled = {};  ///< by a recipe, though not built in

/// The first match applies, so longer parts come before shorter ones. Where models with one prefix
/// differ, each known one has a row; for the others the config.json decides.
constexpr std::array kUnmodelled{
    Unmodelled{.part = "deepseekmoe", .what = "DeepSeek's experts with plain attention"},
    Unmodelled{.part = "deepseekv4",
               .what = "compressed and sparse attention, and hyper-connections"},
    Unmodelled{.part = "kimilinear", .what = foreign_words::kLinear},
    Unmodelled{.part = "gemma3n",
               .what = "layers that share keys and values, and sparse activations"},
    Unmodelled{.part = "recurrentgemma", .what = "recurrent layers"},
    Unmodelled{.part = "llama4", .what = kModelled},
    Unmodelled{.part = "mllama", .what = "cross-attention to images"},
    Unmodelled{.part = "vision", .what = foreign_words::kImages},
    Unmodelled{.part = "qwen3next", .what = foreign_words::kLinear},
    Unmodelled{.part = "glm4.", .what = kModelled},
    Unmodelled{.part = "glm4", .what = "RoPE of half of each head"},
    Unmodelled{.part = "grok", .what = "experts with GELU, and scaled activations"},
    Unmodelled{.part = "minimaxm1", .what = foreign_words::kLinear},
    Unmodelled{.part = "minimaxtext", .what = foreign_words::kLinear},
    Unmodelled{.part = "dbrx", .what = "layer norms, and clipped queries, keys and values"},
    Unmodelled{.part = "jamba", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "mamba", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "zamba", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "nemotronh", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "nemotron4",
               .what = "layer norms, and an MLP without a gate, with squared ReLU"},
    Unmodelled{.part = "olmo1b", .what = "norms without weights"},
    Unmodelled{.part = "olmo7b", .what = "norms without weights"},
    Unmodelled{.part = "granite3b", .what = kModelled},  // code models: Llama's blocks
    Unmodelled{.part = "granite34b", .what = foreign_words::kLayerNorms},
    Unmodelled{.part = "granite4", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "phimoe", .what = "layer norms, and routing by SparseMixer"},
    Unmodelled{.part = "phi4m", .what = "encoders of images and sound"},  // mm, multimodal
    Unmodelled{.part = "phi4flash", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "phi1", .what = foreign_words::kBesides},
    Unmodelled{.part = "phi2", .what = foreign_words::kBesides},
    Unmodelled{.part = "falcon3", .what = kModelled},  // Llama's blocks
    Unmodelled{.part = "falconh1", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "falconmamba", .what = foreign_words::kStateSpace},
    Unmodelled{.part = "falcon", .what = foreign_words::kBesides},
    Unmodelled{.part = "gptneox", .what = foreign_words::kBesides},
    Unmodelled{.part = "pythia", .what = foreign_words::kBesides},
    Unmodelled{.part = "bloom", .what = "layer norms, and ALiBi in place of RoPE"},
    Unmodelled{.part = "cohere", .what = foreign_words::kBesides},
    Unmodelled{.part = "commandr", .what = foreign_words::kBesides},
    Unmodelled{.part = "starcoder", .what = foreign_words::kLayerNorms},
    Unmodelled{.part = "bert", .what = foreign_words::kEncoder},
    Unmodelled{.part = "t5", .what = foreign_words::kEncoder},
};

constexpr std::string_view kSeparators = "-_ /";

/// Whether the part is at the beginning of a word of the name: "phi" is in "microsoft/Phi-4", not
/// in "dolphin".
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
  // A distilled model has the layers of the student model.
  if (has_word(name, "distill")) return std::nullopt;
  const auto found = std::ranges::find_if(
      kUnmodelled, [&](const Unmodelled& family) { return has_word(name, family.part); });
  if (found == kUnmodelled.end() || found->what == kModelled) return std::nullopt;
  return found->what;
}

std::string not_modelled_text(std::string_view name, std::string_view what) {
  return fmt::format("'{}' is not modelled: it has {} (docs/reference/limits.md)", printable(name),
                     what);
}

}  // namespace mfsdp
