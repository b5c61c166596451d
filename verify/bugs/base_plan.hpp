// The plans that the edits of rows are applied to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"

namespace mfsdp::bugs {

/// Folders of rows and of the files that rows name.
struct BugFolders {
  std::filesystem::path rows;       ///< scenarios/bugs: NN-name.json, and the plans that they name
  std::filesystem::path scenarios;  ///< with the models
};

/// The plan that edits start from: built from common flags, or a file beside the row's.
struct BasePlan {
  std::vector<std::string> flags;
  std::optional<std::string> plan;  ///< path from the row's folder; no flags then
  std::string hash;                 ///< of the plan; guarantees that ids have kept their meaning
};

/// Builds the plan of the flags, or reads its file, which may be that of a job. Does not compare the
/// hash. `where` is the place of the base in its row, for errors.
[[nodiscard]] Result<Job> load_base(const BasePlan& base, const BugFolders& folders,
                                    const std::string& where);

}  // namespace mfsdp::bugs
