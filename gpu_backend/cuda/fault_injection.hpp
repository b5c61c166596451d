// What tests put into a run: an op that goes wrong, and delays, which may change no bit.
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
  /// On this rank, out of settings that all ranks share.
  FaultInjection(std::int64_t rank, const std::optional<InjectedFault>& fault, const Delays& delays)
      : rank_(rank), fault_(fault), delays_(delays) {}

  /// Takes what a stop needs, where there is a fault.
  [[nodiscard]] Result<void> open();

  /// Whether the op goes wrong in this step.
  [[nodiscard]] bool is_faulty(const BoundOp& op, std::int64_t step) const {
    return fault_ && fault_->rank == rank_ && fault_->op == op.op->id && fault_->step == step;
  }
  /// Runs in place of such an op; does not return from a kill. The error says that a failure was
  /// asked for.
  [[nodiscard]] Result<void> run_faulty(const BoundOp& op, Communicators& communicators,
                                        cudaStream_t stream);

  /// How long the stream is to be kept busy before the op; none: not at all. To be asked once for
  /// each launch: random delays are drawn in the order of launches.
  [[nodiscard]] std::optional<Nanos> draw_delay(const BoundOp& op, std::int64_t step,
                                                const PreparedPlace& place);

  /// Ends stops, so that their streams can end.
  void release_stops();

 private:
  std::int64_t rank_;
  std::optional<InjectedFault> fault_;
  Delays delays_;
  std::uint64_t delays_drawn_ = 0;
  PinnedMemory released_;  ///< a word that is 0 until stops may end; null without a fault
};

}  // namespace mfsdp::cuda
