#include "sim/cost/bandwidth_share.hpp"

#include <algorithm>
#include <array>

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
                               Share{KernelKind::bias_grad, 0.77},
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
                               Share{KernelKind::rms_norm_backward, 0.923},
                               Share{KernelKind::rms_norm_forward, 0.975},
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

}  // namespace

double bandwidth_share(KernelKind kind) {
  const auto* const measured = std::ranges::find(kMeasured, kind, &Share::kind);
  return measured == kMeasured.end() ? kOthers : measured->value;
}

}  // namespace mfsdp
