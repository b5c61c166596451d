// Context parallelism: the ranks of cp share the tokens of each sequence. Either attention sees whole
// sequences of a rank's heads (a2a: Ulysses, Jacobs et al., arXiv 2309.14509)
//
//   rows of a rank's tokens, all heads ──all_to_all──► rows of all tokens, a rank's heads
//                                      ◄─all_to_all──
//
// or each rank has the keys and values of all tokens, and queries of its own (all_gather). Then a
// rank's tokens are two chunks of the sequence, so that all ranks have as many pairs of a query and a
// key that it sees (core/plan/kernels/sequence_share.hpp):
//
//   keys, values of a rank's tokens ──all_gather──► of all tokens
//   their gradients                 ◄──reduce_scatter── each rank's terms, of all tokens
//
// or the keys and values of one rank at a time, which go around (p2p: a ring). A rank's tokens are
// such chunks too.
//
//   keys, values of a rank's tokens ──shift──► of the next rank's step, N - 1 times
//   their gradients                 ──shift──► with one more rank's term, back to the first rank
#pragma once

#include "core/plan/config.hpp"

namespace mfsdp {

/// The proof has one bit for each rank whose keys a value contains.
inline constexpr std::int64_t kMostRingRanks = 64;

/// Checks that the ranks have equal shares of a sequence's tokens, and of heads where they exchange
/// these.
[[nodiscard]] Result<void> check_context_shares(const ModelShape& model, std::int64_t seq_len,
                                                std::int64_t ranks, ContextExchange exchange);

/// Checks the other fields on a mesh with several ranks on cp; the error names the flag.
[[nodiscard]] Result<void> check_context_parallel(const PlanConfig& config);

}  // namespace mfsdp
