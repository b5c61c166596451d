#include "core/schedule/exact_sums.hpp"

#include <algorithm>

#include "core/plan/exact_sums.hpp"

namespace mfsdp::schedule {
namespace {

/// What a kernel has to do with pieces.
enum class Part {
  none,         ///< works on single rows or elements, or adds what is on the grid already
  piecewise,    ///< its bits could depend on how many rows it has
  rounds,       ///< sums over tokens
  on_the_grid,  ///< squares what has been summed
};

constexpr std::int64_t kWeightGradient = 2;  ///< the attribute "kind" of such a GEMM

Part part_of(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::gemm:
      return kernel.attribute("kind") == kWeightGradient ? Part::rounds : Part::piecewise;
    case KernelKind::bias_grad:
    case KernelKind::embedding_backward:
    case KernelKind::qk_norm_rope_backward:
    case KernelKind::rms_norm_backward: return Part::rounds;
    case KernelKind::norm_finish:
    case KernelKind::norm_partial: return Part::on_the_grid;
    default: return Part::none;
  }
}

void set(Kernel& kernel, std::string_view name, std::int64_t value) {
  const auto behind = std::ranges::lower_bound(
      kernel.attributes, name, {},
      [](const Attribute& attribute) { return std::string_view(attribute.name); });
  kernel.attributes.insert(behind, {.name = std::string(name), .value = value});
}

void mark(Kernel& kernel, const ExactSums& sums) {
  const Part part = part_of(kernel);
  if (part == Part::piecewise || part == Part::rounds) {
    const std::int64_t rows = kernel.attribute(kernel.kind == KernelKind::gemm ? "m" : "rows");
    set(kernel, exact_attribute::piece_rows, std::min(sums.piece_rows, rows));
  }
  if (part == Part::rounds) set(kernel, exact_attribute::piece_limit, sums.limit);
  if (part == Part::rounds || part == Part::on_the_grid)
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
