// Tokens that lie one after the other in memory, in the widths of the file formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"

namespace mfsdp {

enum class TokenType { uint8, int8, uint16, int16, uint32, int32, int64 };

[[nodiscard]] constexpr std::int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8: return 1;
    case TokenType::uint16:
    case TokenType::int16: return 2;
    case TokenType::uint32:
    case TokenType::int32: return 4;
    case TokenType::int64: return 8;
  }
  return 0;
}

/// Little-endian tokens, at any alignment. `name` is the file's, for errors; `file` or `tokens`
/// keeps the bytes.
struct TokenRun {
  std::string name;
  std::span<const std::byte> bytes;  ///< a multiple of the type's size
  TokenType type = TokenType::uint8;
  std::shared_ptr<const MappedFile> file = nullptr;  ///< none where another keeps the bytes
  std::shared_ptr<const std::vector<std::int32_t>> tokens = nullptr;

  [[nodiscard]] std::int64_t count() const {
    return static_cast<std::int64_t>(bytes.size()) / size_of(type);
  }
};

/// Copies tokens [first, first + out.size()) of the run. Errors: a token outside [0, vocab), with
/// the file and which token it is, the first being 0; a file that changed.
[[nodiscard]] Result<void> copy_tokens(const TokenRun& run, std::int64_t first, std::int64_t vocab,
                                       std::span<std::int32_t> out);

}  // namespace mfsdp
