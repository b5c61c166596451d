// The results that a tool printed, read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The runs in a tool's output of --output json or jsonl: one object, the results of a sweep, or
/// lines of which some are results. Other lines, such as steps, are skipped. Runs are read as by
/// result_from_json. An error if there is no result.
[[nodiscard]] Result<std::vector<RunResult>> parse_results(std::string_view text,
                                                           const std::string& where);

}  // namespace mfsdp
