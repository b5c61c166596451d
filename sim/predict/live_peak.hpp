// Where in a simulated step the most memory is live.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct LivePeak {
  Bytes live;
  std::string op;  ///< what the compute stream runs then or next; empty if that is nothing
};

/// The first of the points with the largest total. `run`: with its timelines, and the runtime's
/// memory in every point.
[[nodiscard]] LivePeak live_peak(const PredictedRun& run);

/// The phase and unit of the plan's op of that name; empty where there is none.
[[nodiscard]] std::optional<PeakPlace> place_of_op(const Program& program, const Plan& plan,
                                                   std::string_view name);

}  // namespace mfsdp
