// The results that a tool printed, read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The runs of what a tool printed with --output json or jsonl: one object, the results of a sweep,
/// or lines of which some are results; other lines, as of steps, are passed over. Runs are as
/// result_from_json reads them. An error where there is no result.
[[nodiscard]] Result<std::vector<RunResult>> parse_results(std::string_view text,
                                                           const std::string& where);

}  // namespace mfsdp
