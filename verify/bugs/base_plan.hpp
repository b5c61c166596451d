// The plans that rows start from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp::bugs {

/// Where rows and what they name are looked up.
struct BugFolders {
  std::filesystem::path rows;       ///< scenarios/bugs: NN-name.json, and the plans that they name
  std::filesystem::path scenarios;  ///< with the models
};

/// The plan that edits start from: built from common flags, or a file beside the row's.
struct BasePlan {
  std::vector<std::string> flags;
  std::optional<std::string> plan;  ///< path from the row's folder; no flags then
  std::string hash;                 ///< of the plan, so that its ids mean what they meant
};

/// Builds the plan of the flags, or reads its file. Its hash is not compared. `where` is the base's
/// place in its row, for errors.
[[nodiscard]] Result<Program> load_base(const BasePlan& base, const BugFolders& folders,
                                        const std::string& where);

}  // namespace mfsdp::bugs
