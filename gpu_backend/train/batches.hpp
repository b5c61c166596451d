// The samples that each rank reads for each microbatch, and their conversion to tokens.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/sample_order.hpp"

namespace mfsdp {

/// One microbatch of one rank.
struct Batch {
  std::int64_t first = 0;  ///< number of its first sample (sample_order.hpp)
  /// Samples from this number on are omitted: their tokens are 0, their labels kIgnoreIndex.
  std::int64_t end = 0;
  std::int64_t part = 0;  ///< of each sample, where ranks share sequences
};

[[nodiscard]] BatchShape batch_shape(const PlanConfig& config);

[[nodiscard]] Batch train_batch(const PlanConfig& config, std::int64_t rank, std::int64_t step,
                                std::int64_t microbatch);

/// Batch number `batch` of an evaluation over samples 0 to `samples` - 1, at any world size. There
/// are ceil(samples / (world * micro batch)) batches.
[[nodiscard]] Batch eval_batch(const PlanConfig& config, std::int64_t rank, std::int64_t batch,
                               std::int64_t samples);
[[nodiscard]] std::int64_t eval_batches(const PlanConfig& config, std::int64_t samples);

/// Fills the plan's tokens, int32 [token_rows, tokens_per_microbatch]: token ids and labels of the
/// batch's part of each sample and, with masked documents, positions of whole samples.
[[nodiscard]] Result<void> fill_batch(const Dataset& data, const Batch& batch, std::uint64_t seed,
                                      const PlanConfig& config, std::span<std::int32_t> tokens);

}  // namespace mfsdp
