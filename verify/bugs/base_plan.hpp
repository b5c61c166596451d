// The plans that rows start from.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/bugs/bug_row.hpp"

namespace mfsdp::bugs {

/// Where rows and what they name are looked up.
struct BugFolders {
  std::filesystem::path rows;    ///< scenarios/bugs: NN-name.json, and the plans that they name
  std::filesystem::path models;  ///< scenarios/models
};

/// Builds the plan of the flags, or reads its file. Its hash is not compared. `where` is the base's
/// place in its row, for errors.
[[nodiscard]] Result<Program> load_base(const BasePlan& base, const BugFolders& folders,
                                        const std::string& where);

}  // namespace mfsdp::bugs
