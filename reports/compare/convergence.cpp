#include "reports/compare/convergence.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

constexpr double kRobust = 1.4826;  // of a normal distribution: deviation / median deviation
constexpr double kSigmas = 3;

/// Tokens of a step over all ranks; 0: not known.
double tokens_of(const StepResult& step, const RunResult& run) {
  if (step.tokens) return static_cast<double>(*step.tokens);
  if (run.absent.has(ResultFigure::config)) return 0;
  return static_cast<double>(run.config.global_batch()) * static_cast<double>(run.config.seq_len);
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

/// The index of the first place of the first of kWindow windows in a row beyond the band.
std::optional<std::size_t> first_beyond(std::span<const double> differences, double band) {
  std::size_t in_a_row = 0;
  for (std::size_t begin = 0; begin + kWindow <= differences.size(); ++begin) {
    const bool beyond = std::fabs(mean_of(differences.subspan(begin, kWindow))) > band;
    in_a_row = beyond ? in_a_row + 1 : 0;
    if (in_a_row == kWindow) return begin + 1 - kWindow;
  }
  return std::nullopt;
}

}  // namespace

Curve curve_of(const RunResult& run, CurveOf what, CurveBy by) {
  Curve curve;
  const Measured* measured = run.measured();
  if (measured == nullptr) return curve;
  double tokens = 0;
  for (const StepResult& step : measured->steps) {
    const double more = tokens_of(step, run);
    if (tokens == 0 && measured->resumed)
      tokens = more * static_cast<double>(measured->resumed->step);
    tokens += more;
    if (by == CurveBy::tokens && more == 0) return {};
    const std::optional<double>& value = what == CurveOf::loss ? step.loss : step.grad_norm;
    if (!value || !std::isfinite(*value)) continue;
    const double place = by == CurveBy::steps ? static_cast<double>(step.step) : tokens;
    if (!curve.at.empty() && place <= curve.at.back()) continue;
    curve.at.push_back(place);
    curve.values.push_back(*value);
  }
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
  if (const auto index = first_beyond(differences, *result.band))
    result.diverges_at = places[*index];
  return result;
}

}  // namespace mfsdp
