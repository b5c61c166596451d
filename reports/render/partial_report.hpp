// Text of a run of another system: the data of its files.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// A line for each thing that a log knows, "-" where this one does not; facts and steps after them.
[[nodiscard]] std::string render_partial_text(const RunResult& run, const TextStyle& style,
                                              const std::string& stored);

}  // namespace mfsdp
