// Zip archives whose records are stored, not compressed: those of torch.save.
//
//   | local header, record | local header, record | ... | directory | zip64 end | end |
//
// The bytes of a record lie in the file as they are, so that a part of a tensor can be read by its
// offset. A library for archives would read records whole; a compressed record, which could expand
// without bound, is refused. APPNOTE.TXT of PKWARE, sections 4.3 and 4.5.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/byte_source.hpp"

namespace mfsdp {

struct ZipRecord {
  std::string name;
  FileRange bytes;  ///< in the source
  std::uint32_t crc = 0;
};

/// The records of the archive that lies in `archive`, in the order of their bytes. Errors name the
/// place: no archive, one that is cut off, records that are compressed, encrypted, outside the
/// archive or in each other's bytes; names that are absolute or contain "..".
[[nodiscard]] Result<std::vector<ZipRecord>> read_stored_zip(const ByteSource& source,
                                                             const FileRange& archive);

/// A record to be written. `content` is null if the caller writes its `size` bytes.
struct ZipContent {
  std::string name;
  std::string_view content = {};
  std::uint64_t size = 0;
};

/// The bytes of an archive around those that the caller writes: `before`, then `size` bytes of the
/// caller, then `after`. The caller's record is one of `contents`, the one without content. Its
/// checksum is 0, which torch.load does not look at, and its bytes begin at a multiple of 64.
struct ZipFrame {
  std::string before;
  std::string after;
};
[[nodiscard]] ZipFrame frame_stored_zip(std::span<const ZipContent> contents);

}  // namespace mfsdp
