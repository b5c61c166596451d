// FLOPs of kernels, and the least bytes of their workspaces, from attributes and operands. The call
// structs of core/plan/kernels name those that they have.
#pragma once

#include <cstdint>

namespace mfsdp {
struct Kernel;
}

namespace mfsdp::costs {

// ---- FLOPs --------------------------------------------------------------------------------------

[[nodiscard]] std::int64_t gemm(const Kernel& kernel);
[[nodiscard]] std::int64_t grouped_gemm(const Kernel& kernel);
[[nodiscard]] std::int64_t attention_forward(const Kernel& kernel);
[[nodiscard]] std::int64_t attention_backward(const Kernel& kernel);
[[nodiscard]] std::int64_t newton_schulz(const Kernel& kernel);

// ---- workspaces ---------------------------------------------------------------------------------

[[nodiscard]] std::int64_t attention_forward_workspace(const Kernel& kernel);
[[nodiscard]] std::int64_t attention_backward_workspace(const Kernel& kernel);
[[nodiscard]] std::int64_t newton_schulz_workspace(const Kernel& kernel);
[[nodiscard]] std::int64_t order_workspace(const Kernel& kernel);
[[nodiscard]] std::int64_t sum_workspace(const Kernel& kernel);

}  // namespace mfsdp::costs
