// Where in a simulated step live memory peaks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct LivePeak {
  Bytes live;
  std::string op;  ///< what the compute stream runs then or next; empty if that is nothing
};

/// The first point with the largest total. `points` must have the runtime's memory; `timeline` is
/// that of their rank.
[[nodiscard]] LivePeak live_peak(const std::vector<MemoryPoint>& points,
                                 const std::vector<OpTime>& timeline);

/// Phase and unit of the plan's op with that name; empty without such an op.
[[nodiscard]] std::optional<PeakPlace> place_of_op(const Program& program, const Plan& plan,
                                                   std::string_view name);

}  // namespace mfsdp
