#include "gpu_backend/cuda/kernels/experts.hpp"

#include <fmt/format.h>

namespace mfsdp::cuda {

Result<void> check_experts(std::int64_t experts) {
  if (experts <= kMostExperts) return {};
  return fail("attribute experts",
              fmt::format("expected at most {}, got {}", std::int64_t{kMostExperts}, experts));
}

Result<void> check_order_workspace(std::int64_t needed, std::int64_t bytes) {
  if (bytes >= needed) return {};
  return fail("kernel expert_order: operand workspace",
              fmt::format("expected at least {} bytes, got {}", needed, bytes));
}

}  // namespace mfsdp::cuda
