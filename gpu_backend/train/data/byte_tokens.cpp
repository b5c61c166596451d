#include "gpu_backend/train/data/byte_tokens.hpp"

#include <fmt/format.h>

namespace mfsdp {

Result<void> check_byte_vocab(const DatasetSettings& settings, const std::string& where) {
  if (settings.vocab >= kByteVocab) return {};
  return fail(where, fmt::format("is text, which needs a model with a vocabulary of at least {} "
                                 "(256 bytes, begin, end, padding); this model's has {}",
                                 kByteVocab, settings.vocab));
}

}  // namespace mfsdp
