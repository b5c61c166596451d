#include "core/formats/stored_zip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/base/excerpt.hpp"

namespace mfsdp {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kEntryBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::uint32_t kIn64 = 0xffffffff;             ///< the field is in the zip64 part
constexpr std::uint64_t kMostDirectory = 256ULL << 20;  ///< bytes
constexpr std::uint16_t kZip64Extra = 1;
constexpr std::uint16_t kPaddingExtra = 0x4246;  ///< "FB", as PyTorch's writer

class ZipReader {
 public:
  ZipReader(const ByteSource& source, const FileRange& archive)
      : source_(source), archive_(archive) {}

  Result<std::vector<ZipRecord>> read() {
    if (archive_.offset > source_.size || archive_.size > source_.size - archive_.offset)
      return wrong(fmt::format("expected {} bytes from byte {} on, the file has {}", archive_.size,
                               archive_.offset, source_.size));
    MFSDP_LET(place, find_directory());
    MFSDP_LET(directory, bytes_at(place.offset, place.size));
    std::vector<ZipRecord> records;
    for (std::size_t at = 0; at < directory.size();) {
      MFSDP_LET(size, read_entry(std::span(directory).subspan(at), records));
      at += size;
    }
    std::ranges::sort(records, {}, [](const ZipRecord& record) { return record.bytes.offset; });
    std::uint64_t end = archive_.offset;
    for (const ZipRecord& record : records) {
      if (record.bytes.offset < end) return wrong("has records in each other's bytes");
      end = record.bytes.offset + record.bytes.size;
    }
    if (end > archive_.offset + place.offset) return wrong("has a record in its directory");
    return records;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(std::string what) const {
    return fail(fmt::format("{}: archive at byte {}", source_.where, archive_.offset),
                std::move(what));
  }

  /// `offset` from the archive's first byte.
  [[nodiscard]] Result<std::vector<std::byte>> bytes_at(std::uint64_t offset, std::uint64_t size) {
    if (offset > archive_.size || size > archive_.size - offset) return wrong("is cut off");
    std::vector<std::byte> bytes(size);
    MFSDP_TRY(source_.read(archive_.offset + offset, bytes));
    return bytes;
  }

  [[nodiscard]] Result<FileRange> find_directory() {
    if (archive_.size < kEndBytes) return wrong("expected an archive of torch.save");
    const std::uint64_t end_at = archive_.size - kEndBytes;
    MFSDP_LET(end, bytes_at(end_at, kEndBytes));
    if (little_endian<std::uint32_t>(end, 0) != kEndSignature ||
        little_endian<std::uint16_t>(end, 20) != 0)
      return wrong("expected an archive of torch.save, which ends with its directory's place");
    FileRange place{.offset = little_endian<std::uint32_t>(end, 16),
                    .size = little_endian<std::uint32_t>(end, 12)};
    if (end_at >= kLocatorBytes) {
      MFSDP_LET(locator, bytes_at(end_at - kLocatorBytes, kLocatorBytes));
      if (little_endian<std::uint32_t>(locator, 0) == kLocatorSignature) {
        MFSDP_LET(end64, bytes_at(little_endian<std::uint64_t>(locator, 8), kEnd64Bytes));
        if (little_endian<std::uint32_t>(end64, 0) != kEnd64Signature)
          return wrong("has no zip64 end where its locator states one");
        place = {.offset = little_endian<std::uint64_t>(end64, 48),
                 .size = little_endian<std::uint64_t>(end64, 40)};
      }
    }
    if (place.size > kMostDirectory)
      return wrong(fmt::format("has a directory of {} bytes; expected at most {}", place.size,
                               kMostDirectory));
    return place;
  }

  /// Replaces fields of 32 bits by those of the zip64 part.
  [[nodiscard]] Result<void> read_extra(std::span<const std::byte> extra,
                                        std::span<std::uint64_t*> fields) const {
    while (extra.size() >= 4) {
      const auto id = little_endian<std::uint16_t>(extra, 0);
      const auto size = little_endian<std::uint16_t>(extra, 2);
      if (size > extra.size() - 4) break;
      auto body = extra.subspan(4, size);
      extra = extra.subspan(4 + std::size_t{size});
      if (id != kZip64Extra) continue;
      for (std::uint64_t* field : fields) {
        if (*field != kIn64) continue;
        if (body.size() < 8) return wrong("has a zip64 part that is cut off");
        *field = little_endian<std::uint64_t>(body, 0);
        body = body.subspan(8);
      }
    }
    return {};
  }

  /// Adds the record of the directory's next entry; returns the entry's size.
  [[nodiscard]] Result<std::size_t> read_entry(std::span<const std::byte> directory,
                                               std::vector<ZipRecord>& records) {
    if (directory.size() < kEntryBytes ||
        little_endian<std::uint32_t>(directory, 0) != kEntrySignature)
      return wrong("expected an entry of its directory");
    const std::size_t name_size = little_endian<std::uint16_t>(directory, 28);
    const std::size_t extra_size = little_endian<std::uint16_t>(directory, 30);
    const std::size_t whole =
        kEntryBytes + name_size + extra_size + little_endian<std::uint16_t>(directory, 32);
    if (whole > directory.size()) return wrong("has an entry that is cut off");
    ZipRecord record{
        .name = {reinterpret_cast<const char*>(directory.data()) + kEntryBytes, name_size},
        .bytes = {},
        .crc = little_endian<std::uint32_t>(directory, 16)};
    const std::string shown = excerpt(record.name);
    if (record.name.starts_with('/') || record.name.find("..") != std::string::npos ||
        record.name.find('\0') != std::string::npos)
      return wrong(fmt::format("has a record named {}", shown));
    if ((little_endian<std::uint16_t>(directory, 8) & 1U) != 0 ||
        little_endian<std::uint16_t>(directory, 10) != 0)
      return wrong(fmt::format("record {} is compressed or encrypted; expected stored", shown));
    std::uint64_t compressed = little_endian<std::uint32_t>(directory, 20);
    std::uint64_t size = little_endian<std::uint32_t>(directory, 24);
    std::uint64_t header = little_endian<std::uint32_t>(directory, 42);
    std::array<std::uint64_t*, 3> fields{&size, &compressed, &header};
    MFSDP_TRY(read_extra(directory.subspan(kEntryBytes + name_size, extra_size), fields));
    if (size != compressed) return wrong(fmt::format("record {} has two sizes", shown));
    MFSDP_LET(local, bytes_at(header, kLocalBytes));
    if (little_endian<std::uint32_t>(local, 0) != kLocalSignature)
      return wrong(fmt::format("record {} is not where the directory has it", shown));
    const std::uint64_t begin = header + kLocalBytes + little_endian<std::uint16_t>(local, 26) +
                                little_endian<std::uint16_t>(local, 28);
    if (begin > archive_.size || size > archive_.size - begin)
      return wrong(fmt::format("record {} is cut off", shown));
    record.bytes = {.offset = archive_.offset + begin, .size = size};
    records.push_back(std::move(record));
    return whole;
  }

  const ByteSource& source_;
  FileRange archive_;
};

template <class Number>
void put(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The fields that local headers and the directory share, from flags to the size of the name.
void put_common(std::string& text, std::uint32_t crc, std::uint64_t size, std::size_t name_size,
                bool is_64) {
  const auto short_size = is_64 ? kIn64 : static_cast<std::uint32_t>(size);
  put<std::uint16_t>(text, 0x0800);  // the name is UTF-8
  put<std::uint16_t>(text, 0);       // stored
  put<std::uint32_t>(text, 0);       // no date
  put(text, crc);
  put(text, short_size);
  put(text, short_size);
  put(text, static_cast<std::uint16_t>(name_size));
}

std::string zip64_extra(std::initializer_list<std::uint64_t> fields) {
  std::string extra;
  put(extra, kZip64Extra);
  put(extra, static_cast<std::uint16_t>(8 * fields.size()));
  for (const std::uint64_t field : fields) put(extra, field);
  return extra;
}

std::string end_of_zip(std::uint64_t directory, std::uint64_t size, std::uint64_t records) {
  std::string text;
  put(text, kEnd64Signature);
  put<std::uint64_t>(text, kEnd64Bytes - 12);
  put<std::uint16_t>(text, 45);
  put<std::uint16_t>(text, 45);
  put<std::uint64_t>(text, 0);  // disks
  put(text, records);
  put(text, records);
  put(text, size);
  put(text, directory);
  put(text, kLocatorSignature);
  put<std::uint32_t>(text, 0);
  put<std::uint64_t>(text, directory + size);
  put<std::uint32_t>(text, 1);
  const auto in_32 = [](std::uint64_t value) {
    return value >= kIn64 ? kIn64 : static_cast<std::uint32_t>(value);
  };
  put(text, kEndSignature);
  put<std::uint32_t>(text, 0);
  put(text, static_cast<std::uint16_t>(records));
  put(text, static_cast<std::uint16_t>(records));
  put(text, in_32(size));
  put(text, in_32(directory));
  put<std::uint16_t>(text, 0);
  return text;
}

}  // namespace

Result<std::vector<ZipRecord>> read_stored_zip(const ByteSource& source, const FileRange& archive) {
  return ZipReader(source, archive).read();
}

ZipFrame frame_stored_zip(std::span<const ZipContent> contents) {
  constexpr std::uint64_t kAlignment = 64;
  ZipFrame frame;
  std::string directory;
  std::string* text = &frame.before;
  std::uint64_t written = 0;  // bytes of the caller
  for (const ZipContent& one : contents) {
    const bool is_callers = one.content.data() == nullptr;
    const std::uint64_t size = is_callers ? one.size : one.content.size();
    const bool is_64 = size >= kIn64;
    const auto crc = is_callers ? 0U
                                : static_cast<std::uint32_t>(
                                      crc32(0, reinterpret_cast<const Bytef*>(one.content.data()),
                                            static_cast<uInt>(one.content.size())));
    const std::uint64_t header = frame.before.size() + written + frame.after.size();
    std::string extra = is_64 ? zip64_extra({size, size}) : std::string();
    const std::uint64_t begin = header + kLocalBytes + one.name.size() + extra.size() + 4;
    const auto padding = static_cast<std::uint16_t>((kAlignment - begin % kAlignment) % kAlignment);
    put(extra, kPaddingExtra);
    put(extra, padding);
    extra.append(padding, 'Z');
    put(*text, kLocalSignature);
    put<std::uint16_t>(*text, 45);  // needs zip64
    put_common(*text, crc, size, one.name.size(), is_64);
    put(*text, static_cast<std::uint16_t>(extra.size()));
    *text += one.name + extra;
    const bool is_far = header >= kIn64;
    std::string more;
    if (is_64 && is_far)
      more = zip64_extra({size, size, header});
    else if (is_64)
      more = zip64_extra({size, size});
    else if (is_far)
      more = zip64_extra({header});
    put(directory, kEntrySignature);
    put<std::uint16_t>(directory, 45);
    put<std::uint16_t>(directory, 45);
    put_common(directory, crc, size, one.name.size(), is_64);
    put(directory, static_cast<std::uint16_t>(more.size()));
    directory.append(10, '\0');  // no comment, disk or attributes
    put(directory, is_far ? kIn64 : static_cast<std::uint32_t>(header));
    directory += one.name + more;
    if (is_callers) {
      written = one.size;
      text = &frame.after;
    } else {
      *text += one.content;
    }
  }
  const std::uint64_t place = frame.before.size() + written + frame.after.size();
  frame.after += directory + end_of_zip(place, directory.size(), contents.size());
  return frame;
}

}  // namespace mfsdp
