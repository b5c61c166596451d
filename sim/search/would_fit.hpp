// Settings that would make a prediction fit that does not.
#pragma once

#include <vector>

#include "reports/record/result.hpp"
#include "sim/search/prediction_requests.hpp"

namespace mfsdp {

/// Settings with which the job's run, which does not fit, would fit, each with its prediction:
/// those that save memory, more sharding, smaller micro-batches of the same global batch, more GPUs
/// (the smallest power of two times as many that fits); if none of these suffices, all together. A
/// fit within the error of the prediction does not count. A setting may replace one of the job;
/// `flags` then names it. Empty if the job has a plan file, and if nothing helps.
[[nodiscard]] std::vector<WouldFit> would_fit(const JobOptions& job, const PredictedRun& run,
                                              PredictionRequests& requests);

}  // namespace mfsdp
