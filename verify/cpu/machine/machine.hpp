// The CPU as a machine for plans: one process, one thread for each rank's host and for each of its
// streams, collectives through shared memory.
//
//   rank 0   host ─ issues ─► compute | all_gather | reduce_scatter | ...     events, pools
//   rank 1   host ─ issues ─► compute | all_gather | reduce_scatter | ...     events, pools
//                                           └── meetings: one for each communicator ──┘
//
// As on a GPU, only the plan's waits order streams.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
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
  /// Starts a thread for every stream of every rank of the mesh. `programs` are those of a job, one
  /// for each class of ranks; they must outlive the machine.
  Machine(std::span<const Program> programs, MachineSettings settings);
  /// All ranks run one program.
  Machine(const Program& program, MachineSettings settings)
      : Machine(std::span(&program, 1), std::move(settings)) {}
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The work of a rank's host, usually: make an Interpreter, fill its buffers, run, finish, read.
  /// An exception counts as its error.
  using Host = std::function<Result<void>(std::int64_t rank, Backend& backend)>;

  /// Runs `host` once for every rank, each on a separate thread, and waits for all. The first error
  /// of any host, kernel or collective ends every rank and is returned. So does an exceeded
  /// deadline: its error lists the waiting ranks and their ops. A failed machine cannot be reused.
  [[nodiscard]] Result<void> run(const Host& host);

  /// The rank's host must call this before and after it waits for hosts of other ranks: such a wait
  /// is not its own work, so the deadline keeps running.
  void host_waits(std::int64_t rank, bool waits);

  /// Bytes of each of the rank's allocations, in the order in which they were made.
  [[nodiscard]] std::vector<Bytes> allocated(std::int64_t rank) const;

 private:
  std::unique_ptr<MachineShare> share_;
  std::vector<std::unique_ptr<CpuRank>> ranks_;
};

}  // namespace mfsdp
