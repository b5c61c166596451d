#include "sim/cost/equal_kernels.hpp"

#include <algorithm>
#include <vector>

namespace mfsdp {
namespace {

/// Everything of an operand but its place.
bool have_equal_tensors(const Operand& a, const Operand& b) {
  return a.role == b.role && a.access == b.access && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides;
}

struct PricedAlike {
  bool by_unit = false;

  bool operator()(const Op* a, const Op* b) const {
    const auto& first = std::get<Kernel>(a->body);
    const auto& second = std::get<Kernel>(b->body);
    return first.kind == second.kind && first.flops == second.flops &&
           (!by_unit || a->unit == b->unit) && first.attributes == second.attributes &&
           std::ranges::equal(first.operands, second.operands, have_equal_tensors);
  }
};

/// Equal for kernels that are priced alike.
struct PriceHash {
  std::size_t operator()(const Op* op) const {
    const auto& kernel = std::get<Kernel>(op->body);
    std::uint64_t hash = static_cast<std::uint64_t>(kernel.kind);
    const auto mix = [&](std::int64_t value) {
      constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
      hash = (hash ^ static_cast<std::uint64_t>(value)) * odd;
      hash ^= hash >> 29;
    };
    mix(kernel.flops);
    for (const Attribute& attribute : kernel.attributes) mix(attribute.value.num);
    for (const Operand& operand : kernel.operands)
      for (const std::int64_t dim : operand.shape) mix(dim);
    return hash;
  }
};

}  // namespace

EqualKernels::EqualKernels(std::span<const Plan* const> plans, bool by_unit) {
  std::unordered_map<const Op*, std::uint32_t, PriceHash, PricedAlike> kinds(0, PriceHash{},
                                                                             PricedAlike{by_unit});
  for (const Plan* plan : plans)
    for (const Segment& segment : plan->segments)
      for (const Op& op : segment.ops) {
        if (op.kind() != OpKind::kernel) continue;
        const auto kind = kinds.try_emplace(&op, static_cast<std::uint32_t>(kinds.size())).first;
        numbers_.emplace(&op, kind->second);
      }
  count_ = kinds.size();
}

}  // namespace mfsdp
