// The longer answers of --explain, as tables.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Each pool's height against the largest sum of bytes live in it, and what the runtime takes.
[[nodiscard]] std::string explain_memory(const RunFigures& run, const TextStyle& style = {});

/// Each group's flat layout: parameters, elements, padding, bytes per rank, uneven and empty
/// shards. Equal groups of consecutive units share a row.
[[nodiscard]] std::string explain_layout(const Program& program, const TextStyle& style = {});

}  // namespace mfsdp
