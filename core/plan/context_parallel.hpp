// Context parallelism: the ranks of cp share the tokens of each sequence, and attention sees whole
// sequences of a rank's heads (Ulysses, Jacobs et al., arXiv 2309.14509).
//
//   rows of a rank's tokens, all heads ──all_to_all──► rows of all tokens, a rank's heads
//                                      ◄─all_to_all──
#pragma once

#include "core/plan/config.hpp"

namespace mfsdp {

/// Checks that the ranks have equal shares of heads and of a sequence's tokens.
[[nodiscard]] Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len,
                                                std::int64_t ranks);

/// Checks the other fields on a mesh with several ranks on cp; the error names the flag.
[[nodiscard]] Result<void> check_context_parallel(const PlanConfig& config);

}  // namespace mfsdp
