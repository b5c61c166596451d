#include "core/base/read_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/base/file_kind.hpp"

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
  const std::string where = path.string();
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  if (type == std::filesystem::file_type::directory)
    return fail(where, fmt::format("expected {}, got a directory", expected));
  if (type == std::filesystem::file_type::character || type == std::filesystem::file_type::block)
    return fail(where, fmt::format("expected {}, got a device", expected));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(where, "cannot be opened: " + std::generic_category().message(errno));
  std::string text;
  std::array<char, std::size_t{1} << 16> piece{};
  while (file) {
    file.read(piece.data(), piece.size());
    if (file.bad())
      return fail(where, "cannot be read: " + std::generic_category().message(errno),
                  Fault::environment);
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > most)
      return fail(
          where, fmt::format("expected {}, got a file of more than {}", expected, size_text(most)));
  }
  if (auto stand_in = not_the_file_itself(text)) return fail(where, std::move(*stand_in));
  return text;
}

}  // namespace mfsdp
