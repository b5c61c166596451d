// A row after the planner has changed: ids are what their names stand for now.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "verify/bugs/base_plan.hpp"

namespace mfsdp::bugs {

/// The text of a row with the ids that its names have in today's base plan, and today's hashes.
/// Names that the base lacks, such as those of buffers that the row adds, keep their ids; numbers
/// in patches (offsets, sizes) stay. Errors as of read_bug_row and load_base.
[[nodiscard]] Result<std::string> renew_row(std::string_view text, const std::string& file,
                                            const BugFolders& folders);

}  // namespace mfsdp::bugs
