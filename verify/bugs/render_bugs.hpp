// Verdicts on the bug corpus as text, Markdown and JSON. Every text ends in a newline.
#pragma once

#include <span>
#include <string>

#include "core/cli/text_style.hpp"
#include "verify/bugs/check_bugs.hpp"

namespace mfsdp::bugs {

/// A line for each row, what is wrong with those that are not good, and how many are.
[[nodiscard]] std::string render_bugs_text(std::span<const BugVerdict> verdicts,
                                           const TextStyle& style = {});
/// The table of scenarios/bugs/README.md: row, thread, what went wrong, rules.
[[nodiscard]] std::string render_bugs_markdown(std::span<const BugVerdict> verdicts);
/// An object with the number of rows, of good ones, and the rows with all their fields; of findings
/// rule and message.
[[nodiscard]] std::string render_bugs_json(std::span<const BugVerdict> verdicts);

}  // namespace mfsdp::bugs
