// Queries over many runs at once. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/store/database.hpp"

namespace mfsdp {

[[nodiscard]] std::vector<StoredRun> list_runs(SQLite::Database& database, const RunQuery& query);

/// Inside the caller's transaction. False if there is no such run.
[[nodiscard]] bool mark_run(SQLite::Database& database, std::int64_t id, const std::string& mark);

/// False if the run had no such mark.
[[nodiscard]] bool unmark_run(SQLite::Database& database, std::int64_t id, const std::string& mark);

}  // namespace mfsdp
