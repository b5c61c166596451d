#include "core/runtime/rope_table.hpp"

#include <cmath>
#include <numbers>

namespace mfsdp {
namespace {

/// Llama 3.1: waves longer than the original context are stretched by the factor, short ones are
/// kept, and those between are blended.
double scale_frequency(double frequency, const RopeScaling& scaling) {
  const double factor = scaling.factor.value();
  if (factor == 1) return frequency;
  const double low = scaling.low_freq_factor.value();
  const double high = scaling.high_freq_factor.value();
  const double waves =  // in the original context
      static_cast<double>(scaling.original_max_seq_len) * frequency / (2 * std::numbers::pi);
  if (waves < low) return frequency / factor;
  if (waves > high) return frequency;
  const double kept = (waves - low) / (high - low);
  return (1 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelShape& model) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(model.head_dim);
    frequencies.push_back(
        scale_frequency(std::pow(model.rope_theta.value(), exponent), model.rope_scaling));
  }
  return frequencies;
}

std::vector<float> make_rope_table(const ModelShape& model, std::int64_t seq_len) {
  const std::vector<double> frequencies = rope_frequencies(model);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(seq_len * model.head_dim));
  for (std::int64_t p = 0; p < seq_len; ++p) {
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::cos(static_cast<double>(p) * f)));
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::sin(static_cast<double>(p) * f)));
  }
  return table;
}

}  // namespace mfsdp
