// Text as tokens without a tokenizer: each byte is one, and three specials follow.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// As in the config.json of llama_tiny and llama_nano.
inline constexpr std::int32_t kBeginToken = 256;
inline constexpr std::int32_t kEndToken = 257;
inline constexpr std::int32_t kPadToken = 258;
inline constexpr std::int64_t kByteVocab = 259;

/// An error where the model's vocabulary has no place for them.
[[nodiscard]] Result<void> check_byte_vocab(const DatasetSettings& settings,
                                            const std::string& where);

}  // namespace mfsdp
