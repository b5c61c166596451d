#include "core/schedule/exact_sums.hpp"

#include <algorithm>

#include "core/plan/exact_sums.hpp"
#include "core/plan/instances.hpp"

namespace mfsdp::schedule {
namespace {

void mark(Kernel& kernel, const ExactSums& sums) {
  for (const Attribute& made : exact_attributes(kernel, sums))
    kernel.attributes.insert(
        std::ranges::lower_bound(kernel.attributes, made.name, {}, &Attribute::name), made);
}

}  // namespace

void mark_exact_sums(Program& program) {
  if (!program.config.exact_sums) return;
  const ExactSums sums = exact_sums(program.config);
  for (Plan& plan : program.plans)
    for (Op& op : ops_of(plan))
      if (auto* kernel = std::get_if<Kernel>(&op.body)) mark(*kernel, sums);
}

}  // namespace mfsdp::schedule
