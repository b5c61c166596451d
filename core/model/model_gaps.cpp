#include "core/model/model_gaps.hpp"

#include <fmt/format.h>

namespace mfsdp {
namespace {

/// Pairs of query and key that causal attention computes: all, over those inside the window.
double pairs_over_window(std::int64_t seq_len, std::int64_t window) {
  const auto s = static_cast<double>(seq_len);
  const auto w = static_cast<double>(window);
  return s * s / 2 / (w * s - w * w / 2);
}

}  // namespace

std::vector<std::string> gap_lines(const ModelGaps& gaps, const ModelShape& shape,
                                   std::int64_t seq_len) {
  std::vector<std::string> lines;
  if (gaps.sliding_window && *gaps.sliding_window < seq_len && gaps.sliding_layers > 0)
    lines.push_back(fmt::format(
        "the sliding window of {} tokens is not modelled (docs/limits.md): attention sees all {} "
        "tokens, {:.2f} times the work{}; memory is the same",
        *gaps.sliding_window, seq_len, pairs_over_window(seq_len, *gaps.sliding_window),
        gaps.sliding_layers == shape.layers
            ? ""
            : fmt::format(" in {} of {} layers", gaps.sliding_layers, shape.layers)));
  if (!gaps.rope_type.empty())
    lines.push_back(
        fmt::format("RoPE scaling '{}' is not computed (docs/limits.md): other values, the same "
                    "memory and time",
                    gaps.rope_type));
  return lines;
}

}  // namespace mfsdp
