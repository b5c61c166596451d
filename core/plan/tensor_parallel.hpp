// Tensor parallelism with sequence parallelism: the ranks of tp share the weights of each block, the
// vocabulary, and the rows between blocks (Megatron-LM, arXiv 1909.08053 and 2205.05198).
//
//   rows of some tokens ──all_gather──► all rows ─► columns: a rank's heads or features ─► a term of
//   all rows ──reduce_scatter──► rows of some tokens
#pragma once

#include "core/plan/config.hpp"

namespace mfsdp {

/// Ranks of tp that hold the columns of one head of keys together: 1 where each has whole heads. With
/// more ranks than such heads they exchange their parts of it (core/recipe/key_parts.hpp).
[[nodiscard]] std::int64_t key_holders(const ModelShape& model, std::int64_t ranks);

/// Checks that the ranks have equal shares of heads, features, ids and a microbatch's tokens.
[[nodiscard]] Result<void> check_tensor_shares(const ModelShape& model, std::int64_t tokens,
                                               std::int64_t ranks);

/// Checks the other fields on a mesh with several ranks on tp; the error names the flag.
[[nodiscard]] Result<void> check_tensor_parallel(const PlanConfig& config);

}  // namespace mfsdp
