// One rank of a run on CUDA: its parts, in the order in which a step uses them.
//
//   host thread   allocate, prepare, issue ...      watcher   NCCL's errors, other ranks,
//                 waits by polling, asks watcher          calls that hang: aborts
//
// The thread that created it makes all calls; create() has set that thread's device. Each part is
// described in its header, and README.md shows how the parts fit together.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/runtime/backend.hpp"
#include "gpu_backend/cuda/algorithm_choice.hpp"
#include "gpu_backend/cuda/communicators.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"
#include "gpu_backend/cuda/device.hpp"
#include "gpu_backend/cuda/device_clock.hpp"
#include "gpu_backend/cuda/device_streams.hpp"
#include "gpu_backend/cuda/event_ring.hpp"
#include "gpu_backend/cuda/fault_injection.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/op_timer.hpp"
#include "gpu_backend/cuda/pool_memory.hpp"
#include "gpu_backend/cuda/prepared_plans.hpp"
#include "gpu_backend/cuda/watcher.hpp"

namespace mfsdp::cuda {

class CudaBackend final : public Backend {
 public:
  /// Opens the device and joins the communicators; all ranks must do this at the same time. The
  /// program outlives it. Errors: no such GPU; errors of CUDA and NCCL.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> create(const Program& program,
                                                                   CudaSettings settings);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override;
  [[nodiscard]] Result<void> upload(std::span<const std::byte> from, std::byte* device) override;
  [[nodiscard]] Result<void> download(const std::byte* device, std::span<std::byte> to) override;
  [[nodiscard]] Result<void> prepare(const BoundPlan& plan) override;
  [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override;
  [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override;
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                  std::int64_t number) override;
  /// The device's time if a copy between host and device precedes the record, else the host's.
  [[nodiscard]] Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                        std::int64_t number) override;
  [[nodiscard]] bool ran_whole(std::size_t event, std::int64_t number) const override;
  [[nodiscard]] Result<void> synchronise() override;
  [[nodiscard]] Nanos now() const override { return host_now(); }
  /// Times of kernels, collectives, copies and the host's waits.
  [[nodiscard]] std::vector<OpTiming> take_timings() override;

  /// Ends the thread that watches other ranks, and keeps the communicators. After it, only the end
  /// of the process may follow.
  void stop_watching();

  [[nodiscard]] const Device& device() const { return device_; }
  /// Bytes of each of the program's pools.
  [[nodiscard]] const std::vector<Bytes>& allocated() const { return pools_.allocated(); }
  /// Device memory in use outside the pools: context, libraries, NCCL, and this backend's own. It
  /// includes memory of other processes.
  [[nodiscard]] Result<Bytes> runtime_memory() const;
  /// Notes for the user: a cache that was not usable, times that are not exact.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  CudaBackend(const Program& program, CudaSettings settings);
  [[nodiscard]] Result<void> open();
  void start_watcher();
  [[nodiscard]] Result<void> bind_ops(const BoundPlan& plan);
  [[nodiscard]] Result<void> check_transports(const BoundPlan& plan);

  [[nodiscard]] Result<PreparedPlace> find(const BoundOp& op, std::int64_t step) const;
  [[nodiscard]] bool is_timed(const PreparedPlace& place, std::int64_t step) const {
    return place.list->timed && timer_.times_step(step);
  }
  [[nodiscard]] Result<void> launch(const BoundOp& op, std::int64_t step,
                                    const PreparedPlace& place);
  /// Returns when the event's record has run, or when the run has failed.
  [[nodiscard]] Result<void> await(cudaEvent_t event);
  [[nodiscard]] tl::unexpected<Error> failed(const BoundOp& op, std::int64_t step,
                                             const Error& reason);
  void let_streams_end();

  const Program& program_;
  const CudaSettings settings_;
  Device device_;
  std::vector<std::string> notes_;
  // Members below use those above and are destroyed first: the watcher's thread before everything
  // that it watches, communicators before the pools that they map into other ranks. A stopped
  // stream reads a word of faults_ until the communicators are destroyed.
  DeviceStreams streams_;
  EventRing events_;
  PoolMemory pools_;
  FaultInjection faults_;
  Communicators communicators_;
  std::optional<DeviceClock> clock_;
  OpTimer timer_;
  KernelBinder kernels_;
  AlgorithmChoice algorithms_;
  PreparedPlans prepared_;
  std::unique_ptr<Watcher> watcher_;  ///< last: its thread uses the members above
};

}  // namespace mfsdp::cuda
