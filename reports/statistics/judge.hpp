// Judges measured samples against a limit, or against a baseline.
//
//              better  <---- 0 ----|---- tolerance ---->  worse
//   improved   [----]                                        beyond the tolerance on this side
//   pass              [---------]
//   fail                                 [---------]         beyond the tolerance
//   inconclusive  [--------------------------]               samples too few or too noisy
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "core/base/vocabulary.hpp"
#include "reports/statistics/mann_whitney.hpp"

namespace mfsdp {

enum class Verdict { pass, fail, improved, inconclusive, not_comparable };

constexpr auto value_names(Verdict) {
  return name_array("pass", "fail", "improved", "inconclusive", "not_comparable");
}

/// The direction of better values.
enum class Better { lower, higher };

/// With fewer samples on either side there is no judgement.
inline constexpr std::size_t kFewestSamples = 5;
/// One-sided chance of a failure where the samples are worse by no more than is allowed, and of an
/// improvement likewise. Five samples a side can reach it: 1/252.
inline constexpr double kFalseAlarm = 0.005;
/// One-sided chance that the true value lies outside the range from which `pass` is concluded.
inline constexpr double kRangeRisk = 0.05;

struct SampleVerdict {
  Verdict verdict = Verdict::inconclusive;
  Shift shift;    ///< of the samples from the baseline's, in the measure's unit
  RankTest test;  ///< of no difference at all, baseline first; its effect is what is shown
  /// Chance of such samples, or of worse ones, if they are worse by the tolerance; and of such
  /// samples or of better ones, if they are better by it.
  double p_worse = 1;
  double p_better = 1;
  std::string why;  ///< of `inconclusive`: what would settle it
};

/// Fails if the rank test finds the samples worse than the baseline's moved by `tolerance` (in the
/// measure's unit): a permitted difference fails with a chance of at most kFalseAlarm, at any
/// sample size. Improved likewise. Passes if all but kRangeRisk of the range of the shift is within
/// the tolerance. Otherwise noise makes the result inconclusive.
[[nodiscard]] SampleVerdict judge_difference(std::span<const double> baseline,
                                             std::span<const double> samples, double tolerance,
                                             Better better);

/// Fails where the range of the samples' median (median_range) lies beyond `worst`, passes where it
/// is within; improved where it is beyond `best`. No baseline: shift and test stay empty.
[[nodiscard]] SampleVerdict judge_limit(std::span<const double> samples,
                                        std::optional<double> worst, std::optional<double> best,
                                        Better better);

}  // namespace mfsdp
