// Whether two trainings go the same way.
//
// Their losses are compared by step, and by tokens seen. If the second run has no loss at exactly
// that number of tokens, it is interpolated between its neighbours. d is the difference at each
// place. Noise is estimated from d itself:
//   sigma = 1.4826 * median(|change of d - its median|) / sqrt(2)
// This is the robust deviation of single differences, which a slow drift does not change. The means
// are those of d over kWindow places. The runs diverge at the first of kWindow places from which on
// kWindow consecutive means are outside 3 * sigma / sqrt(kWindow). In the last of these the median
// must be outside, too: a spike of a few steps is in ten means, and is no divergence. Differences
// below 1e-6 of the values are none either: they come from sums in another order. If one run has no
// finite value from some place to its end, and the other one has, they diverge there.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "reports/record/result.hpp"

namespace mfsdp {

/// A figure of a training at each place, places rising: steps, or tokens seen.
struct Curve {
  std::vector<double> at;
  std::vector<double> values;
  /// The first of the places at the end that have no finite value, if there are more of those than
  /// ever before between two that have; none of steps that were skipped.
  std::optional<double> lost_at = {};
};

enum class CurveOf { loss, grad_norm };
enum class CurveBy { steps, tokens };

/// The curve of a run's steps, without the steps that lack the figure. Tokens are those that the
/// steps counted, or those of the configuration; empty if neither is known.
[[nodiscard]] Curve curve_of(const RunResult& run, CurveOf what, CurveBy by);

inline constexpr std::size_t kWindow = 10;

struct CurveDifference {
  std::size_t places = 0;  ///< that both have
  double most = 0;         ///< |d|
  double most_at = 0;      ///< where
  double mean = 0;         ///< of d, signed: second - first
  /// None where there are fewer than 2 * kWindow places.
  std::optional<double> band;         ///< 3 * sigma / sqrt(kWindow)
  std::optional<double> diverges_at;  ///< none: they do not
};

[[nodiscard]] CurveDifference difference_of(const Curve& first, const Curve& second);

}  // namespace mfsdp
