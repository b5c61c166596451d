#include "verify/proof/followed_ops.hpp"

#include "verify/proof/roles.hpp"

namespace mfsdp {
namespace {

std::uint8_t by_kind(const Op& op, const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::adamw:
    case KernelKind::norm_partial:
    case KernelKind::sgd: return kFollowGradients | kFollowWeights | kFollowScales;
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss:
    case KernelKind::loss_finish:
    case KernelKind::norm_finish:
    case KernelKind::token_copy: return kFollowScales;
    default: break;
  }
  if (is_forward(kernel)) return op.phase == Phase::recompute ? 0 : kUsesParameters;
  return makes_gradient(kernel) ? kFollowGradients : 0;
}

std::uint8_t by_body(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return by_kind(op, *kernel);
  const auto* collective = std::get_if<Collective>(&op.body);
  return collective != nullptr && collective->kind == CollectiveKind::all_gather ? kFollowScales
                                                                                 : 0;
}

}  // namespace

std::vector<std::uint8_t> followed_ops(const Plan& plan, const Layouts& layouts,
                                       const AccessTable& table) {
  std::vector<std::uint8_t> followed;
  followed.reserve(table.first.size());
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      std::uint8_t bits = by_body(op);
      for (const ByteAccess& access : table.of(followed.size())) {
        const Holds holds = layouts.homes[access.buffer].holds;
        if (holds == Holds::weight) bits |= kFollowWeights;
        if (holds == Holds::gradient) bits |= kFollowGradients;
      }
      followed.push_back(bits);
    }
  return followed;
}

}  // namespace mfsdp
