// The global batch of --find fastest and cheapest: the same in every combination, since steps of
// different batches are different trainings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/tool/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep_run.hpp"

namespace mfsdp {

struct HeldBatch {
  std::int64_t sequences = 0;  ///< of a step, over all ranks
  std::string text;            ///< a line that says so
};

/// Where the command line names no --global-batch, gives all rows one: for each GPU as many
/// sequences as the largest micro-batch with which any row fits, so that this one takes one
/// microbatch and smaller ones take several. Where micro-batches were not named either, at most
/// kMostSequencesHeld. Rows of several world sizes take the least common multiple. Rows of larger
/// micro-batches do not fit, or are not possible. None where the batch was named, or nothing fits.
[[nodiscard]] std::optional<HeldBatch> hold_global_batch(std::vector<SweepRow>& rows,
                                                         const SimOptions& options,
                                                         const Session& session);

inline constexpr std::int64_t kMostSequencesHeld = 8;

}  // namespace mfsdp
