// The list of a store's runs, a line each.
#pragma once

#include <span>
#include <string>

#include "core/cli/common_options.hpp"
#include "core/cli/text_style.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

/// text and md: a table for people, "-" where a fact is not known; csv: every column as it is
/// stored; json: {"schema": "mfsdp.runs/1", "runs": [...]}; jsonl: an object a line.
[[nodiscard]] std::string render_list(std::span<const StoredRun> runs, OutputFormat format,
                                      const TextStyle& style);

}  // namespace mfsdp
