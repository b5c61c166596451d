#include "reports/compare/convergence.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

constexpr double kRobust = 1.4826;  // of a normal distribution: deviation / median deviation
constexpr double kSigmas = 3;
constexpr double kResolution = 1e-6;  ///< of values in single precision, summed in any order

/// Tokens of a step over all ranks, with a label or without; 0: not known.
double configured_tokens(const RunResult& run) {
  if (run.absent.has(ResultFigure::config)) return 0;
  return static_cast<double>(run.config.global_tokens());
}

/// The tokens that the step counted, or those of the configuration; 0: not known.
double tokens_of(const StepResult& step, const RunResult& run) {
  return step.tokens ? static_cast<double>(*step.tokens) : configured_tokens(run);
}

/// For a resumed run, the tokens before its first step, which has `more`. Earlier steps may have
/// had another batch; the fraction of their tokens that counts is that of the first step.
double tokens_before(const ResumedFrom& resumed, const RunResult& run, double more) {
  const Fact* fact = find_fact(run.facts, "recipe", kResumedTokens);
  const auto* seen = fact != nullptr ? std::get_if<std::int64_t>(&fact->value) : nullptr;
  const double of_step = configured_tokens(run);
  if (seen == nullptr || of_step == 0) return more * static_cast<double>(resumed.step);
  return static_cast<double>(*seen) * more / of_step;
}

/// The value at a place: exact, or between its neighbours. None outside of the curve.
std::optional<double> value_at(const Curve& curve, double place) {
  const auto next = std::ranges::lower_bound(curve.at, place);
  if (next == curve.at.end()) return std::nullopt;
  const auto i = static_cast<std::size_t>(next - curve.at.begin());
  if (*next == place) return curve.values[i];
  if (i == 0) return std::nullopt;
  const double part = (place - curve.at[i - 1]) / (curve.at[i] - curve.at[i - 1]);
  return curve.values[i - 1] + part * (curve.values[i] - curve.values[i - 1]);
}

double robust_deviation_of_changes(std::span<const double> values) {
  std::vector<double> changes;
  for (std::size_t i = 1; i < values.size(); ++i) changes.push_back(values[i] - values[i - 1]);
  const double middle = median_of(changes);
  for (double& change : changes) change = std::fabs(change - middle);
  return kRobust * median_of(changes) / std::numbers::sqrt2;
}

/// The index of the first place of the first of kWindow windows in a row beyond the band, of which
/// the last is so by more than a spike.
std::optional<std::size_t> first_beyond(std::span<const double> differences, double band) {
  std::size_t in_a_row = 0;
  for (std::size_t begin = 0; begin + kWindow <= differences.size(); ++begin) {
    const bool beyond = std::fabs(mean_of(differences.subspan(begin, kWindow))) > band;
    in_a_row = beyond ? in_a_row + 1 : 0;
    if (in_a_row >= kWindow && std::fabs(median_of(differences.subspan(begin, kWindow))) > band)
      return begin + 1 - kWindow;
  }
  return std::nullopt;
}

/// Where one has no finite value any more while the other has.
std::optional<double> first_lost(const Curve& first, const Curve& second) {
  const auto lost = [](const Curve& one, const Curve& other) {
    const bool goes_on = one.lost_at && !other.at.empty() && other.at.back() >= *one.lost_at;
    return goes_on ? one.lost_at : std::nullopt;
  };
  const auto a = lost(first, second);
  return a ? a : lost(second, first);
}

}  // namespace

Curve curve_of(const RunResult& run, CurveOf what, CurveBy by) {
  Curve curve;
  const Measured* measured = run.measured();
  if (measured == nullptr) return curve;
  double tokens = 0;
  std::size_t missing = 0;  // values since the last one
  std::size_t usual = 1;    // the most of them between two
  for (const StepResult& step : measured->steps) {
    const double more = tokens_of(step, run);
    if (tokens == 0 && measured->resumed) tokens = tokens_before(*measured->resumed, run, more);
    tokens += more;
    if (by == CurveBy::tokens && more == 0) return {};
    const std::optional<double>& value = what == CurveOf::loss ? step.loss : step.grad_norm;
    const double place = by == CurveBy::steps ? static_cast<double>(step.step) : tokens;
    if (!value || !std::isfinite(*value)) {
      if (missing == 0) curve.lost_at = place;
      if (!step.skipped) ++missing;
      continue;
    }
    if (!curve.at.empty()) usual = std::max(usual, missing);
    missing = 0;
    if (!curve.at.empty() && place <= curve.at.back()) continue;
    curve.at.push_back(place);
    curve.values.push_back(*value);
  }
  if (curve.at.empty() || missing <= usual) curve.lost_at.reset();
  return curve;
}

CurveDifference difference_of(const Curve& first, const Curve& second) {
  CurveDifference result;
  std::vector<double> places;
  std::vector<double> differences;
  for (std::size_t i = 0; i < first.at.size(); ++i)
    if (const auto value = value_at(second, first.at[i])) {
      places.push_back(first.at[i]);
      differences.push_back(*value - first.values[i]);
    }
  result.places = places.size();
  result.diverges_at = first_lost(first, second);
  if (places.empty()) return result;
  result.mean = mean_of(differences);
  for (std::size_t i = 0; i < differences.size(); ++i)
    if (std::fabs(differences[i]) > result.most) {
      result.most = std::fabs(differences[i]);
      result.most_at = places[i];
    }
  if (places.size() < 2 * kWindow) return result;
  result.band =
      kSigmas * robust_deviation_of_changes(differences) / std::sqrt(static_cast<double>(kWindow));
  std::vector<double> sizes;
  for (const double value : first.values) sizes.push_back(std::fabs(value));
  const double limit = std::max(*result.band, kResolution * median_of(sizes));
  if (const auto index = first_beyond(differences, limit)) result.diverges_at = places[*index];
  return result;
}

}  // namespace mfsdp
