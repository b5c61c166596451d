// Files that a run writes must not be each other, nor files that it reads.
#pragma once

#include <filesystem>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"

namespace mfsdp {

/// An error that names both flags where two of the store, --trace, --memory-trace and --plan-out
/// are one file, or one of them is the file of --model, --plan, --gpu or --cluster. Links are
/// followed. `scenarios` is where names of models and GPUs are files. Devices and pipes, and
/// whatever lies below /dev, may be given repeatedly. Reads the file system, changes nothing.
[[nodiscard]] Result<void> check_paths(const CommonOptions& options,
                                       const std::filesystem::path& scenarios);

}  // namespace mfsdp
