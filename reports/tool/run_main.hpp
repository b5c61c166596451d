// The frame of every tool's main: what ends a process, and how.
#pragma once

#include <functional>
#include <ostream>
#include <string_view>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"

namespace mfsdp {

/// Runs `work` and returns the process's exit status. Errors and exceptions become one line on
/// `err`, and so does data that cannot be written to `out`.
[[nodiscard]] int run_main(std::string_view tool, std::ostream& out, std::ostream& err,
                           const std::function<Result<ExitCode>()>& work);

}  // namespace mfsdp
