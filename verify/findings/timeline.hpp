// A finding as text, with its interleaving drawn: one row for each stream, one column for each op.
//
//   MF101 race: nothing orders gather (all_gather) and gemm (compute), which both touch bytes [0,
//   256) of buffer 'weights' (pool 'memory')
//     missing: gather (all_gather) -> gemm (compute)
//
//     compute     1*  .
//     all_gather  .   2*
//
//     1  gemm    compute     train, step 1, only, op 5
//     2  gather  all_gather  train, step 1, only, op 1
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "verify/findings/finding.hpp"

namespace mfsdp {

/// Rows and columns of the finding's interleaving and what its numbers stand for; the ops that the
/// finding is about have a star. Time runs right; where `width` columns do not hold all ops, it
/// goes on in further rows. Empty without an interleaving; ends with a line.
[[nodiscard]] std::string draw_timeline(const Finding& finding,
                                        std::optional<std::size_t> width = std::nullopt);

/// Rule, message, missing edge and timeline.
[[nodiscard]] std::string to_text(const Finding& finding,
                                  std::optional<std::size_t> width = std::nullopt);

}  // namespace mfsdp
