// Makes a plan with a bug by edits of a correct one.
#pragma once

#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "verify/bugs/bug_row.hpp"

namespace mfsdp::bugs {

/// Applies the edits in order. Binds the result's waits anew, as a GPU does: to the latest record
/// of their event at issue. Otherwise the result may be inconsistent (core/plan/check.hpp). Errors
/// name the edit: its id and name do not identify the same object of the plan, or its patch does
/// not apply. If the result is no plan, the error names `where`.
[[nodiscard]] Result<Program> edit_program(const Program& program, std::span<const Edit> edits,
                                           const std::string& where);

/// The same for a job: each edit changes the plan of its class, or those of all classes.
[[nodiscard]] Result<Job> edit_job(const Job& job, std::span<const Edit> edits,
                                   const std::string& where);

}  // namespace mfsdp::bugs
