#include "core/runtime/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mfsdp {
namespace {

/// Llama 3.1: waves longer than the original context are stretched by the factor, short ones are
/// kept, and those between are blended.
double blended_by_turns(double frequency, const RopeScaling& scaling) {
  const double factor = scaling.factor.value();
  if (factor == 1) return frequency;
  const double low = scaling.low_freq_factor.value();
  const double high = scaling.high_freq_factor.value();
  const double waves =  // in the original context
      static_cast<double>(scaling.original_max_seq_len) * frequency / (2 * std::numbers::pi);
  if (waves < low) return frequency / factor;
  if (waves >= high) return frequency;
  const double kept = (waves - low) / (high - low);
  return (1 - kept) * frequency / factor + kept * frequency;
}

/// Numbers of the frequencies between which YaRN blends.
struct YarnRange {
  double low = 0;   ///< up to here all is kept
  double high = 0;  ///< from here on all is stretched
};

YarnRange yarn_range(const ModelShape& model) {
  const RopeScaling& scaling = model.rope_scaling;
  const auto dims = static_cast<double>(model.rotated_dim());
  // The index of the frequency that makes `turns` rotations within the original context.
  const auto number_of = [&](const Rational& turns) {
    const double wave =
        static_cast<double>(scaling.original_max_seq_len) / (turns.value() * 2 * std::numbers::pi);
    return dims * std::log(wave) / (2 * std::log(model.rope_theta.value()));
  };
  const double low = number_of(scaling.high_freq_factor);
  const double high = number_of(scaling.low_freq_factor);
  YarnRange range{.low = std::max(scaling.exact_range ? low : std::floor(low), 0.0),
                  .high = std::min(scaling.exact_range ? high : std::ceil(high), dims - 1)};
  if (range.low == range.high) range.high += 0.001;  // as the reference does: no division by 0
  return range;
}

double blended_by_number(double frequency, double number, const YarnRange& range, double factor) {
  const double stretched = std::clamp((number - range.low) / (range.high - range.low), 0.0, 1.0);
  return frequency / factor * stretched + frequency * (1 - stretched);
}

}  // namespace

std::vector<double> rope_frequencies(const ModelShape& model, std::int64_t seq_len, bool local) {
  if (local && !model.nope_layers.empty())
    return std::vector<double>(static_cast<std::size_t>(model.rotated_dim() / 2), 0.0);
  const RopeScaling& scaling = model.rope_scaling;
  const double theta = local ? model.local_rope_theta.value() : model.rope_theta.value();
  const std::int64_t dims = model.rotated_dim();
  const bool is_long = seq_len > scaling.original_max_seq_len;
  const YarnRange range = scaling.kind == RopeKind::yarn ? yarn_range(model) : YarnRange{};
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(dims);
    double frequency = std::pow(theta, exponent);
    if (!local) switch (scaling.kind) {
        case RopeKind::llama3: frequency = blended_by_turns(frequency, scaling); break;
        case RopeKind::linear: frequency /= scaling.factor.value(); break;
        case RopeKind::yarn:
          frequency =
              blended_by_number(frequency, static_cast<double>(i), range, scaling.factor.value());
          break;
        case RopeKind::longrope:
          frequency /= (is_long ? scaling.long_factors : scaling.short_factors)
                           .at(static_cast<std::size_t>(i))
                           .value();
          break;
      }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

double rope_magnitude(const ModelShape& model) {
  const RopeScaling& scaling = model.rope_scaling;
  const double factor = scaling.factor.value();
  if (scaling.attention_factor.num != 0) return scaling.attention_factor.value();
  if (factor <= 1) return 1;
  if (scaling.kind == RopeKind::yarn) return 0.1 * std::log(factor) + 1;
  if (scaling.kind == RopeKind::longrope)
    return std::sqrt(1 + std::log(factor) /
                             std::log(static_cast<double>(scaling.original_max_seq_len)));
  return 1;
}

std::vector<float> make_rope_table(const ModelShape& model, std::int64_t seq_len, bool local) {
  const std::vector<double> frequencies = rope_frequencies(model, seq_len, local);
  const double magnitude = local ? 1 : rope_magnitude(model);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(seq_len * model.rotated_dim()));
  for (std::int64_t p = 0; p < seq_len; ++p) {
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::cos(static_cast<double>(p) * f) * magnitude));
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::sin(static_cast<double>(p) * f) * magnitude));
  }
  return table;
}

}  // namespace mfsdp
