#include "gpu_backend/cuda/cuda_backend.hpp"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <thread>
#include <utility>

#include "gpu_backend/cuda/bind_op.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/describe_op.hpp"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"
#include "gpu_backend/cuda/run_errors.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::chrono::microseconds kPoll{20};
constexpr int kBusyPolls = 100;  ///< polls without sleep, before the host thread yields its core
constexpr std::chrono::seconds kStreamsEnd{5};  ///< after a failure

/// A range on the timelines of profilers, around the launch of an op.
class NamedRange {
 public:
  explicit NamedRange(const Op& op) { nvtxRangePushA(op.name.c_str()); }
  ~NamedRange() { nvtxRangePop(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace

CudaBackend::CudaBackend(const Program& program, CudaSettings settings)
    : program_(program),
      settings_(std::move(settings)),
      pools_(program, settings_.rank, settings_.poison),
      faults_(settings_.rank, settings_.fault, settings_.delays),
      timer_({.plan = settings_.timed_plan,
              .from = settings_.timed_from,
              .count = settings_.timed_steps}),
      kernels_(settings_.kernels, settings_.gemm, settings_.attention),
      algorithms_(settings_, program.config.mesh.world_size() == 1, kernels_, notes_) {}

Result<std::unique_ptr<CudaBackend>> CudaBackend::create(const Program& program,
                                                         CudaSettings settings) {
  std::unique_ptr<CudaBackend> made(new CudaBackend(program, std::move(settings)));
  const auto opened = made->open();
  if (opened) return made;
  // Before the parts are destroyed, which may block on operations that no call can free.
  if (made->watcher_ != nullptr) made->watcher_->fail(opened.error());
  return tl::unexpected<Error>(opened.error());
}

CudaBackend::~CudaBackend() {
  faults_.release_stops();
  if (watcher_ != nullptr && watcher_->failed()) let_streams_end();
}

void CudaBackend::stop_watching() {
  watcher_.reset();
  communicators_.stay();
}

// ---- before the first step ---------------------------------------------------------------------

Result<void> CudaBackend::open() {
  MFSDP_LET(device, open_device(settings_.local_rank));
  device_ = std::move(device);
  MFSDP_LET(streams, DeviceStreams::create(program_));
  streams_ = std::move(streams);
  MFSDP_LET(events, EventRing::create(program_));
  events_ = std::move(events);
  MFSDP_LET(clock, DeviceClock::create(streams_.setup()));
  clock_ = std::move(clock);
  MFSDP_TRY(faults_.open());
  start_watcher();
  return communicators_.create(program_, settings_, device_.number, streams_.setup());
}

void CudaBackend::start_watcher() {
  const auto look = [this]() -> Result<void> {
    if (settings_.peers.alive) MFSDP_TRY(settings_.peers.alive());
    return communicators_.asynchronous_error();
  };
  const auto stalled = [this](std::chrono::milliseconds held) {
    return stall(program_, settings_.rank, events_.first_unfinished(), held);
  };
  const auto on_failure = [this](const Error& error) {
    if (settings_.on_failure) settings_.on_failure(error);
    communicators_.give_up();
  };
  watcher_ = std::make_unique<Watcher>(
      WatcherSettings{.device = device_.number,
                      .deadline = settings_.deadline,
                      .look = look,
                      .stalled = stalled,
                      .before_failure = [this] { events_.keep_what_has_run(); },
                      .on_failure = on_failure});
}

Result<std::byte*> CudaBackend::allocate(const Pool& pool) {
  return pools_.allocate(pool, communicators_);
}

/// Copies on the default stream may return before the data has arrived.
Result<void> CudaBackend::upload(std::span<const std::byte> from, std::byte* device) {
  if (from.empty()) return {};
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(
      check(cudaMemcpyAsync(device, from.data(), from.size(), cudaMemcpyDefault, streams_.setup()),
            "cudaMemcpyAsync", "upload"));
  return check(cudaStreamSynchronize(streams_.setup()), "cudaStreamSynchronize", "upload");
}

Result<void> CudaBackend::download(const std::byte* device, std::span<std::byte> to) {
  if (to.empty()) return {};
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(
      check(cudaMemcpyAsync(to.data(), device, to.size(), cudaMemcpyDefault, streams_.setup()),
            "cudaMemcpyAsync", "download"));
  return check(cudaStreamSynchronize(streams_.setup()), "cudaStreamSynchronize", "download");
}

Result<Bytes> CudaBackend::runtime_memory() const {
  MFSDP_LET(taken, taken_memory());
  return taken - pools_.on_device();
}

Result<void> CudaBackend::prepare(const BoundPlan& plan) {
  MFSDP_TRY(watcher_->outcome());
  MFSDP_TRY(algorithms_.before_binding(pools_, streams_.setup()));
  MFSDP_TRY(bind_ops(plan));
  MFSDP_TRY(check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "choosing algorithms"));
  MFSDP_TRY(algorithms_.after_binding());
  MFSDP_TRY(check_transports(plan));
  {
    const Watcher::Call call(*watcher_);
    MFSDP_TRY(communicators_.connect_peers(plan, streams_.setup()));
  }
  MFSDP_TRY(pools_.poison_device());
  MFSDP_TRY(check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  static_cast<void>(cudaGetLastError());  // discards errors of tried algorithms, so that the first
                                          // launch does not report them
  return {};
}

/// Called before the first upload, so the data that these collectives move is not needed. All ranks
/// take part, so no rank may still wait for the algorithms that rank 0 chooses.
Result<void> CudaBackend::check_transports(const BoundPlan& plan) {
  for (const BoundList& list : plan.lists)
    for (const BoundOp& op : list.ops) {
      const auto* collective = std::get_if<Collective>(&op.op->body);
      if (collective == nullptr || is_point_to_point(collective->kind)) continue;
      const Watcher::Call call(*watcher_);
      MFSDP_LET(found, communicators_.check_transport_of(op, streams_.of(op)));
      if (found) notes_.push_back(*found);
    }
  return {};
}

Result<void> CudaBackend::bind_ops(const BoundPlan& plan) {
  const bool timed = timer_.times_plan(*plan.plan);
  if (timed) MFSDP_TRY(timer_.make_room(plan, notes_));
  const OpTargets targets{.program = program_,
                          .rank = settings_.rank,
                          .poison = settings_.poison,
                          .streams = streams_,
                          .communicators = communicators_,
                          .kernels = kernels_};
  const auto added =
      prepared_.add(plan, timed, [&](const BoundOp& op) { return bind_op(op, targets); });
  if (added) return {};
  const Error& error = added.error();
  return fail(fmt::format("rank {}, {}", settings_.rank, error.where), error.what, error.fault);
}

// ---- a step ------------------------------------------------------------------------------------

Result<PreparedPlace> CudaBackend::find(const BoundOp& op, std::int64_t step) const {
  if (const auto place = prepared_.find(op)) return *place;
  return fail(place_of(program_, settings_.rank, op, step), "expected an op of a prepared plan");
}

Result<void> CudaBackend::issue(const BoundOp& op, std::int64_t step) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  MFSDP_LET(place, find(op, step));
  const auto outcome = faults_.is_faulty(op, step)
                           ? faults_.run_faulty(op, communicators_, streams_.of(op))
                           : launch(op, step, place);
  if (!outcome) return failed(op, step, outcome.error());
  return {};
}

Result<void> CudaBackend::launch(const BoundOp& op, std::int64_t step, const PreparedPlace& place) {
  const PreparedOp& prepared = place.op();
  if (!prepared.launch) return {};
  const NamedRange range(*op.op);
  const cudaStream_t stream = streams_.of(op);
  if (const auto busy = faults_.draw_delay(op, step, place)) MFSDP_TRY(delay(*busy, stream));
  if (is_timed(place, step)) return timer_.run(op, step, stream, prepared.launch);
  return prepared.launch();
}

Result<void> CudaBackend::record(const BoundOp& op, std::int64_t step, std::int64_t number) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  MFSDP_LET(place, find(op, step));
  const BoundOp* work = place.op().work;
  if (const auto recorded =
          events_.record(op, work == nullptr ? op : *work, step, number, streams_.of(op));
      !recorded)
    return failed(op, step, recorded.error());
  return {};
}

Result<void> CudaBackend::wait(const BoundOp& op, std::int64_t step, std::int64_t number) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  if (const auto waits = events_.wait(op, number, streams_.of(op)); !waits)
    return failed(op, step, waits.error());
  return {};
}

