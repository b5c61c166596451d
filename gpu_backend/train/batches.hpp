// Which samples each rank reads for each microbatch.
//
// Sample n of the run, n = step * global batch + microbatch * (world * micro batch) +
// rank * micro batch + i: a step reads the same samples at any world size, no two ranks share one.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// One microbatch of one rank.
struct Batch {
  std::int64_t first = 0;  ///< number of its first sample
  /// Samples from this number on are left out: their tokens are 0, their labels kIgnoreIndex.
  std::int64_t end = 0;
};

[[nodiscard]] std::int64_t global_batch(const PlanConfig& config);  ///< samples of a step

[[nodiscard]] Batch train_batch(const PlanConfig& config, std::int64_t rank, std::int64_t step,
                                std::int64_t microbatch);

/// Batch number `batch` of an evaluation over `samples` samples.
[[nodiscard]] Batch eval_batch(const PlanConfig& config, std::int64_t rank, std::int64_t batch,
                               std::int64_t samples);
[[nodiscard]] std::int64_t eval_batches(const PlanConfig& config, std::int64_t samples);

/// Fills the plan's tokens, int32 [2, micro_batch * seq_len]: token ids, then labels.
[[nodiscard]] Result<void> fill_batch(const Dataset& data, const Batch& batch, std::uint64_t seed,
                                      const PlanConfig& config, std::span<std::int32_t> tokens);

}  // namespace mfsdp
