// One rank's file of a save: a header that describes the data, and the bytes of elements.
//
//   "mfsdp.st" | bytes of the header, 8, little-endian | header, JSON | data
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

#include "gpu_backend/checkpoint/disk.hpp"
#include "gpu_backend/checkpoint/format.hpp"

namespace mfsdp {

/// Fetches elements of one of the header's entries.
using FetchElements = std::function<Result<void>(std::size_t entry, const Interval& elements,
                                                 std::span<std::byte> bytes)>;

/// Writes and syncs a file with the entries of `header`, and fills in offsets and checksums. Holds
/// one piece in memory.
[[nodiscard]] Result<SavedFile> write_state_file(const std::filesystem::path& path,
                                                 StateHeader header, const FetchElements& fetch,
                                                 const SaveProbe& probe);

/// A file whose header has been read and matches the manifest.
struct StateFile {
  std::filesystem::path path;
  StateHeader header;
  std::int64_t data = 0;  ///< byte offset of the data
};

/// Errors: the file is missing, has another size than in the manifest, has another header, or has
/// none.
[[nodiscard]] Result<StateFile> read_state_file(const std::filesystem::path& folder,
                                                const SavedFile& expected);

/// Parses the header in a file's first bytes; `bytes` are all bytes before the data.
[[nodiscard]] Result<StateHeader> parse_state_header(std::span<const std::byte> bytes,
                                                     const std::string& where);

/// Calls visit(elements, bytes) for consecutive parts of `wanted`, all of which the entry contains,
/// after their checksums are verified. Holds one piece in memory.
using VisitElements =
    std::function<Result<void>(const Interval& elements, std::span<const std::byte> bytes)>;
[[nodiscard]] Result<void> visit_elements(const StateFile& file, const StateEntry& entry,
                                          const Interval& wanted, const VisitElements& visit);

}  // namespace mfsdp
