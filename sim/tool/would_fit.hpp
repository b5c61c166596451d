// What would make a prediction fit that does not.
#pragma once

#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// Settings with which the run that the options ask for, which does not fit, would, each predicted:
/// those that save memory, more sharding, smaller micro-batches of the same global batch, more GPUs
/// (the smallest power of two times as many that fits); where none of these is enough, all
/// together. What fits within its error alone is left out. A setting may be another than the
/// command line gives: `flags` says so. Empty where a plan is given, and where nothing helps.
[[nodiscard]] std::vector<WouldFit> would_fit(const SimOptions& asked, const PredictedRun& run,
                                              Asker& asker);

}  // namespace mfsdp
