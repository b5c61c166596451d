// Errors of a run, with rank, op, step and shape.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/event_ring.hpp"

namespace mfsdp::cuda {

/// An op that could not be issued, or that failed while the host waited for it.
[[nodiscard]] Error op_failure(const Program& program, std::int64_t rank, const BoundOp& op,
                               std::int64_t step, const Error& reason);

/// A host call that took too long. `at`: the op that the device executes; none: all recorded ops
/// have run, so the call itself hangs.
[[nodiscard]] Error stall(const Program& program, std::int64_t rank,
                          const std::optional<UnfinishedOp>& at, std::chrono::milliseconds held);

}  // namespace mfsdp::cuda
