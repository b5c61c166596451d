// The files of --plan and --plan-out.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/request/notes.hpp"

namespace mfsdp {

/// Reads a plan and checks its configuration. A note is given if the plan was edited since its hash
/// was stored; that is not an error.
[[nodiscard]] Result<Program> load_plan(const std::string& path, const Notes& notes);

/// Reads the plans of one or several rank classes. Takes their hash to `hash`, unless null.
[[nodiscard]] Result<Job> load_job(const std::string& path, const Notes& notes,
                                   std::string* hash = nullptr);

/// Writes the plan where --plan-out was given.
[[nodiscard]] Result<void> write_plan(const CommonOptions& options, const Program& program);
[[nodiscard]] Result<void> write_plan(const CommonOptions& options, const Job& job);

}  // namespace mfsdp
