// A rank's NCCL communicators: one for each communicator of the plan, all used from one host
// thread.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/mesh.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"

namespace mfsdp::cuda {

/// NCCL's equivalents of the plan's operand types and reductions. Errors: a reduction that is no
/// sum, a sum of integers, operands that overlap but not in place. Pure.
[[nodiscard]] Result<ncclDataType_t> nccl_type(DType dtype);
[[nodiscard]] Result<void> check_collective(const BoundOp& op, std::int64_t member,
                                            std::int64_t members);

/// Communicator, send or recv, and the peer as a rank of the world.
using PeerLink = std::tuple<std::size_t, CollectiveKind, std::int64_t>;

/// The peers that a plan sends to and receives from on its rank.
[[nodiscard]] std::set<PeerLink> peer_links(const BoundPlan& plan);

class Communicators {
 public:
  /// Has no communicator until create().
  Communicators() = default;
  /// Aborts the communicators if the run has failed; otherwise waits for the other members.
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// For the current device. Waits for all members of each communicator, and runs one small
  /// all-reduce on each, on `stream`. `program` outlives this object.
  [[nodiscard]] Result<void> create(const Program& program, const CudaSettings& settings,
                                    int device, cudaStream_t stream);

  /// If the op's communicator uses registered memory: runs this collective on its memory, and
  /// compares the kernels that NCCL queues with the transport. Called once for each communicator;
  /// all members call it in the same order. Returns a description of the transport, or nothing.
  [[nodiscard]] Result<std::optional<std::string>> check_transport_of(const BoundOp& op,
                                                                      cudaStream_t stream);

  /// Registers memory of ncclMemAlloc with the communicator; all members call it in the same order.
  [[nodiscard]] Result<void> register_window(std::size_t communicator, std::span<std::byte> memory);

  /// Sends a byte to each peer of the plan and receives one from each, so that NCCL connects them.
  /// The peers call it too, for their plans of the same name.
  [[nodiscard]] Result<void> connect_peers(const BoundPlan& plan, cudaStream_t stream);

  /// Queues a collective, a send or a recv; within a group, when the group ends. `count`: the op's, or less for an
  /// injected fault.
  [[nodiscard]] Result<void> launch(const BoundOp& op, std::int64_t count, cudaStream_t stream);
  [[nodiscard]] Result<void> begin_group();
  [[nodiscard]] Result<void> end_group();

  /// This rank's index in the communicator.
  [[nodiscard]] std::int64_t member(std::size_t communicator) const {
    return members_[communicator];
  }

  /// The first error of NCCL outside the host's calls. Called from any thread.
  [[nodiscard]] Result<void> asynchronous_error() const;

  /// Frees the device of operations that wait for other ranks. After that no call works any more.
  /// Called from any thread; does not block.
  void give_up();
  /// Prevents a later give_up(), for a process that ends at once.
  void stay();

 private:
  struct Window {
    ncclComm_t communicator = nullptr;
    ncclWindow_t window = nullptr;
  };
  /// Checks the requirements of registered memory. Exchanges the names of hosts.
  [[nodiscard]] Result<void> check_hosts(const CudaSettings& settings) const;
  /// NCCL's number of the peer of a send or a recv.
  [[nodiscard]] int peer_of(const BoundOp& op) const {
    return static_cast<int>(memberships_[op.communicator].member(op.peer));
  }
  /// An in-place all-reduce of one number of the op's input.
  [[nodiscard]] Result<void> launch_kernel(const BoundOp& op, cudaStream_t stream);
  /// Runs an NCCL call under the lock.
  template <class Call>
  [[nodiscard]] Result<void> guarded(const Call& call);
  /// An all_to_all. Requires the lock.
  [[nodiscard]] Result<void> exchange(const BoundOp& op, std::size_t elements, ncclDataType_t type,
                                      cudaStream_t stream);
  /// A shift. Requires the lock.
  [[nodiscard]] Result<void> pass_on(const BoundOp& op, std::size_t elements, ncclDataType_t type,
                                     cudaStream_t stream);

  [[nodiscard]] Result<void> launch_bytes(std::size_t communicator, const std::set<PeerLink>& links,
                                          std::byte* bytes, cudaStream_t stream) const;

  const Program* program_ = nullptr;
  int device_ = 0;
  std::vector<ncclComm_t> handles_;      ///< by position in Program::communicators
  std::vector<Membership> memberships_;  ///< as handles_
  std::vector<std::int64_t> members_;
  std::vector<Window> windows_;
  std::vector<char> checked_;  ///< by position: whether check_transport_of() has run
  /// Held during calls, so that give_up() frees nothing that a call uses, unless the call hangs.
  mutable std::timed_mutex calls_;
  std::atomic<bool> aborted_{false};
  std::mutex aborting_;
  std::jthread abort_;  ///< guarded by aborting_; joinable once it has begun
};

}  // namespace mfsdp::cuda
