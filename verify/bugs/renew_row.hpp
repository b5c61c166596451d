// Updates a row after a change of the planner: looks up the ids of its names anew.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "verify/bugs/base_plan.hpp"

namespace mfsdp::bugs {

/// The text of the row with the ids that its names have in the current base plan, and with current
/// hashes. Names that are not in the base, such as those of added buffers, keep their ids. Numbers
/// in patches (offsets, sizes) stay. Errors as in read_bug_row() and load_base().
[[nodiscard]] Result<std::string> renew_row(std::string_view text, const std::string& file,
                                            const BugFolders& folders);

}  // namespace mfsdp::bugs
