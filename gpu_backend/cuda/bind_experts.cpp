// Kernels of experts: defined on the CPU (verify/cpu/kernels/experts.hpp), not yet on GPUs.
#include <fmt/format.h>

#include "gpu_backend/cuda/bind_kind.hpp"

namespace mfsdp::cuda {
namespace {

Result<Launch> no_kernel(const KernelCall& call) {
  return fail(fmt::format("kernel {}", to_string(call.kernel->kind)),
              "has no CUDA kernel yet: models with experts run with --backend cpu");
}

}  // namespace

template <>
Result<Launch> bind_kind<KernelKind::router_forward>(const KernelCall& call,
                                                     const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::router_backward>(const KernelCall& call,
                                                      const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::expert_order>(const KernelCall& call,
                                                   const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::permute_rows>(const KernelCall& call,
                                                   const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::combine_rows>(const KernelCall& call,
                                                   const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::grouped_product>(const KernelCall& call,
                                                      const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::grouped_input_gradient>(const KernelCall& call,
                                                             const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::grouped_weight_gradient>(const KernelCall& call,
                                                              const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::weighted_swiglu_forward>(const KernelCall& call,
                                                              const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::weighted_swiglu_backward>(const KernelCall& call,
                                                               const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::sigmoid_forward>(const KernelCall& call,
                                                      const BindTarget& /*to*/) {
  return no_kernel(call);
}
template <>
Result<Launch> bind_kind<KernelKind::sigmoid_backward>(const KernelCall& call,
                                                       const BindTarget& /*to*/) {
  return no_kernel(call);
}

}  // namespace mfsdp::cuda
