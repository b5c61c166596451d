// Injected faults of tests: an op that fails, and delays, which must not change results.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

#include "core/base/error.hpp"
#include "core/runtime/bound_plan.hpp"
#include "core/runtime/injected_fault.hpp"
#include "gpu_backend/cuda/communicators.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/prepared_plans.hpp"

namespace mfsdp::cuda {

class FaultInjection {
 public:
  /// The faults of this rank, from settings that all ranks share.
  FaultInjection(std::int64_t rank, const std::optional<InjectedFault>& fault, const Delays& delays)
      : rank_(rank), fault_(fault), delays_(delays) {}

  /// Allocates the memory of a stop, if there is a fault.
  [[nodiscard]] Result<void> open();

  /// Whether the op fails in this step.
  [[nodiscard]] bool is_faulty(const BoundOp& op, std::int64_t step) const {
    return fault_ && fault_->rank == rank_ && fault_->op == op.op->id && fault_->step == step;
  }
  /// Runs instead of such an op; does not return from a kill. The error states that the failure was
  /// requested.
  [[nodiscard]] Result<void> run_faulty(const BoundOp& op, Communicators& communicators,
                                        cudaStream_t stream);

  /// How long the stream must be kept busy before the op; none: no delay. Call once for each
  /// launch, because random delays are drawn in the order of launches.
  [[nodiscard]] std::optional<Nanos> draw_delay(const BoundOp& op, std::int64_t step,
                                                const PreparedPlace& place);

  /// Ends stops, so that their streams can end.
  void release_stops();

 private:
  std::int64_t rank_;
  std::optional<InjectedFault> fault_;
  Delays delays_;
  std::uint64_t delays_drawn_ = 0;
  PinnedMemory released_;  ///< a word that is 0 as long as stops last; null without a fault
};

}  // namespace mfsdp::cuda
