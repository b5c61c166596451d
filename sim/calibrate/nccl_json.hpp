// The file that nccl-tests writes with -J. README.md describes it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "sim/calibrate/nccl_run.hpp"

namespace mfsdp {

/// The file's one run. Errors name file and field, or line and column where it is no JSON.
[[nodiscard]] Result<NcclRun> read_nccl_json(std::string_view text, const std::string& where);

}  // namespace mfsdp
