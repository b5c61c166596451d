// A plan with a bug: edits of one that is right.
#pragma once

#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/bugs/bug_row.hpp"

namespace mfsdp::bugs {

/// Applies the edits in order. The waits of the result are bound anew, to the latest record of
/// their event at issue: that is what a GPU does, whatever the planner had in mind. Beyond that the
/// result need not hang together (core/plan/check.hpp). Errors name the edit: an id and a name that
/// are not one thing of the plan, a patch that does not fit; `where` is for a result that is no
/// plan at all.
[[nodiscard]] Result<Program> edit_program(const Program& program, std::span<const Edit> edits,
                                           const std::string& where);

}  // namespace mfsdp::bugs
