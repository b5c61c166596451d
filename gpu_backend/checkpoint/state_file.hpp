// One rank's part of a save: a header that says what follows, and the bytes of elements.
//
//   "mfsdp.st" | bytes of the header, 8, little-endian | header, JSON | data
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "gpu_backend/checkpoint/disk.hpp"
#include "gpu_backend/checkpoint/format.hpp"

namespace mfsdp {

/// Fetches elements of one of the header's entries.
using FetchElements = std::function<Result<void>(std::size_t entry, const Interval& elements,
                                                 std::span<std::byte> bytes)>;

/// Writes and syncs a file of the entries that `header` names; offsets and checksums are filled in
/// here. Holds one piece in memory.
[[nodiscard]] Result<SavedFile> write_state_file(const std::filesystem::path& path,
                                                 StateHeader header, const FetchElements& fetch,
                                                 const SaveProbe& probe);

/// A file whose header has been read and found to be what the manifest promises.
struct StateFile {
  std::filesystem::path path;
  StateHeader header;
  std::int64_t data = 0;  ///< where the data begin, in bytes
};

/// Errors: the file is missing or has another size than the manifest says, or its header is another
/// one, or no header.
[[nodiscard]] Result<StateFile> read_state_file(const std::filesystem::path& folder,
                                                const SavedFile& expected);

/// The header in a file's first bytes, of which `bytes` are all before the data.
[[nodiscard]] Result<StateHeader> parse_state_header(std::span<const std::byte> bytes,
                                                     const std::string& where);

/// Calls visit(elements, bytes) for consecutive parts of `wanted`, which the entry has all of,
/// after their checksums were found right. Holds one piece in memory.
using VisitElements =
    std::function<Result<void>(const Interval& elements, std::span<const std::byte> bytes)>;
[[nodiscard]] Result<void> visit_elements(const StateFile& file, const StateEntry& entry,
                                          const Interval& wanted, const VisitElements& visit);

}  // namespace mfsdp
