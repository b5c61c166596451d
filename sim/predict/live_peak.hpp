// Where in a simulated step the most memory is live.
#pragma once

#include <string>

#include "reports/record/result.hpp"

namespace mfsdp {

struct LivePeak {
  Bytes live;
  std::string op;  ///< what the compute stream runs then or next; empty if that is nothing
};

/// The first of the points with the largest total. `run`: with its timelines, and the runtime's
/// memory in every point.
[[nodiscard]] LivePeak live_peak(const PredictedRun& run);

}  // namespace mfsdp
