// What searches say where the answer leaves almost no memory.
#pragma once

#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Part of a GPU's memory below which what stays free is almost none.
inline constexpr double kAlmostNone = 0.03;

/// A line on session.err where the run fits within its error alone, or leaves less free and no
/// --memory-reserve has said how much shall stay.
void warn_of_full_memory(const RunFigures& run, const Session& session);

}  // namespace mfsdp
