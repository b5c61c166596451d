// Files that a run writes must not be each other, nor files that it reads, and it must be able to
// write them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"

namespace mfsdp {

/// Whether both names lead to one file, be it there yet or not. Links are followed.
[[nodiscard]] bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Whether one path is below the other, or the same; by their names alone.
[[nodiscard]] bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer);

/// A file that one tool alone has a flag for.
struct FlagFile {
  std::string flag;
  std::optional<std::string> path;  ///< none: the flag was not given
};

struct ToolFiles {
  std::vector<FlagFile> read;
  std::vector<FlagFile> written;
};

/// An error that names both flags where two of the store, --trace, --memory-trace, --plan-out and
/// what the tool writes are one file, or one of them is the file of --model, --plan, --gpu,
/// --cluster, --options or what the tool reads, or where an output is a file of a folder that is
/// read. Links are followed. `scenarios` is where names of models and GPUs are files. Devices and
/// pipes, and whatever lies below /dev, may be given repeatedly. Then errors that name the flag of
/// a file that cannot be written, before hours of work are done for it. Leaves the file system as
/// it is.
[[nodiscard]] Result<void> check_paths(const CommonOptions& options,
                                       const std::filesystem::path& scenarios,
                                       const ToolFiles& tool = {});

}  // namespace mfsdp
