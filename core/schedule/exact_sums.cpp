#include "core/schedule/exact_sums.hpp"

#include <algorithm>

#include "core/plan/exact_sums.hpp"

namespace mfsdp::schedule {
namespace {

constexpr std::int64_t kWeightGradient = 2;  ///< the attribute "kind" of such a GEMM

void set(Kernel& kernel, std::string_view name, std::int64_t value) {
  const auto behind = std::ranges::lower_bound(
      kernel.attributes, name, {},
      [](const Attribute& attribute) { return std::string_view(attribute.name); });
  kernel.attributes.insert(behind, {std::string(name), value});
}

/// Its bits would depend on how many rows it is given: it takes them piece by piece.
bool works_on_pieces(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::bias_grad:
    case KernelKind::embedding_backward:
    case KernelKind::gemm:
    case KernelKind::qk_norm_rope_backward:
    case KernelKind::rms_norm_backward: return true;
    default: return false;
  }
}

bool adds_gradients(const Kernel& kernel) {
  if (kernel.kind == KernelKind::gemm) return kernel.attribute("kind") == kWeightGradient;
  return works_on_pieces(kernel) || kernel.kind == KernelKind::norm_weight_grad ||
         kernel.kind == KernelKind::accumulate;
}

bool squares_gradients(const Kernel& kernel) {
  return kernel.kind == KernelKind::norm_partial || kernel.kind == KernelKind::norm_finish;
}

void mark(Kernel& kernel, const ExactSums& sums) {
  if (works_on_pieces(kernel)) {
    const std::int64_t rows = kernel.attribute(kernel.kind == KernelKind::gemm ? "m" : "rows");
    set(kernel, exact_attribute::piece_rows, std::min(sums.piece_rows, rows));
  } else if (kernel.kind == KernelKind::norm_weight_grad) {
    set(kernel, exact_attribute::piece_rows, 1);  // its rows are sums of pieces
  }
  if (adds_gradients(kernel))
    set(kernel, exact_attribute::sum_limit,
        kernel.kind == KernelKind::accumulate ? sums.outer_limit : sums.rank_limit);
  if (adds_gradients(kernel) || squares_gradients(kernel))
    set(kernel, exact_attribute::grid_exponent, sums.exponent);
}

}  // namespace

void mark_exact_sums(Program& program) {
  if (!program.config.exact_sums) return;
  const ExactSums sums = exact_sums(program.config);
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      for (Op& op : segment.ops)
        if (auto* kernel = std::get_if<Kernel>(&op.body)) mark(*kernel, sums);
}

}  // namespace mfsdp::schedule
