// One or more results in the format that --output names.
#pragma once

#include <span>
#include <string>

#include "core/cli/common_options.hpp"
#include "core/cli/text_style.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// json: one object, or of several what render_sweep makes; jsonl: one object a line; csv, md: a
/// header and one row a run; text: a screen a run. `stored` is for the text's footer.
[[nodiscard]] std::string render_runs(std::span<const RunResult> runs, OutputFormat format,
                                      const TextStyle& style, const std::string& stored);

/// The same of a sweep's runs, however many there are: json is always one object,
/// {"schema": "mfsdp.sweep/1", "not_predicted": 0, "results": [...]}. `not_predicted`: combinations
/// that an interruption left out.
[[nodiscard]] std::string render_sweep(std::span<const RunResult> runs, std::int64_t not_predicted,
                                       OutputFormat format, const TextStyle& style,
                                       const std::string& stored);

/// CSV of runs, best first, with the column "rank" at the end: 1 is the best.
[[nodiscard]] std::string render_ranked_csv(std::span<const RunResult> runs);

/// A CSV field: quoted when it holds a comma, a quote, a line break or outer blanks (RFC 4180).
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace mfsdp
