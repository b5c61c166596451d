// The warning of searches whose answer leaves almost no memory free.
#pragma once

#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Part of a GPU's memory below which what stays free is almost none.
inline constexpr double kAlmostNone = 0.03;

/// Writes a line to session.err if the run fits only within its error, or if it leaves less free and
/// no --memory-reserve was given.
void warn_of_full_memory(const RunFigures& run, const Session& session);

}  // namespace mfsdp
