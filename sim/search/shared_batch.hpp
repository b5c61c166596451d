// The global batch of a search: equal in all combinations, since steps of different batches are
// different trainings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/search/candidates.hpp"

namespace mfsdp {

struct SharedBatch {
  std::int64_t sequences = 0;         ///< of a step, over all ranks
  std::int64_t gpus = 0;              ///< of every candidate; 0 if they have different numbers
  std::int64_t per_gpu = 0;           ///< sequences for each of those GPUs
  bool is_largest_that_fits = false;  ///< per_gpu is the largest micro-batch that fits
};

/// Gives all candidates one global batch, unless the job or the space sets --global-batch: for each
/// GPU as many sequences as the largest micro-batch with which any candidate fits, so that it needs
/// one microbatch and smaller micro-batches need several. If micro-batches are open too, at most
/// kMostSharedSequences. Candidates with different numbers of GPUs get the least common multiple.
/// Candidates with larger micro-batches become too large or invalid. None if the batch is set, if
/// nothing fits, or if the search was cancelled.
[[nodiscard]] std::optional<SharedBatch> share_batch(std::vector<Candidate>& candidates,
                                                     const JobOptions& job,
                                                     const SearchSpace& space,
                                                     const SearchHooks& hooks);

inline constexpr std::int64_t kMostSharedSequences = 8;

}  // namespace mfsdp
