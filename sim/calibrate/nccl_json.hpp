// The file that nccl-tests writes with -J. README.md describes it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "sim/calibrate/nccl_run.hpp"

namespace mfsdp {

/// The file's run. Errors name file and field; for invalid JSON, line and column.
[[nodiscard]] Result<NcclRun> read_nccl_json(std::string_view text, const std::string& where);

}  // namespace mfsdp