Result<Nanos> CudaBackend::host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                     std::int64_t number) {
  const Watcher::Call call(*watcher_);
  const Nanos begin = host_now();
  const cudaEvent_t record = events_.at(event, number);
  if (auto ended = await(record); !ended) return failed(op, step, ended.error());
  const Nanos end = host_now();
  if (op.op->kind() == OpKind::host_wait) {
    MFSDP_LET(place, find(op, step));
    if (is_timed(place, step)) timer_.add_host_wait(op, step, begin, end);
  }
  if (!events_.has_time(event)) return end;
  MFSDP_LET(at, clock_->time_of(record));
  MFSDP_TRY(clock_->follow(streams_.of(op)));
  return at;
}

Result<void> CudaBackend::await(cudaEvent_t event) {
  for (int looks = 0;; ++looks) {
    MFSDP_TRY(watcher_->outcome());
    const cudaError_t status = query_event(event);
    // Aborted collectives also end with success: check afterwards whether the run has failed.
    if (status == cudaSuccess) return watcher_->outcome();
    if (status != cudaErrorNotReady) return check(status, "cudaEventQuery");
    if (looks >= kBusyPolls) std::this_thread::sleep_for(kPoll);
  }
}

Result<void> CudaBackend::synchronise() {
  timer_.count_drain();
  if (watcher_->failed()) {
    let_streams_end();
    return watcher_->outcome();
  }
  const Watcher::Call call(*watcher_);
  const auto drain = [&]() -> Result<void> {
    MFSDP_TRY(streams_.record_ends());
    for (const OwnedEvent& end : streams_.ends()) MFSDP_TRY(await(end.get()));
    // The device is idle: align its clock now.
    MFSDP_TRY(clock_->align(streams_.setup()));
    return kernels_.exact_outcome();
  };
  auto drained = drain();
  if (drained) return {};
  watcher_->fail(drained.error());
  let_streams_end();
  return watcher_->outcome();
}

std::vector<OpTiming> CudaBackend::take_timings() {
  auto timings = timer_.take(*clock_);
  if (timings) return std::move(*timings);
  notes_.push_back("times of ops are lost: " + timings.error().message());
  return {};
}

// ---- failures ----------------------------------------------------------------------------------

tl::unexpected<Error> CudaBackend::failed(const BoundOp& op, std::int64_t step,
                                          const Error& reason) {
  // An error that another thread found first is the cause: an aborted collective only results from
  // it.
  if (const auto outcome = watcher_->outcome(); !outcome)
    return tl::unexpected<Error>(outcome.error());
  const Error failure = op_failure(program_, settings_.rank, op, step, reason);
  watcher_->fail(failure);
  return tl::unexpected<Error>(failure);
}

bool CudaBackend::ran_whole(std::size_t event, std::int64_t number) const {
  return !watcher_->failed() || events_.had_run(event, number);
}

/// After a failure: waits for aborted collectives to end, so that memory can be freed. Streams that
/// do not end in time remain until the process ends.
void CudaBackend::let_streams_end() {
  faults_.release_stops();
  streams_.let_end(kStreamsEnd);
}

}  // namespace mfsdp::cuda
