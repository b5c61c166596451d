#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/base/text.hpp"
#include "gpu_backend/train/data/byte_tokens.hpp"
#include "gpu_backend/train/data/plain_text.hpp"
#include "gpu_backend/train/data/token_stream.hpp"
#include "gpu_backend/train/data/unigram.hpp"

namespace mfsdp {
namespace {

/// kEndToken as it would stand in a file.
const std::array<std::byte, 2> kEndBytes{std::byte{kEndToken % 256}, std::byte{kEndToken / 256}};

/// Of the first 2^24 bytes, as a file may be longer than anyone wants to wait for.
bool begins_as_utf8(std::string_view text) {
  if (std::ssize(text) > kMostCountedTokens) {
    text = text.substr(0, kMostCountedTokens);
    // The cut may be inside a character: its first bytes go, a lead and up to two others.
    const auto top_bits = [&] { return static_cast<unsigned char>(text.back()) & 0xC0U; };
    for (int dropped = 0; dropped < 3 && top_bits() == 0x80U; ++dropped) text.remove_suffix(1);
    if (top_bits() == 0xC0U) text.remove_suffix(1);
  }
  return is_utf8(text);
}

}  // namespace

Result<std::unique_ptr<Dataset>> open_byte_text(const std::vector<std::filesystem::path>& files,
                                                const DatasetSettings& settings,
                                                const std::string& where) {
  MFSDP_TRY(check_byte_vocab(settings, where));
  std::vector<TokenRun> runs;
  std::size_t bytes = 0;
  bool utf8 = true;
  for (const std::filesystem::path& path : files) {
    MFSDP_LET(mapped, MappedFile::open(path, "text"));
    const auto file = std::make_shared<const MappedFile>(std::move(mapped));
    if (!runs.empty())
      runs.push_back({.name = "end of a file", .bytes = kEndBytes, .type = TokenType::uint16});
    runs.push_back({.name = file->name(), .bytes = file->bytes(), .file = file});
    bytes += file->bytes().size();
    utf8 = utf8 && begins_as_utf8(file->text());
  }
  std::string description = fmt::format(
      "text of {} bytes{}, {}", bytes,
      files.size() > 1 ? fmt::format(" in {} files", files.size()) : std::string(), where);
  if (!utf8) description += " (not UTF-8)";
  DatasetSettings stream = settings;
  if (!stream.document_end) stream.document_end = kEndToken;
  return make_token_stream(std::move(runs), stream, where, std::move(description));
}

}  // namespace mfsdp
