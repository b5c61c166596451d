// The store's tables, as the list of steps that lead to them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace mfsdp {

/// Marks an SQLite file as ours (PRAGMA application_id): "MFSD" in ASCII.
inline constexpr std::int64_t kStoreApplicationId = 0x4d465344;

/// Entry i is the SQL that takes a store from version i to version i + 1 (PRAGMA user_version).
/// Version 0 is an empty file. A released entry never changes; a new version is one more entry.
[[nodiscard]] std::span<const std::string_view> store_migrations();

}  // namespace mfsdp
