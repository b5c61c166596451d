// Verdicts on the bug corpus as text, Markdown and JSON. Every text ends in a newline.
#pragma once

#include <span>
#include <string>

#include "core/cli/text_style.hpp"
#include "verify/bugs/check_bugs.hpp"

namespace mfsdp::bugs {

/// A line for each row, the differences of rows that are not good, and the number of good rows.
[[nodiscard]] std::string render_bugs_text(std::span<const BugVerdict> verdicts,
                                           const TextStyle& style = {});
/// The table of scenarios/bugs/README.md: row, thread, what went wrong, rules.
[[nodiscard]] std::string render_bugs_markdown(std::span<const BugVerdict> verdicts);
/// An object with the number of rows, the number of good rows, and all fields of the rows. Findings
/// have rule and message.
[[nodiscard]] std::string render_bugs_json(std::span<const BugVerdict> verdicts);

}  // namespace mfsdp::bugs
