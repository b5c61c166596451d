// FP8 in a configuration, and the history of delayed scaling.
//
// The port `amax_history` of delayed scaling, fp32 [2 + slots, tensors], equal on every rank and kept
// between steps; 0 before the first one:
//
//   row 0     largest magnitudes of this step, over microbatches and, at its end, ranks
//   row 1     those that give this step's scales
//   rows 2..  those of earlier steps, the oldest first
//
// A tensor has one column: of each linear layer in FP8, by block, its input, weight and d_output.
#pragma once

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// Data sheets of all GPUs with FP8 state twice the dense rate of bf16; MXFP8 has the rate of FP8.
inline constexpr double kFp8Speed = 2;

/// Whether the linear layers of blocks can multiply in FP8 as the configuration asks; the error
/// names the flag.
[[nodiscard]] Result<void> check_fp8(const PlanConfig& config);

namespace amax_history {

inline constexpr std::int64_t default_slots = 1024;  ///< Transformer Engine's
/// Tensors of a block: input, weight and d_output of four linear layers.
inline constexpr std::int64_t tensors_of_block = 12;

/// Rows of the history itself.
[[nodiscard]] constexpr std::int64_t slots(const PlanConfig& config) {
  return config.fp8_history == 0 ? default_slots : config.fp8_history;
}
/// Columns.
[[nodiscard]] constexpr std::int64_t tensors(const PlanConfig& config) {
  return tensors_of_block * (config.model.layers - 2 * config.fp8_keep_bf16);
}
/// Elements of the port.
[[nodiscard]] constexpr std::int64_t elements(const PlanConfig& config) {
  return (2 + slots(config)) * tensors(config);
}

}  // namespace amax_history
}  // namespace mfsdp
