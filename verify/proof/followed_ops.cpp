#include "verify/proof/followed_ops.hpp"

#include "verify/proof/roles.hpp"

namespace mfsdp {
namespace {

std::uint8_t by_kind(const Kernel& kernel, bool touches_followed) {
  switch (kernel.kind) {
    case KernelKind::adamw:
    case KernelKind::norm_partial:
    case KernelKind::sgd: return kFollowGradients | kFollowWeights | kFollowScales;
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss:
    case KernelKind::loss_finish:
    case KernelKind::norm_finish:
    case KernelKind::token_copy: return kFollowScales;
    // Its attributes tell more than its kind, but they lie elsewhere: operands are cheaper.
    case KernelKind::gemm:
      return !touches_followed && makes_gradient(kernel) ? kFollowGradients : 0;
    default: return makes_gradient(kernel) ? kFollowGradients : 0;
  }
}

std::uint8_t by_body(const OpBody& body, bool touches_followed) {
  if (const auto* kernel = std::get_if<Kernel>(&body)) return by_kind(*kernel, touches_followed);
  const auto* collective = std::get_if<Collective>(&body);
  const bool gathers = collective != nullptr && collective->kind == CollectiveKind::all_gather;
  return gathers && !touches_followed ? kFollowScales : 0;
}

}  // namespace

std::vector<std::uint8_t> followed_ops(const Plan& plan, const Layouts& layouts,
                                       const AccessTable& table) {
  std::vector<std::uint8_t> followed;
  followed.reserve(table.first.size());
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      std::uint8_t bits = 0;
      for (const ByteAccess& access : table.of(followed.size())) {
        const Holds holds = layouts.homes[access.buffer].holds;
        // Forward kernels, which read weights, tell how many gradients there have to be.
        if (holds == Holds::weight) bits |= kFollowWeights | kFollowGradients;
        if (holds == Holds::gradient) bits |= kFollowGradients;
      }
      followed.push_back(bits | by_body(op.body, bits != 0));
    }
  return followed;
}

}  // namespace mfsdp
