#include "reports/statistics/judge.hpp"

#include <fmt/format.h>

#include <vector>

#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

std::string too_few(std::size_t samples, std::string_view side) {
  return fmt::format("{} sample{}{}, at least {} are needed", samples, samples == 1 ? "" : "s",
                     side, kFewestSamples);
}

std::vector<double> moved_by(std::span<const double> values, double amount) {
  std::vector<double> moved(values.begin(), values.end());
  for (double& value : moved) value += amount;
  return moved;
}

}  // namespace

SampleVerdict judge_difference(std::span<const double> baseline, std::span<const double> samples,
                               double tolerance, Better better) {
  SampleVerdict result;
  if (baseline.size() < kFewestSamples || samples.size() < kFewestSamples) {
    const bool fewer_before = baseline.size() < samples.size();
    result.why =
        fewer_before ? too_few(baseline.size(), " of the baseline") : too_few(samples.size(), "");
    return result;
  }
  result.test = mann_whitney(baseline, samples);
  result.shift = shift_between(baseline, samples, kRangeRisk);
  const bool lower = better == Better::lower;
  const double at_most = lower ? result.shift.high : -result.shift.low;
  const RankTest above = mann_whitney(moved_by(baseline, tolerance), samples);
  const RankTest below = mann_whitney(moved_by(baseline, -tolerance), samples);
  result.p_worse = lower ? above.p_larger : below.p_smaller;
  result.p_better = lower ? below.p_smaller : above.p_larger;
  if (result.p_worse <= kFalseAlarm)
    result.verdict = Verdict::fail;
  else if (result.p_better <= kFalseAlarm)
    result.verdict = Verdict::improved;
  else if (result.shift.bounded && at_most <= tolerance)
    result.verdict = Verdict::pass;
  else
    result.why = "too noisy for a verdict: take more samples, or allow a larger tolerance";
  return result;
}

SampleVerdict judge_limit(std::span<const double> samples, std::optional<double> worst,
                          std::optional<double> best, Better better) {
  SampleVerdict result;
  if (samples.size() < kFewestSamples) {
    result.why = too_few(samples.size(), "");
    return result;
  }
  const MedianRange range = median_range(samples, kRangeRisk);
  const bool lower = better == Better::lower;
  // As if lower were better: from the best to the worst value that the median may have.
  const double from = lower ? range.low : -range.high;
  const double to = lower ? range.high : -range.low;
  const auto turned = [&](double limit) { return lower ? limit : -limit; };
  if (worst && from > turned(*worst))
    result.verdict = Verdict::fail;
  else if (best && to < turned(*best))
    result.verdict = Verdict::improved;
  else if (!worst || to <= turned(*worst))
    result.verdict = Verdict::pass;
  else
    result.why = "the limit lies within the noise: take more samples";
  return result;
}

}  // namespace mfsdp
