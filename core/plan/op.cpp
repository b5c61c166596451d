#include "core/plan/op.hpp"

#include <algorithm>

namespace mfsdp {

std::int64_t Operand::elements() const { return product_of(shape); }

std::int64_t Operand::touched_bytes() const { return checked_mul(elements(), size_of(dtype)); }

std::int64_t Operand::span_bytes() const {
  if (strides.empty() || elements() == 0) return touched_bytes();
  std::int64_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    last = checked_add(last, checked_mul(shape[i] - 1, strides[i]));
  return checked_mul(last + 1, size_of(dtype));
}

CollectiveSizes Collective::sizes(std::int64_t ranks) const {
  const std::int64_t whole = checked_mul(count, ranks);
  switch (kind) {
    case CollectiveKind::all_gather: return {.input = count, .output = whole};
    case CollectiveKind::reduce_scatter: return {.input = whole, .output = count};
    case CollectiveKind::all_to_all: return {.input = whole, .output = whole};
    case CollectiveKind::all_reduce:
    case CollectiveKind::shift: return {.input = count, .output = count};
    case CollectiveKind::send:
    case CollectiveKind::recv: break;
  }
  return {.input = count, .output = count};
}

std::int64_t Kernel::attribute(std::string_view name, std::int64_t otherwise) const {
  const Attribute* found = find_attribute(name);
  return found == nullptr || found->value.den != 1 ? otherwise : found->value.num;
}

const Attribute* Kernel::find_attribute(std::string_view name) const {
  const auto found = std::ranges::find(attributes, name, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

std::int64_t Kernel::bytes() const {
  if (const std::int64_t stated = attribute("bytes", -1); stated >= 0) return stated;
  std::int64_t sum = 0;
  const std::int64_t room = attribute("m");
  const std::int64_t usual = attribute("balanced_rows", room);
  for (const Operand& operand : operands) {
    std::int64_t once = operand.access == Access::scratch ? 0 : operand.touched_bytes();
    if (usual != room && room > 0 && !operand.shape.empty() && operand.shape[0] == room)
      once = checked_mul(once / room, usual);
    sum = checked_add(sum, operand.access == Access::read_write ? checked_mul(once, 2) : once);
  }
  return sum;
}

}  // namespace mfsdp
