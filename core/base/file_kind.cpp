#include "core/base/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/byte_order_mark.hpp"
#include "core/base/text.hpp"

namespace mfsdp {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kLooked = 512;  ///< bytes that are looked at
constexpr std::string_view kBlanks = " \t\r\n";

struct Magic {
  std::string_view bytes;  ///< the first bytes of files of the kind
  FileKind kind;
};

constexpr std::array kMagics{
    Magic{"version https://git-lfs.github.com/spec/", FileKind::git_lfs_pointer},
    Magic{"version https://hawser.github.com/spec/", FileKind::git_lfs_pointer},  // the older name
    Magic{"\x1f\x8b", FileKind::gzip},
    Magic{"PK\x03\x04", FileKind::zip},
    Magic{"\x28\xb5\x2f\xfd", FileKind::zstandard},
    Magic{"BZh", FileKind::bzip2},
    Magic{"\xfd\x37zXZ\0"sv, FileKind::xz},
    Magic{"%PDF-", FileKind::pdf},
    Magic{"\x89PNG", FileKind::png},
    Magic{"GGUF", FileKind::gguf},
    Magic{"\x93NUMPY", FileKind::numpy},
    Magic{"PAR1", FileKind::parquet},
    Magic{"\x89HDF", FileKind::hdf5},
    Magic{"SQLite format 3\0"sv, FileKind::sqlite},
    Magic{"\x80\x02", FileKind::pickle},
    Magic{"\x80\x03", FileKind::pickle},
    Magic{"\x80\x04", FileKind::pickle},
    Magic{"\x80\x05", FileKind::pickle},
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = (value << 8U) | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Safetensors: the length of a JSON header, then the header. Event files: the length of a record,
/// its checksum, and an Event whose first field is a time (tag 0x09).
std::optional<FileKind> kind_by_length(std::string_view bytes) {
  constexpr std::size_t kLengthBytes = 8;
  constexpr std::size_t kChecksumBytes = 4;
  constexpr std::uint64_t kMostHeader = 100'000'000;  // the format's own limit
  constexpr std::uint64_t kMostRecord = 255;          // the first one states a version
  if (bytes.size() <= kLengthBytes) return std::nullopt;
  const std::uint64_t length = little_endian(bytes.substr(0, kLengthBytes));
  if (length >= 2 && length <= kMostHeader && bytes[kLengthBytes] == '{')
    return FileKind::safetensors;
  constexpr std::size_t kData = kLengthBytes + kChecksumBytes;
  if (length > 0 && length <= kMostRecord && bytes.size() > kData && bytes[kData] == '\x09')
    return FileKind::tensorboard_events;
  return std::nullopt;
}

/// Whether the text begins like an object or a list of JSON: TOML's tables, "[name]" and
/// "[[name]]", begin with a bracket too.
bool begins_json(std::string_view text) {
  if (text.starts_with('{')) return true;
  if (!text.starts_with('[')) return false;
  const std::size_t next = text.find_first_not_of("[ \t\r\n");
  return next != std::string_view::npos &&
         "{]\"-0123456789"sv.find(text[next]) != std::string_view::npos;
}

FileKind kind_of_text(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return FileKind::text;
  text.remove_prefix(first);
  const std::string start = lower_case(text.substr(0, 32));
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) return FileKind::web_page;
  if (start.starts_with("<?xml")) return FileKind::xml;
  return begins_json(text) ? FileKind::json : FileKind::text;
}

/// The last character of UTF-8 may be cut off, as only the beginning was read.
bool is_text(std::string_view bytes) {
  constexpr std::size_t kLongestCharacter = 4;
  if (bytes.find('\0') != std::string_view::npos) return false;
  for (std::size_t cut = 0; cut < std::min(kLongestCharacter, bytes.size()); ++cut)
    if (is_utf8(bytes.substr(0, bytes.size() - cut))) return true;
  return false;
}

}  // namespace

std::string_view to_words(FileKind kind) {
  switch (kind) {
    case FileKind::git_lfs_pointer: return "a Git LFS pointer";
    case FileKind::web_page: return "a web page (HTML)";
    case FileKind::gzip: return "a gzip file";
    case FileKind::zip: return "a zip file (torch.save writes those, too)";
    case FileKind::zstandard: return "a Zstandard file";
    case FileKind::bzip2: return "a bzip2 file";
    case FileKind::xz: return "an xz file";
    case FileKind::pdf: return "a PDF";
    case FileKind::png: return "a PNG image";
    case FileKind::gguf: return "a GGUF file";
    case FileKind::numpy: return "a NumPy array";
    case FileKind::parquet: return "a Parquet file";
    case FileKind::hdf5: return "an HDF5 file";
    case FileKind::sqlite: return "an SQLite database";
    case FileKind::pickle: return "a pickle";
    case FileKind::safetensors: return "a safetensors file";
    case FileKind::tensorboard_events: return "an event file of TensorBoard";
    case FileKind::xml: return "XML";
    case FileKind::json: return "JSON";
    case FileKind::text: break;
  }
  return "text";
}

std::optional<FileKind> file_kind(std::string_view first_bytes) {
  const std::string_view bytes = first_bytes.substr(0, kLooked);
  // Before pickles: the length of a header may begin with the bytes of a pickle (640 is 80 02).
  if (const auto kind = kind_by_length(bytes)) return kind;
  const auto* const magic = std::ranges::find_if(
      kMagics, [&](const Magic& each) { return bytes.starts_with(each.bytes); });
  if (magic != kMagics.end()) return magic->kind;
  if (bytes.empty() || !is_text(bytes)) return std::nullopt;
  return kind_of_text(without_byte_order_mark(bytes));
}

std::optional<std::string> git_lfs_pointer(std::string_view first_bytes) {
  if (file_kind(first_bytes) != FileKind::git_lfs_pointer) return std::nullopt;
  return "is a Git LFS pointer, not the file itself; fetch it with git lfs pull";
}

std::optional<std::string> not_the_file_itself(std::string_view first_bytes) {
  if (file_kind(first_bytes) != FileKind::web_page) return git_lfs_pointer(first_bytes);
  return "is a web page (HTML), not the file itself; download the raw file";
}

std::optional<std::string> expected_other_kind(std::string_view first_bytes, FileKind kind,
                                               std::string_view expected) {
  if (auto stand_in = not_the_file_itself(first_bytes)) return stand_in;
  const auto found = file_kind(first_bytes);
  if (!found || found == kind || found == FileKind::text) return std::nullopt;
  return fmt::format("expected {}, got {}", expected, to_words(*found));
}

}  // namespace mfsdp
