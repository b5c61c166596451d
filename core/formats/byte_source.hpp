// Bytes that can be read at any offset: of a file, or of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

struct ByteSource {
  std::string where;  ///< for errors: the file's name
  std::uint64_t size = 0;
  /// Fills `bytes` from `offset` on. Readers ask only for what lies within `size`.
  std::function<Result<void>(std::uint64_t offset, std::span<std::byte> bytes)> read;
};

/// Consecutive bytes of a source.
struct FileRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

/// Memory that outlives the source.
[[nodiscard]] inline ByteSource memory_source(std::span<const std::byte> bytes, std::string where) {
  return {.where = std::move(where),
          .size = bytes.size(),
          .read = [bytes](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
            if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
            return {};
          }};
}

/// Reads a little-endian number.
template <class Number>
[[nodiscard]] Number little_endian(std::span<const std::byte> bytes, std::size_t offset) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

}  // namespace mfsdp
