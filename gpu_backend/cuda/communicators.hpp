// A rank's communicators over NCCL: one for each of the plan's, all used from one host thread.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/mesh.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"

namespace mfsdp::cuda {

/// The plan's operand types and reductions as NCCL's. Errors: a reduction that is no sum, a sum of
/// integers, operands that overlap but not in place. Pure.
[[nodiscard]] Result<ncclDataType_t> nccl_type(DType dtype);
[[nodiscard]] Result<void> check_collective(const BoundOp& op, std::int64_t member,
                                            std::int64_t members);

class Communicators {
 public:
  /// None until create().
  Communicators() = default;
  /// Aborts where the run has failed; otherwise waits for the other members.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// For the current device; waits for all members of each, and has each run one small all-reduce
  /// on `stream`. `program` outlives it.
  [[nodiscard]] Result<void> create(const Program& program, const CudaSettings& settings,
                                    int device, cudaStream_t stream);

  /// Where collectives of the op's communicator are to go from window to window: runs this one on
  /// its memory as it is, and holds what NCCL queues for it against that. Once for each
  /// communicator; all members call it in one order. What it found, or nothing.
  [[nodiscard]] Result<std::optional<std::string>> check_transport_of(const BoundOp& op,
                                                                      cudaStream_t stream);

  /// Makes memory of ncclMemAlloc a window of the communicator; all members call it in one order.
  [[nodiscard]] Result<void> register_window(std::size_t communicator, std::span<std::byte> memory);

  /// Queues a collective; within a group, when that ends. `count`: of the op, or less by a fault.
  [[nodiscard]] Result<void> launch(const BoundOp& op, std::int64_t count, cudaStream_t stream);
  [[nodiscard]] Result<void> begin_group();
  [[nodiscard]] Result<void> end_group();

  /// This rank's place in the communicator.
  [[nodiscard]] std::int64_t member(std::size_t communicator) const {
    return members_[communicator];
  }

  /// The first error that NCCL has met beside the host's calls. Any thread.
  [[nodiscard]] Result<void> asynchronous_error() const;

  /// Frees the device of what waits for other ranks, for ever: no call works any more. Any thread;
  /// does not wait.
  void give_up();
  /// No giving up that has not begun: of a process that ends at once.
  void stay();

 private:
  struct Window {
    ncclComm_t communicator = nullptr;
    ncclWindow_t window = nullptr;
  };
  /// Whether all that the plan's windows need is there. Exchanges the names of hosts.
  [[nodiscard]] Result<void> check_hosts(const std::vector<Membership>& memberships,
                                         const CudaSettings& settings) const;
  /// An all-reduce of one number of the op's input, in place.
  [[nodiscard]] Result<void> launch_kernel(const BoundOp& op, cudaStream_t stream);
  /// Runs an NCCL call under the lock.
  template <class Call>
  [[nodiscard]] Result<void> guarded(const Call& call);
  /// An all_to_all. Requires the lock.
  [[nodiscard]] Result<void> exchange(const BoundOp& op, std::size_t elements, ncclDataType_t type,
                                      cudaStream_t stream);

  const Program* program_ = nullptr;
  int device_ = 0;
  std::vector<ncclComm_t> handles_;  ///< by position in Program::communicators
  std::vector<std::int64_t> members_;
  std::vector<Window> windows_;
  std::vector<char> checked_;  ///< by position: whether check_transport_of() has looked
  /// Held around calls, so that give_up() frees nothing that a call uses, unless the call hangs.
  mutable std::timed_mutex calls_;
  std::atomic<bool> aborted_{false};
  std::mutex aborting_;
  std::jthread abort_;  ///< guarded by aborting_; joinable once it has begun
};

}  // namespace mfsdp::cuda
