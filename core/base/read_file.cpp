#include "core/base/read_file.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/base/file_kind.hpp"
#include "core/base/input_file.hpp"

namespace mfsdp {
namespace {

std::string size_text(std::size_t bytes) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  return bytes % mebibyte == 0 ? fmt::format("{} MiB", bytes / mebibyte)
                               : fmt::format("{} bytes", bytes);
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::string_view expected,
                              std::size_t most) {
  MFSDP_LET(file, InputFile::open(path, expected));
  std::string text;
  std::array<char, std::size_t{1} << 16> piece{};
  while (true) {
    MFSDP_LET(count, file.read(piece));
    if (count == 0) break;
    text.append(piece.data(), count);
    if (text.size() > most)
      return fail(path.string(), fmt::format("expected {}, got a file of more than {}", expected,
                                             size_text(most)));
  }
  if (auto stand_in = not_the_file_itself(text)) return fail(path.string(), std::move(*stand_in));
  return text;
}

}  // namespace mfsdp
