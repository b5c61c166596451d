// The CPU as a machine for plans: one process, one thread for each rank's host and for each of its
// streams, collectives through shared memory.
//
//   rank 0   host ─ issues ─► compute | all_gather | reduce_scatter | ...     events, pools
//   rank 1   host ─ issues ─► compute | all_gather | reduce_scatter | ...     events, pools
//                                           └── meetings: one for each communicator ──┘
//
// Streams run as freely as a GPU's: nothing but the plan's waits orders them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "verify/cpu/machine/machine_settings.hpp"

namespace mfsdp {

class CpuRank;
struct MachineShare;

class Machine {
 public:
  /// Starts a thread for every stream of every rank of the program's mesh. The program outlives it.
  Machine(const Program& program, MachineSettings settings);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// What a rank's host does, usually: make an Interpreter, fill its buffers, run, finish, read.
  /// What it throws counts as its error.
  using Host = std::function<Result<void>(std::int64_t rank, Backend& backend)>;

  /// Runs `host` once for every rank, each on a thread of its own, and waits for all. The first
  /// error of any host, kernel or collective ends every rank and is returned; so does a deadline
  /// passed, with an error that says which ranks wait at which ops. A machine that failed stays so.
  [[nodiscard]] Result<void> run(const Host& host);

  /// To be called by the rank's host, before and after it waits for hosts of other ranks: such a
  /// wait is none of its own work, so that the deadline runs on.
  void host_waits(std::int64_t rank, bool waits);

  /// Bytes of each of the rank's allocations, in the order in which they were made.
  [[nodiscard]] std::vector<Bytes> allocated(std::int64_t rank) const;

 private:
  std::unique_ptr<MachineShare> share_;
  std::vector<std::unique_ptr<CpuRank>> ranks_;
};

}  // namespace mfsdp
