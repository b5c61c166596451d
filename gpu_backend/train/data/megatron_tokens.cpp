#include "gpu_backend/train/data/megatron_tokens.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "gpu_backend/train/data/token_stream.hpp"

namespace mfsdp {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kIndexMagic = "MMIDIDX\0\0"sv;
constexpr std::size_t kVersionAt = 9;
constexpr std::size_t kTypeAt = 17;
constexpr std::size_t kSequencesAt = 18;
constexpr std::size_t kEndsAt = 26;
constexpr std::size_t kIndexHeaderBytes = 34;
constexpr std::size_t kSequenceLengthBytes = sizeof(std::int32_t);
constexpr std::size_t kOffsetBytes = sizeof(std::int64_t);

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The number that stands for a type in Megatron-LM's enumeration; 6 and 7 are floats.
std::optional<TokenType> type_of(std::uint8_t code) {
  switch (code) {
    case 1: return TokenType::uint8;
    case 2: return TokenType::int8;
    case 3: return TokenType::int16;
    case 4: return TokenType::int32;
    case 5: return TokenType::int64;
    case 8: return TokenType::uint16;
    default: return std::nullopt;
  }
}

/// The sum of all lengths, each sequence lying where the one before it ended.
Result<std::int64_t> check_sequences(std::span<const std::byte> lengths,
                                     std::span<const std::byte> offsets, std::int64_t token_bytes,
                                     std::int64_t bin_bytes, const std::string& name) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i * kSequenceLengthBytes < lengths.size(); ++i) {
    const auto wrong = [&](std::string what) {
      return fail(fmt::format("{}, sequence {}", name, i), std::move(what));
    };
    const auto length = value_at<std::int32_t>(lengths, i * kSequenceLengthBytes);
    const auto offset = value_at<std::int64_t>(offsets, i * kOffsetBytes);
    if (offset != tokens * token_bytes)
      return wrong(fmt::format("expected it at byte {} of the .bin, after the one before, got {}",
                               tokens * token_bytes, offset));
    // So the sum stays within the .bin, and no product overflows.
    const std::int64_t most = bin_bytes / token_bytes - tokens;
    if (length < 0 || length > most)
      return wrong(fmt::format("expected a length of at most {}, where the .bin ends, got {}", most,
                               length));
    tokens += length;
  }
  return tokens;
}

Result<void> check_ends(std::span<const std::byte> ends, std::int64_t sequences,
                        const std::string& name) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i * kOffsetBytes < ends.size(); ++i) {
    const auto end = value_at<std::int64_t>(ends, i * kOffsetBytes);
    const std::int64_t most = i == 0 ? 0 : sequences;
    if (end < before || end > most)
      return fail(fmt::format("{}, document end {}", name, i),
                  fmt::format("expected {} to {}, got {}", before, most, end));
    before = end;
  }
  return {};
}

Result<void> check_header(std::span<const std::byte> index, const std::string& name) {
  if (!is_megatron_index(index)) return fail(name, "expected an index of Megatron (MMIDIDX)");
  if (index.size() < kIndexHeaderBytes)
    return fail(name, fmt::format("expected a header of {} bytes, got a file of {}",
                                  kIndexHeaderBytes, index.size()));
  if (const auto version = value_at<std::uint64_t>(index, kVersionAt); version != 1)
    return fail(name, fmt::format("expected version 1, got {}", version));
  if (const auto code = value_at<std::uint8_t>(index, kTypeAt); !type_of(code))
    return fail(name, fmt::format("expected tokens of an integer type (1 to 5 or 8), got {}",
                                  static_cast<int>(code)));
  return {};
}

}  // namespace

bool is_megatron_index(std::span<const std::byte> file) {
  return file.size() >= kIndexMagic.size() &&
         std::memcmp(file.data(), kIndexMagic.data(), kIndexMagic.size()) == 0;
}

Result<MegatronIndex> parse_megatron_index(std::span<const std::byte> index, std::size_t bin_bytes,
                                           const std::string& name) {
  MFSDP_TRY(check_header(index, name));
  const TokenType type = *type_of(value_at<std::uint8_t>(index, kTypeAt));
  const auto sequences = value_at<std::uint64_t>(index, kSequencesAt);
  const auto ends = value_at<std::uint64_t>(index, kEndsAt);
  const std::uint64_t rest = index.size() - kIndexHeaderBytes;
  // Neither number can exceed what the file has bytes for, so the products below do not overflow.
  if (sequences < 1 || sequences > rest || ends < 1 || ends > rest)
    return fail(name, fmt::format("its header tells of {} sequences and {} document ends; {} bytes "
                                  "follow it",
                                  sequences, ends, rest));
  const std::uint64_t without_modes =
      sequences * (kSequenceLengthBytes + kOffsetBytes) + ends * kOffsetBytes;
  if (rest != without_modes && rest != without_modes + sequences)
    return fail(name,
                fmt::format("expected {} bytes for {} sequences and {} document ends, got {}",
                            kIndexHeaderBytes + without_modes, sequences, ends, index.size()));
  const auto lengths = index.subspan(kIndexHeaderBytes, sequences * kSequenceLengthBytes);
  const auto offsets = index.subspan(kIndexHeaderBytes + lengths.size(), sequences * kOffsetBytes);
  MFSDP_LET(tokens, check_sequences(lengths, offsets, size_of(type),
                                    static_cast<std::int64_t>(bin_bytes), name));
  MFSDP_TRY(check_ends(
      index.subspan(kIndexHeaderBytes + lengths.size() + offsets.size(), ends * kOffsetBytes),
      static_cast<std::int64_t>(sequences), name));
  if (const auto expected = static_cast<std::uint64_t>(tokens * size_of(type));
      expected != bin_bytes)
    return fail(name, fmt::format("expected a .bin of {} bytes for its {} tokens, got {}", expected,
                                  tokens, bin_bytes));
  return MegatronIndex{.type = type,
                       .sequences = static_cast<std::int64_t>(sequences),
                       .documents = static_cast<std::int64_t>(ends) - 1,
                       .tokens = tokens};
}

Result<std::unique_ptr<Dataset>> open_megatron_tokens(
    const std::vector<std::filesystem::path>& bin_files, const DatasetSettings& settings,
    const std::string& where) {
  std::vector<TokenRun> runs;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  for (const std::filesystem::path& path : bin_files) {
    std::filesystem::path index_path = path;
    MFSDP_LET(index_file,
              MappedFile::open(index_path.replace_extension(".idx"), "an index of Megatron"));
    MFSDP_LET(mapped, MappedFile::open(path, "tokens of Megatron"));
    const auto file = std::make_shared<const MappedFile>(std::move(mapped));
    MFSDP_LET(index,
              parse_megatron_index(index_file.bytes(), file->bytes().size(), index_file.name()));
    runs.push_back(
        {.name = file->name(), .bytes = file->bytes(), .type = index.type, .file = file});
    tokens += index.tokens;
    documents += index.documents;
  }
  std::string description =
      fmt::format("{} tokens of Megatron in {} documents, {}", tokens, documents, where);
  return make_token_stream(std::move(runs), settings, where, std::move(description));
}

}  // namespace mfsdp
