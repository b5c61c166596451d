// Exit codes of the tools, and the line on stderr that reports an error.
#pragma once

#include <iosfwd>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

enum class ExitCode : int {
  good = 0,
  negative = 1,     ///< does not fit (--require-fit), plan wrong, budget exceeded
  input = 2,        ///< flags, files or values that the user gave
  environment = 3,  ///< disk, store, installation, driver
  interrupted = 130
};

[[nodiscard]] ExitCode exit_code_of(const Error& error);

/// Writes "<tool>: <where>: <what>" as one line and returns the process's exit status.
[[nodiscard]] int report_error(std::ostream& err, const Error& error, std::string_view tool);

/// Writes "<tool>: note: <text>" as one line.
void report_note(std::ostream& err, std::string_view text, std::string_view tool);

/// Writes "<tool>: warning: <text>" as one line.
void report_warning(std::ostream& err, std::string_view text, std::string_view tool);

}  // namespace mfsdp
