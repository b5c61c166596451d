// Texts for parts of models that no family here computes. Private to the tables of fields, types
// and names.
#pragma once

#include <string_view>

namespace mfsdp::foreign_words {

inline constexpr std::string_view kBesides = "layer norms, and attention in parallel with the MLP";
inline constexpr std::string_view kConvolutions = "convolutions";
inline constexpr std::string_view kEncoder = "an encoder";
inline constexpr std::string_view kImages = "an image encoder";
inline constexpr std::string_view kLayerNorms = "layer norms and another MLP";
inline constexpr std::string_view kLinear = "linear attention";
inline constexpr std::string_view kNoRope = "layers without RoPE";
inline constexpr std::string_view kSparse = "sparse attention";
inline constexpr std::string_view kStateSpace = "state-space layers";

}  // namespace mfsdp::foreign_words
