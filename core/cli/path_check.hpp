// Checks of the files that a run writes: they must differ from each other and from the files that
// the run reads, and the run must be able to write them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"

namespace mfsdp {

/// Whether both names lead to one file, which may not exist yet. Follows links.
[[nodiscard]] bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Whether one path is below the other, or equal. Compares the names alone.
[[nodiscard]] bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer);

/// A file of a flag that only one tool has.
struct FlagFile {
  std::string flag;
  std::optional<std::string> path;  ///< none: the flag was not given
};

struct ToolFiles {
  std::vector<FlagFile> read;
  std::vector<FlagFile> written;
};

/// The first error names both flags if a written file is also another file of the run:
/// - two written files are one: the store, --trace, --memory-trace, --plan-out, the tool's own
///   files;
/// - a written file is the file of --model, --plan, --gpu, --cluster or --options, or one that the
///   tool reads;
/// - a written file is in a folder that is read.
/// Links are followed. `scenarios` is the folder in which names of models and GPUs are files.
/// Devices, pipes and paths below /dev may be given repeatedly. The second error names the flag of
/// a file that cannot be written, before hours of work are done for it. Does not change the file
/// system.
[[nodiscard]] Result<void> check_paths(const CommonOptions& options,
                                       const std::filesystem::path& scenarios,
                                       const ToolFiles& tool = {});

}  // namespace mfsdp
