// The warning of searches whose answer leaves almost no memory free.
#pragma once

#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Part of a GPU's memory below which what stays free is almost none.
inline constexpr double kAlmostNone = 0.03;

/// Prints a line on session.err in two cases: the run fits only within the prediction's error, or
/// it leaves little memory free and no --memory-reserve sets how much must stay free.
void warn_of_full_memory(const RunFigures& run, const Session& session);

}  // namespace mfsdp
