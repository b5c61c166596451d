#include "gpu_backend/checkpoint/state_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <system_error>

#include "gpu_backend/train/held_values.hpp"

namespace mfsdp {
namespace {

static_assert(std::endian::native == std::endian::little, "files have the bytes of memory");

constexpr std::string_view kStateMagic = "mfsdp.st";
constexpr std::size_t kPrefix = 16;                          ///< magic and length
constexpr std::int64_t kMostHeader = std::int64_t{1} << 30;  ///< bytes

/// All bytes before the data.
std::vector<std::byte> head_of(const StateHeader& header) {
  const std::string json = to_json(header);
  std::vector<std::byte> head(kPrefix + json.size());
  const auto length = static_cast<std::uint64_t>(json.size());
  std::memcpy(head.data(), kStateMagic.data(), kStateMagic.size());
  std::memcpy(head.data() + kStateMagic.size(), &length, sizeof length);
  std::memcpy(head.data() + kPrefix, json.data(), json.size());
  return head;
}

/// Length of the header's JSON, from the first kPrefix bytes.
Result<std::int64_t> header_length(std::span<const std::byte> prefix, const std::string& where) {
  if (std::memcmp(prefix.data(), kStateMagic.data(), kStateMagic.size()) != 0)
    return fail(where, fmt::format("expected a file that begins with \"{}\"", kStateMagic));
  std::uint64_t length = 0;
  std::memcpy(&length, prefix.data() + kStateMagic.size(), sizeof length);
  if (length > static_cast<std::uint64_t>(kMostHeader))
    return fail(where + ", byte 8",
                fmt::format("expected a header of at most {} bytes, got {}", kMostHeader, length));
  return static_cast<std::int64_t>(length);
}

/// Piece `i` of an entry.
Interval piece_at(const StateEntry& entry, std::int64_t piece_elements, std::int64_t i) {
  const std::int64_t begin = entry.elements.begin + i * piece_elements;
  return {.begin = begin, .end = std::min(begin + piece_elements, entry.elements.end)};
}

std::int64_t place_of(const StateEntry& entry, std::int64_t element) {
  return entry.offset + (element - entry.elements.begin) * size_of(entry.dtype);
}

}  // namespace

Result<SavedFile> write_state_file(const std::filesystem::path& path, StateHeader header,
                                   const FetchElements& fetch, const SaveProbe& probe) {
  header.piece_elements = kPieceElements;
  std::int64_t end = 0;
  for (StateEntry& entry : header.entries) {
    entry.offset = end;
    end += bytes_of(entry);
    entry.checksums.assign(static_cast<std::size_t>(pieces_of(entry.elements, kPieceElements)), 0);
  }
  // Checksums are computed with the data. They do not change the length of the bytes before the
  // data.
  const auto data = static_cast<std::int64_t>(head_of(header).size());
  MFSDP_LET(file, NewFile::create(path, probe));
  std::vector<std::byte> bytes;
  for (std::size_t e = 0; e < header.entries.size(); ++e) {
    StateEntry& entry = header.entries[e];
    for (std::size_t i = 0; i < entry.checksums.size(); ++i) {
      const Interval piece = piece_at(entry, kPieceElements, static_cast<std::int64_t>(i));
      bytes.resize(static_cast<std::size_t>(piece.size() * size_of(entry.dtype)));
      MFSDP_TRY(fetch(e, piece, bytes));
      entry.checksums[i] = checksum_of(bytes);
      MFSDP_TRY(file.write(data + place_of(entry, piece.begin), bytes));
    }
  }
  const std::vector<std::byte> head = head_of(header);
  MFSDP_TRY(file.write(0, head));
  MFSDP_TRY(file.close());
  return SavedFile{
      .name = path.filename().string(), .bytes = data + end, .checksum = checksum_of(head)};
}

Result<StateHeader> parse_state_header(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kPrefix)
    return fail(where, fmt::format("expected {} bytes at least, got {}", kPrefix, bytes.size()));
  MFSDP_LET(length, header_length(bytes.first(kPrefix), where));
  if (std::ssize(bytes) != static_cast<std::int64_t>(kPrefix) + length)
    return fail(where + ", byte 8", fmt::format("expected a header of {} bytes, got {}",
                                                bytes.size() - kPrefix, length));
  const auto json = bytes.subspan(kPrefix);
  return state_header_from_json({reinterpret_cast<const char*>(json.data()), json.size()}, where);
}

Result<StateFile> read_state_file(const std::filesystem::path& folder, const SavedFile& expected) {
  StateFile file{.path = folder / expected.name, .header = {}, .data = 0};
  const std::string where = file.path.string();
  std::error_code error;
  const auto size = std::filesystem::file_size(file.path, error);
  if (error) return fail(where, "cannot be read: " + error.message());
  if (size != static_cast<std::uintmax_t>(expected.bytes))
    return fail(where,
                fmt::format("expected {} bytes, as in the manifest, got {}", expected.bytes, size));
  std::array<std::byte, kPrefix> prefix{};
  MFSDP_TRY(read_bytes(file.path, 0, prefix));
  MFSDP_LET(length, header_length(prefix, where));
  file.data = static_cast<std::int64_t>(kPrefix) + length;
  if (file.data > expected.bytes)
    return fail(where + ", byte 8",
                fmt::format("a header of {} bytes does not fit into the file's {}", length,
                            expected.bytes));
  std::vector<std::byte> head(static_cast<std::size_t>(file.data));
  MFSDP_TRY(read_bytes(file.path, 0, head));
  if (const std::uint64_t checksum = checksum_of(head); checksum != expected.checksum)
    return fail(where + ": header",
                fmt::format("expected checksum {}, as in the manifest, got {}",
                            checksum_text(expected.checksum), checksum_text(checksum)));
  MFSDP_LET(header, parse_state_header(head, where));
  const std::int64_t described =
      header.entries.empty() ? 0 : header.entries.back().offset + bytes_of(header.entries.back());
  if (described != expected.bytes - file.data)
    return fail(where, fmt::format("its header describes {} bytes of data, it has {}", described,
                                   expected.bytes - file.data));
  file.header = std::move(header);
  return file;
}

Result<void> visit_elements(const StateFile& file, const StateEntry& entry, const Interval& wanted,
                            const VisitElements& visit) {
  const std::int64_t size = size_of(entry.dtype);
  const std::int64_t length = file.header.piece_elements;
  std::vector<std::byte> bytes;
  std::int64_t i = (wanted.begin - entry.elements.begin) / length;
  for (std::int64_t at = wanted.begin; at < wanted.end; ++i) {
    const Interval piece = piece_at(entry, length, i);
    bytes.resize(static_cast<std::size_t>(piece.size() * size));
    MFSDP_TRY(read_bytes(file.path, file.data + place_of(entry, piece.begin), bytes));
    const std::uint64_t expected = entry.checksums[static_cast<std::size_t>(i)];
    if (const std::uint64_t checksum = checksum_of(bytes); checksum != expected)
      return fail(fmt::format("{}: {}, {}, elements {} to {}", file.path.string(), entry.parameter,
                              entry.kind, piece.begin, piece.end - 1),
                  fmt::format("expected checksum {}, got {}", checksum_text(expected),
                              checksum_text(checksum)));
    const Interval part{.begin = at, .end = std::min(piece.end, wanted.end)};
    MFSDP_TRY(visit(part, std::span<const std::byte>(bytes).subspan(
                              static_cast<std::size_t>((part.begin - piece.begin) * size),
                              static_cast<std::size_t>(part.size() * size))));
    at = part.end;
  }
  return {};
}

}  // namespace mfsdp
