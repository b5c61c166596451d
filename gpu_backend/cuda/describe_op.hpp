// Descriptions of an op for messages: where it ran, and its size.
#pragma once

#include <cstdint>
#include <string>

#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"

namespace mfsdp::cuda {

/// "rank 1, layers.3.qkv (compute), step 5"; steps count from 1 in messages.
[[nodiscard]] std::string place_of(const Program& program, std::int64_t rank, const BoundOp& op,
                                   std::int64_t step);

/// "gemm, input bf16 [8192, 4096], weight bf16 [6144, 4096], output bf16 [8192, 6144]";
/// "all_gather of 1024 bf16 over 8 ranks (all_gather)".
[[nodiscard]] std::string shape_of(const Program& program, const BoundOp& op);

}  // namespace mfsdp::cuda
