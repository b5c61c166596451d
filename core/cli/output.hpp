// One or more results in the format that --output names.
#pragma once

#include <span>
#include <string>

#include "core/cli/common_options.hpp"
#include "core/cli/text_style.hpp"
#include "core/plan/result.hpp"

namespace mfsdp {

/// json: one object, or an array of several; jsonl: one object a line; csv, md: a header and one
/// row a run; text: a screen a run. `stored` is for the text's footer.
[[nodiscard]] std::string render_runs(std::span<const RunResult> runs, OutputFormat format,
                                      const TextStyle& style, const std::string& stored);

/// A CSV field: quoted when it holds a comma, a quote, a line break or outer blanks (RFC 4180).
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace mfsdp
