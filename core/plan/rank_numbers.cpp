#include "core/plan/rank_numbers.hpp"

#include <algorithm>

namespace mfsdp {

Rational value_on(const Attribute& attribute, const Mesh& mesh, std::int64_t rank) {
  Rational value = attribute.value;
  for (const IndexStep& per : attribute.per) {
    const std::int64_t added = checked_mul(per.step, mesh.index(rank, per.axis));
    value.num = checked_add(value.num, checked_mul(added, value.den));
  }
  return value;
}

bool differs_by_rank(const Kernel& kernel) {
  return std::ranges::any_of(kernel.attributes,
                             [](const Attribute& of) { return !of.per.empty(); });
}

Kernel kernel_on(Kernel kernel, const Mesh& mesh, std::int64_t rank) {
  for (Attribute& attribute : kernel.attributes) {
    attribute.value = value_on(attribute, mesh, rank);
    attribute.per.clear();
  }
  return kernel;
}

}  // namespace mfsdp
