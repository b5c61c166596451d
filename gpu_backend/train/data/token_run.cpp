#include "gpu_backend/train/data/token_run.hpp"

#include <fmt/format.h>

#include <bit>
#include <cassert>
#include <cstring>

namespace mfsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

template <class Stored>
Result<void> copy_as(const TokenRun& run, std::int64_t first, std::int64_t vocab,
                     std::span<std::int32_t> out) {
  const std::byte* from = run.bytes.data() + static_cast<std::size_t>(first) * sizeof(Stored);
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, from + i * sizeof(Stored), sizeof(Stored));
    const auto token = static_cast<std::int64_t>(stored);
    if (token < 0 || token >= vocab)
      return fail(fmt::format("{}, token {}", run.name, first + static_cast<std::int64_t>(i)),
                  fmt::format("expected a token of the model's vocabulary, 0 to {}, got {}",
                              vocab - 1, token));
    out[i] = static_cast<std::int32_t>(token);
  }
  return {};
}

}  // namespace

Result<void> copy_tokens(const TokenRun& run, std::int64_t first, std::int64_t vocab,
                         std::span<std::int32_t> out) {
  assert(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= run.count());
  if (run.file) MFSDP_TRY(run.file->check_unchanged());
  switch (run.type) {
    case TokenType::uint8: return copy_as<std::uint8_t>(run, first, vocab, out);
    case TokenType::int8: return copy_as<std::int8_t>(run, first, vocab, out);
    case TokenType::uint16: return copy_as<std::uint16_t>(run, first, vocab, out);
    case TokenType::int16: return copy_as<std::int16_t>(run, first, vocab, out);
    case TokenType::uint32: return copy_as<std::uint32_t>(run, first, vocab, out);
    case TokenType::int32: return copy_as<std::int32_t>(run, first, vocab, out);
    case TokenType::int64: return copy_as<std::int64_t>(run, first, vocab, out);
  }
  return {};
}

}  // namespace mfsdp
