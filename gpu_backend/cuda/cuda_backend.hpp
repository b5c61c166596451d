// One rank of a run on CUDA: a GPU, its streams, pools and communicators, and the plan's ops made
// ready to launch.
//
//   host thread   allocate, prepare, issue ...      watcher   NCCL's errors, other ranks,
//                 waits in steps look at the watcher          calls that hang: aborts
//
// All calls come from the thread that created it, whose device it has set.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/backend.hpp"
#include "gpu_backend/cuda/communicators.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"
#include "gpu_backend/cuda/device.hpp"
#include "gpu_backend/cuda/device_clock.hpp"
#include "gpu_backend/cuda/gemm_cache.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/op_timer.hpp"
#include "gpu_backend/cuda/watcher.hpp"

namespace mfsdp::cuda {

class CudaBackend final : public Backend {
 public:
  /// Opens the device and joins the communicators, as all ranks must at the same time. The program
  /// outlives it. Errors: no such GPU; whatever CUDA and NCCL say.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> create(const Program& program,
                                                                   CudaSettings settings);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override;
  [[nodiscard]] Result<void> upload(std::span<const std::byte> from, std::byte* device) override;
  [[nodiscard]] Result<void> download(const std::byte* device, std::span<std::byte> to) override;
  /// Rank 0 chooses GEMM algorithms, by the cache or by timing, and tells the others.
  [[nodiscard]] Result<void> prepare(const BoundPlan& plan) override;
  [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override;
  [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override;
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                  std::int64_t number) override;
  /// The device's time where a copy of the host's memory stands before the record, else the host's.
  [[nodiscard]] Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                        std::int64_t number) override;
  [[nodiscard]] bool ran_whole(std::size_t event, std::int64_t number) const override;
  [[nodiscard]] Result<void> synchronise() override;
  [[nodiscard]] Nanos now() const override { return host_now(); }
  /// Of kernels, collectives, copies and the host's waits.
  [[nodiscard]] std::vector<OpTiming> take_timings() override;

  [[nodiscard]] const Device& device() const { return device_; }
  /// Bytes of each of the program's pools.
  [[nodiscard]] const std::vector<Bytes>& allocated() const { return allocated_; }
  /// What the device has lost beside its pools: context, libraries, NCCL, and what this backend
  /// takes for itself; and whatever other processes have on it.
  [[nodiscard]] Result<Bytes> runtime_memory() const;
  /// What a user may want to hear: a cache that was not usable, times that are not exact.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct PreparedOp {
    Launch launch;  ///< none where nothing is queued
    /// Of a record: the op before it on its stream, if it takes time.
    const BoundOp* work = nullptr;
  };
  struct PreparedSegment {
    std::span<const BoundOp> bound;
    bool timed = false;
    std::int64_t first = 0;     ///< number of its first op in its plan, repetitions not counted
    std::int64_t plan_ops = 0;  ///< ops of its plan, likewise
    std::vector<PreparedOp> ops;
  };
  struct Place {
    const PreparedSegment* segment = nullptr;
    std::size_t op = 0;
  };
  /// Records of an event take turns, so that what the device hangs in can still be seen: the host
  /// issues up to three microbatches ahead.
  static constexpr std::size_t kTurns = 4;
  static std::size_t turn_of(std::size_t event, std::int64_t number) {
    return kTurns * event + static_cast<std::size_t>(number) % kTurns;
  }
  /// The latest record in a turn of an event; read by the watcher too.
  struct LatestRecord {
    std::atomic<const BoundOp*> work{nullptr};
    std::atomic<std::int64_t> step{0};
    std::atomic<std::int64_t> sequence{0};  ///< from 1; 0: not recorded yet
    std::atomic<std::int64_t> number{0};    ///< of this event alone, likewise
  };

  CudaBackend(const Program& program, CudaSettings settings);
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> make_streams();
  [[nodiscard]] Result<void> make_events();
  void start_watcher();
  void look_what_has_run();

  // prepare_plan.cpp
  [[nodiscard]] Result<void> begin_choosing();
  [[nodiscard]] Result<void> learn_algorithms();
  [[nodiscard]] Result<void> tell_algorithms();
  [[nodiscard]] Result<void> keep_algorithms(const GemmMachine& machine,
                                             std::span<const GemmAlgorithm> chosen);
  [[nodiscard]] Result<void> prepare_segments(const BoundPlan& plan);
  [[nodiscard]] Result<void> make_room_for_times(std::int64_t ops);
  [[nodiscard]] Result<PreparedOp> prepare_op(const BoundOp& op);
  [[nodiscard]] Result<Launch> bind_collective(const BoundOp& op);
  [[nodiscard]] Result<Launch> bind_copy(const BoundOp& op);
  [[nodiscard]] Result<Launch> bind_release(const BoundOp& op);

  [[nodiscard]] Result<Place> find(const BoundOp& op, std::int64_t step) const;
  [[nodiscard]] bool is_timed(const Place& place, std::int64_t step) const;
  [[nodiscard]] Result<void> launch(const BoundOp& op, std::int64_t step, const Place& place);
  [[nodiscard]] Result<void> put_delay(const BoundOp& op, std::int64_t step, const Place& place);
  [[nodiscard]] bool is_faulty(const BoundOp& op, std::int64_t step) const;
  [[nodiscard]] Result<void> run_faulty(const BoundOp& op);
  [[nodiscard]] Result<void> await(cudaEvent_t event);
  [[nodiscard]] tl::unexpected<Error> failed(const BoundOp& op, std::int64_t step,
                                             const Error& error);
  [[nodiscard]] Error stalled(std::chrono::milliseconds held) const;
  void let_streams_end();

  [[nodiscard]] cudaStream_t stream_of(const BoundOp& op) const {
    return streams_[op.stream].get();
  }
  [[nodiscard]] bool alone() const { return program_.config.mesh.world_size() == 1; }

  const Program& program_;
  CudaSettings settings_;
  Device device_;
  std::vector<std::string> notes_;
  // Declared in the order in which it may not go: what stands below uses what stands above.
  std::vector<OwnedStream> streams_;  ///< by position in Program::streams
  OwnedStream setup_;                 ///< what is done outside of plans
  std::vector<OwnedEvent> events_;    ///< by turn_of(position in Program::events, record)
  std::vector<bool> has_time_;        ///< by event
  std::vector<OwnedEvent> drained_;   ///< by stream
  std::vector<DeviceMemory> device_memory_;
  std::vector<PinnedMemory> pinned_memory_;
  std::vector<CommunicationMemory> communication_memory_;
  std::vector<std::span<std::byte>> device_pools_;
  std::vector<Bytes> allocated_;
  PinnedMemory released_;  ///< a word that ends injected stops
  Communicators communicators_;
  std::optional<DeviceClock> clock_;
  OpTimer timer_;
  KernelBinder binder_;
  bool first_prepared_ = false;
  std::vector<GemmAlgorithm> cached_algorithms_;
  std::vector<PreparedSegment> prepared_;
  std::vector<LatestRecord> latest_;     ///< as events_
  std::vector<std::int64_t> ran_whole_;  ///< as events_, at a failure: number of the record, or 0
  std::int64_t sequence_ = 0;            ///< of records
  std::int64_t drains_ = 0;
  std::uint64_t delays_drawn_ = 0;
  std::unique_ptr<Watcher> watcher_;  ///< last: its thread uses the rest
};

}  // namespace mfsdp::cuda
