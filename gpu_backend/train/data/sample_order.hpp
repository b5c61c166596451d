// Which samples a rank reads: what numbers they have in the run.
#pragma once

#include <cstdint>

namespace mfsdp {

/// How a step's samples are dealt out.
struct BatchShape {
  std::int64_t world = 1;        ///< ranks
  std::int64_t micro_batch = 1;  ///< samples of one rank in one microbatch
  std::int64_t microbatches = 1;

  [[nodiscard]] std::int64_t global_batch() const { return world * micro_batch * microbatches; }
};

/// The number in the run of sample `i` of a rank's microbatch, for shuffled_sample. Over all ranks,
/// microbatches and i, the numbers of a step are those from step * global_batch on, each once.
[[nodiscard]] constexpr std::int64_t sample_number(const BatchShape& batch, std::int64_t step,
                                                   std::int64_t microbatch, std::int64_t rank,
                                                   std::int64_t i) {
  return ((step * batch.microbatches + microbatch) * batch.world + rank) * batch.micro_batch + i;
}

}  // namespace mfsdp
