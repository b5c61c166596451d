#include "sim/cost/bandwidth_share.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace mfsdp {
namespace {

struct Share {
  KernelKind kind;
  double value;
};

// Bandwidth of a kernel, (bytes) / (time - 3 us of launch), relative to a copy's 2,998 GB/s on an
// H100 and 4,268 GB/s on an H200. Mean of kernels_bench on both (docs/lab/2026-11-25-many-h100.md
// and 2026-11-22-kernels.md). Values are at most 1, because an excess is noise of the copy. The
// exception is cross_entropy: plans count three passes, and the second one reads rows in shared
// memory (0.847 of two passes). qk_row_norm_rope was measured on the H200 only
// (2026-11-28-row-norms.md), FP8 casts likewise (2026-11-30-fp8.md).
constexpr std::array kMeasured{Share{KernelKind::accumulate, 1},
                               Share{KernelKind::amax, 0.97},
                               Share{KernelKind::cast, 1},
                               Share{KernelKind::cast_blocks, 0.91},  // as cast_scaled
                               Share{KernelKind::cast_scaled, 0.91},
                               Share{KernelKind::combine_rows, 0.95},
                               Share{KernelKind::cross_entropy, 1.27},
                               Share{KernelKind::cross_entropy_loss, 0.951},
                               Share{KernelKind::embedding_backward, 0.909},
                               Share{KernelKind::embedding_forward, 0.92},
                               Share{KernelKind::norm_partial, 0.926},
                               Share{KernelKind::norm_weight_grad, 0.623},
                               Share{KernelKind::permute_rows, 0.717},
                               Share{KernelKind::qk_norm_rope_backward, 0.631},
                               Share{KernelKind::qk_norm_rope_forward, 0.755},
                               Share{KernelKind::qk_row_norm_rope_backward, 0.5},
                               Share{KernelKind::qk_row_norm_rope_forward, 0.69},
                               Share{KernelKind::rope_backward, 0.961},
                               Share{KernelKind::rope_forward, 0.961},
                               Share{KernelKind::sum_ranks, 0.955},
                               Share{KernelKind::swiglu_backward, 0.99},
                               Share{KernelKind::swiglu_forward, 1},
                               Share{KernelKind::swiglu_forward_cast, 0.97},
                               Share{KernelKind::transpose, 0.94},
                               Share{KernelKind::update, 0.974},
                               Share{KernelKind::weighted_swiglu_backward, 0.977},
                               Share{KernelKind::weighted_swiglu_forward, 1}};
constexpr double kOthers = 0.9;

// Kernels that go over rows of hidden states: narrow rows leave threads idle and their sums take as
// long as those of wide ones. The same share, by kernels_bench on an H200, of rows of kWidths
// elements (docs/lab/2026-11-30-own-11.md).
constexpr std::array kWidths{768.0, 1152.0, 1600.0, 2048.0, 3072.0, 4096.0, 8192.0};
struct RowShares {
  KernelKind kind;
  std::array<double, kWidths.size()> of_width;
};
constexpr std::array kOfRows{
    RowShares{KernelKind::bias_grad, {0.472, 0.570, 0.660, 0.708, 0.684, 0.644, 0.660}},
    RowShares{KernelKind::layer_norm_backward, {0.624, 0.617, 0.614, 0.700, 0.848, 0.893, 0.811}},
    RowShares{KernelKind::layer_norm_forward, {0.915, 0.894, 0.896, 0.949, 0.961, 0.952, 0.926}},
    RowShares{KernelKind::rms_norm_backward, {0.771, 0.783, 0.765, 0.860, 0.840, 0.903, 0.930}},
    RowShares{KernelKind::rms_norm_forward, {0.937, 0.929, 0.931, 0.971, 0.979, 0.967, 0.938}}};

// A vocabulary that is no multiple of 8 relative to one that is: 0.634 of 0.758, likewise.
constexpr double kRaggedVocabulary = 0.836;
constexpr std::int64_t kVocabularyPack = 8;

/// Kernels that state no width are priced as rows of 4096.
double at_width(const RowShares& shares, double stated) {
  const double width = stated > 0 ? stated : 4096;
  const auto* const above = std::ranges::upper_bound(kWidths, width);
  if (above == kWidths.begin()) return shares.of_width.front();
  if (above == kWidths.end()) return shares.of_width.back();
  const auto at = static_cast<std::size_t>(std::distance(kWidths.begin(), above));
  return std::lerp(shares.of_width[at - 1], shares.of_width[at],
                   (width - kWidths[at - 1]) / (kWidths[at] - kWidths[at - 1]));
}

}  // namespace

double bandwidth_share(const Kernel& kernel) {
  const auto* const of_rows = std::ranges::find(kOfRows, kernel.kind, &RowShares::kind);
  if (of_rows != kOfRows.end())
    return at_width(*of_rows, static_cast<double>(kernel.attribute("cols")));
  const auto* const measured = std::ranges::find(kMeasured, kernel.kind, &Share::kind);
  const double share = measured == kMeasured.end() ? kOthers : measured->value;
  const bool ragged =
      kernel.kind == KernelKind::cross_entropy && kernel.attribute("cols") % kVocabularyPack != 0;
  return ragged ? share * kRaggedVocabulary : share;
}

}  // namespace mfsdp
