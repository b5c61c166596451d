// Which samples a rank reads: what numbers they have in the run.
#pragma once

#include <cstdint>

namespace mfsdp {

/// How a step's samples are dealt out.
struct BatchShape {
  std::int64_t data_ranks = 1;   ///< ranks that read other samples (core/plan/work.hpp)
  std::int64_t micro_batch = 1;  ///< samples of one of these in one microbatch
  std::int64_t microbatches = 1;

  [[nodiscard]] std::int64_t global_batch() const {
    return data_ranks * micro_batch * microbatches;
  }
};

/// The number in the run of sample `i` of a data rank's microbatch, for shuffled_sample. Over all
/// data ranks, microbatches and i, the numbers of a step are those from step * global_batch on, each once.
[[nodiscard]] constexpr std::int64_t sample_number(const BatchShape& batch, std::int64_t step,
                                                   std::int64_t microbatch, std::int64_t index,
                                                   std::int64_t i) {
  return ((step * batch.microbatches + microbatch) * batch.data_ranks + index) * batch.micro_batch +
         i;
}

}  // namespace mfsdp
