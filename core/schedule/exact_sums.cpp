#include "core/schedule/exact_sums.hpp"

#include <algorithm>

#include "core/plan/exact_sums.hpp"

namespace mfsdp::schedule {
namespace {

void set(Kernel& kernel, std::string_view name, std::int64_t value) {
  const auto behind = std::ranges::lower_bound(
      kernel.attributes, name, {},
      [](const Attribute& attribute) { return std::string_view(attribute.name); });
  kernel.attributes.insert(behind, {std::string(name), value});
}

void mark(Kernel& kernel, const ExactSums& sums) {
  const KernelSpec* spec = spec_of(kernel);
  if (spec == nullptr) return;
  if (!spec->pieces.empty()) {
    const std::int64_t rows = kernel.attribute(spec->pieces);
    set(kernel, exact_attribute::piece_rows,
        spec->rows_are_sums ? 1 : std::min(sums.piece_rows, rows));
  }
  if (spec->sum == GradientSum::of_rank) set(kernel, exact_attribute::sum_limit, sums.rank_limit);
  if (spec->sum == GradientSum::of_ranks) set(kernel, exact_attribute::sum_limit, sums.outer_limit);
  if (spec->sum != GradientSum::none) set(kernel, exact_attribute::grid_exponent, sums.exponent);
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
