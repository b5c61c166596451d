// Ranks that share the weights (tp) and the sequences (cp) of Megatron-Core's layers, and the part of
// a model that one of them has.
//
//   columns   query, key and value by groups of heads, gate and up, head: rows of the matrix are cut
//   rows      out and down: inputs are cut, so that each rank's result is a term of the whole one
//   vocabulary  padded to a multiple of 128 x tp, then cut, with embedding and head
//   whole     norms, router, biases after row-cut GEMMs
#pragma once

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine_options.hpp"

namespace mfsdp {

struct McoreParallel {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  /// Between column-cut and row-cut GEMMs each rank has its part of the rows.
  bool sequence = false;
  bool in_pieces = false;  ///< rows move in pieces beside their GEMMs (tp_comm_overlap)
  ContextComm comm = ContextComm::p2p;
  bool overlaps_gathers = true;     ///< overlap_param_gather
  bool overlaps_reductions = true;  ///< overlap_grad_reduce
};

[[nodiscard]] McoreParallel mcore_parallel(EngineKind engine, const PlanConfig& config,
                                           const EngineOptions& options);

/// Megatron-LM's --make-vocab-size-divisible-by: ids are padded to a multiple of it on each rank.
inline constexpr std::int64_t kMegatronVocabulary = 128;

/// Refuses, with the flag, what cannot be cut or is not described. Adds to `reasons`.
void check_mcore_parallel(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                          Reasons& reasons);

}  // namespace mfsdp
