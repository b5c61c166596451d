#include "gpu_backend/cuda/cuda_backend.hpp"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/describe_op.hpp"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::chrono::microseconds kPoll{20};
constexpr int kBusyPolls = 100;  ///< looks without sleep, before the host gives its core away
constexpr std::chrono::seconds kStreamsEnd{5};  ///< after a failure

/// A range on every profiler's timeline, around the launch of an op.
class NamedRange {
 public:
  explicit NamedRange(const Op& op) { nvtxRangePushA(op.name.c_str()); }
  ~NamedRange() { nvtxRangePop(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

/// Bits that look random: SplitMix64's finalizer (Steele, Lea, Flood 2014).
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t bits = seed + number * 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

/// Not ready is no error, and must not be what the next launch is asked for.
cudaError_t query(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return status;
}

}  // namespace

CudaBackend::CudaBackend(const Program& program, CudaSettings settings)
    : program_(program),
      settings_(std::move(settings)),
      binder_(settings_.kernels, settings_.gemm) {}

Result<std::unique_ptr<CudaBackend>> CudaBackend::create(const Program& program,
                                                         CudaSettings settings) {
  std::unique_ptr<CudaBackend> made(new CudaBackend(program, std::move(settings)));
  MFSDP_TRY(made->open());
  return made;
}

CudaBackend::~CudaBackend() {
  if (released_ != nullptr) *reinterpret_cast<volatile std::uint32_t*>(released_.get()) = 1;
  if (watcher_ != nullptr && watcher_->failed()) let_streams_end();
}

// ---- what there is before the first step -------------------------------------------------------

Result<void> CudaBackend::open() {
  MFSDP_LET(device, open_device(settings_.local_rank));
  device_ = std::move(device);
  MFSDP_TRY(make_streams());
  MFSDP_TRY(make_events());
  MFSDP_LET(clock, DeviceClock::create(setup_.get()));
  clock_ = std::move(clock);
  if (settings_.fault) {
    MFSDP_LET(word, allocate_pinned(sizeof(std::uint32_t), "the end of an injected stop"));
    std::memset(word.get(), 0, sizeof(std::uint32_t));
    released_ = std::move(word);
  }
  start_watcher();
  return communicators_.create(program_, settings_, device_.number, setup_.get());
}

/// Collectives wait for other ranks: where both could run, theirs come first.
Result<void> CudaBackend::make_streams() {
  int least = 0;
  int greatest = 0;
  MFSDP_TRY(check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                  "cudaDeviceGetStreamPriorityRange"));
  for (const Stream& stream : program_.streams) {
    const bool communicates = stream.role == StreamRole::all_gather ||
                              stream.role == StreamRole::reduce_scatter ||
                              stream.role == StreamRole::outer;
    MFSDP_LET(made, make_stream(communicates ? greatest : least));
    streams_.push_back(std::move(made));
    MFSDP_LET(drained, make_event(false));
    drained_.push_back(std::move(drained));
  }
  MFSDP_LET(setup, make_stream(least));
  setup_ = std::move(setup);
  return {};
}

/// The host asks for the time of records behind its copies alone.
Result<void> CudaBackend::make_events() {
  const IdIndex<EventId> index(program_.events);
  const IdIndex<StreamId> streams(program_.streams);
  has_time_.resize(program_.events.size(), false);
  for (const Plan& plan : program_.plans)
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops)
        if (const auto* record = std::get_if<Record>(&op.body)) {
          const auto stream = streams.find(op.stream);
          const auto event = index.find(record->event);
          if (!stream || !event) continue;  // PlanBinder tells
          const StreamRole role = program_.streams[*stream].role;
          if (role == StreamRole::h2d || role == StreamRole::d2h) has_time_[*event] = true;
        }
  for (const bool has_time : has_time_)
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      MFSDP_LET(event, make_event(has_time));
      events_.push_back(std::move(event));
    }
  latest_ = std::vector<LatestRecord>(events_.size());
  ran_whole_.resize(events_.size(), 0);
  return {};
}

void CudaBackend::start_watcher() {
  const auto look = [this]() -> Result<void> {
    if (settings_.peers.alive) MFSDP_TRY(settings_.peers.alive());
    return communicators_.asynchronous_error();
  };
  const auto on_failure = [this](const Error& error) {
    if (settings_.on_failure) settings_.on_failure(error);
    communicators_.give_up();
  };
  watcher_ = std::make_unique<Watcher>(
      WatcherSettings{.device = device_.number,
                      .deadline = settings_.deadline,
                      .look = look,
                      .stalled = [this](auto held) { return stalled(held); },
                      .before_failure = [this] { look_what_has_run(); },
                      .on_failure = on_failure});
}

Result<std::byte*> CudaBackend::allocate(const Pool& pool) {
  const auto bytes = static_cast<std::size_t>(pool.height.value);
  const std::string what = fmt::format("rank {}, pool {}", settings_.rank, pool.name);
  allocated_.push_back(pool.height);
  if (bytes == 0) return nullptr;
  std::byte* base = nullptr;
  if (pool.space == MemorySpace::host) {
    MFSDP_LET(memory, allocate_pinned(bytes, what));
    base = memory.get();
    if (settings_.poison) std::memset(base, 0xff, bytes);
    pinned_memory_.push_back(std::move(memory));
  } else {
    const auto window = pool.registered
                            ? IdIndex<CommunicatorId>(program_.communicators).find(*pool.registered)
                            : std::nullopt;
    if (window) {
      MFSDP_LET(memory, allocate_communication(bytes, what));
      base = memory.get();
      communication_memory_.push_back(std::move(memory));
      MFSDP_TRY(communicators_.register_window(*window, {base, bytes}));
    } else {
      MFSDP_LET(memory, allocate_device(bytes, what));
      base = memory.get();
      device_memory_.push_back(std::move(memory));
    }
    device_pools_.emplace_back(base, bytes);
  }
  if (reinterpret_cast<std::uintptr_t>(base) % static_cast<std::uintptr_t>(pool.alignment) != 0)
    return fail(what,
                fmt::format("CUDA's memory does not begin on a multiple of {}", pool.alignment),
                Fault::environment);
  return base;
}

/// The default stream's copies may return before they have arrived.
Result<void> CudaBackend::upload(std::span<const std::byte> from, std::byte* device) {
  if (from.empty()) return {};
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(
      check(cudaMemcpyAsync(device, from.data(), from.size(), cudaMemcpyDefault, setup_.get()),
            "cudaMemcpyAsync", "upload"));
  return check(cudaStreamSynchronize(setup_.get()), "cudaStreamSynchronize", "upload");
}

Result<void> CudaBackend::download(const std::byte* device, std::span<std::byte> to) {
  if (to.empty()) return {};
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(check(cudaMemcpyAsync(to.data(), device, to.size(), cudaMemcpyDefault, setup_.get()),
                  "cudaMemcpyAsync", "download"));
  return check(cudaStreamSynchronize(setup_.get()), "cudaStreamSynchronize", "download");
}

Result<Bytes> CudaBackend::runtime_memory() const {
  MFSDP_LET(taken, taken_memory());
  for (const auto& pool : device_pools_) taken -= Bytes(static_cast<std::int64_t>(pool.size()));
  return taken;
}

// ---- a step ------------------------------------------------------------------------------------

Result<CudaBackend::Place> CudaBackend::find(const BoundOp& op, std::int64_t step) const {
  const std::less<> before;
  for (const PreparedSegment& segment : prepared_) {
    const BoundOp* first = segment.bound.data();
    if (!before(&op, first) && before(&op, first + segment.bound.size()))
      return Place{.segment = &segment, .op = static_cast<std::size_t>(&op - first)};
  }
  return fail(place_of(program_, settings_.rank, op, step), "expected an op of a prepared plan");
}

bool CudaBackend::is_timed(const Place& place, std::int64_t step) const {
  return place.segment->timed && settings_.timed_from && step >= *settings_.timed_from;
}

Result<void> CudaBackend::issue(const BoundOp& op, std::int64_t step) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  MFSDP_LET(place, find(op, step));
  const auto outcome = is_faulty(op, step) ? run_faulty(op) : launch(op, step, place);
  if (!outcome) return failed(op, step, outcome.error());
  return {};
}

Result<void> CudaBackend::launch(const BoundOp& op, std::int64_t step, const Place& place) {
  const PreparedOp& prepared = place.segment->ops[place.op];
  if (!prepared.launch) return {};
  const NamedRange range(*op.op);
  MFSDP_TRY(put_delay(op, step, place));
  const bool timed = is_timed(place, step);
  const OpKind kind = op.op->kind();
  if (timed && OpTimer::times(*op.op)) {
    MFSDP_TRY(timer_.begin(op, step, drains_, stream_of(op)));
    MFSDP_TRY(prepared.launch());
    return timer_.end(stream_of(op));
  }
  if (timed && kind == OpKind::group_begin) timer_.begin_group();
  MFSDP_TRY(prepared.launch());
  return timed && kind == OpKind::group_end ? timer_.end_group(stream_of(op)) : Result<void>();
}

Result<void> CudaBackend::record(const BoundOp& op, std::int64_t step, std::int64_t number) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  MFSDP_LET(place, find(op, step));
  if (auto recorded =
          check(cudaEventRecord(events_[turn_of(op.event, number)].get(), stream_of(op)),
                "cudaEventRecord");
      !recorded)
    return failed(op, step, recorded.error());
  const BoundOp* work = place.segment->ops[place.op].work;
  LatestRecord& latest = latest_[turn_of(op.event, number)];
  latest.work = work == nullptr ? &op : work;
  latest.step = step;
  latest.sequence = ++sequence_;
  latest.number = number;
  return {};
}

Result<void> CudaBackend::wait(const BoundOp& op, std::int64_t step, std::int64_t number) {
  const Watcher::Call call(*watcher_);
  MFSDP_TRY(watcher_->outcome());
  if (auto waits =
          check(cudaStreamWaitEvent(stream_of(op), events_[turn_of(op.event, number)].get(), 0),
                "cudaStreamWaitEvent");
      !waits)
    return failed(op, step, waits.error());
  return {};
}

Result<Nanos> CudaBackend::host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                     std::int64_t number) {
  const Watcher::Call call(*watcher_);
  const Nanos begin = host_now();
  const cudaEvent_t record = events_[turn_of(event, number)].get();
  if (auto ended = await(record); !ended) return failed(op, step, ended.error());
  const Nanos end = host_now();
  if (op.op->kind() == OpKind::host_wait) {
    MFSDP_LET(place, find(op, step));
    if (is_timed(place, step)) timer_.add_host_wait(op, step, drains_, begin, end);
  }
  if (!has_time_[event]) return end;
  MFSDP_LET(at, clock_->time_of(record));
  MFSDP_TRY(clock_->follow(stream_of(op)));
  return at;
}

Result<void> CudaBackend::await(cudaEvent_t event) {
  for (int looks = 0;; ++looks) {
    MFSDP_TRY(watcher_->outcome());
    const cudaError_t status = query(event);
    // Aborted collectives end too: whether the run has failed is asked behind them.
    if (status == cudaSuccess) return watcher_->outcome();
    if (status != cudaErrorNotReady) return check(status, "cudaEventQuery");
    if (looks >= kBusyPolls) std::this_thread::sleep_for(kPoll);
  }
}

Result<void> CudaBackend::synchronise() {
  ++drains_;
  if (watcher_->failed()) {
    let_streams_end();
    return watcher_->outcome();
  }
  const Watcher::Call call(*watcher_);
  const auto drain = [&]() -> Result<void> {
    for (std::size_t s = 0; s < streams_.size(); ++s)
      MFSDP_TRY(check(cudaEventRecord(drained_[s].get(), streams_[s].get()), "cudaEventRecord"));
    for (const OwnedEvent& event : drained_) MFSDP_TRY(await(event.get()));
    // The device is idle: the time to set its clock.
    MFSDP_TRY(clock_->align(setup_.get()));
    return binder_.exact_outcome();
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

// ---- what goes wrong ---------------------------------------------------------------------------

tl::unexpected<Error> CudaBackend::failed(const BoundOp& op, std::int64_t step,
                                          const Error& error) {
  // What another found first is the reason: an aborted collective is only what came of it.
  if (const auto outcome = watcher_->outcome(); !outcome)
    return tl::unexpected<Error>(outcome.error());
  const Error placed{.where = place_of(program_, settings_.rank, op, step),
                     .what = error.message() + ": " + shape_of(program_, op),
                     .fault = Fault::environment};
  watcher_->fail(placed);
  return tl::unexpected<Error>(placed);
}

/// What the device is at: the first record, in the order of issue, that has not run.
Error CudaBackend::stalled(std::chrono::milliseconds held) const {
  const LatestRecord* first = nullptr;
  for (std::size_t e = 0; e < events_.size(); ++e) {
    const std::int64_t sequence = latest_[e].sequence;
    if (sequence == 0 || query(events_[e].get()) != cudaErrorNotReady) continue;
    if (first == nullptr || sequence < first->sequence) first = &latest_[e];
  }
  const double seconds = static_cast<double>(held.count()) / 1000;
  if (first == nullptr)
    return {.where = fmt::format("rank {}", settings_.rank),
            .what = fmt::format("the host has been held in one call for {:.1f} s", seconds),
            .fault = Fault::environment};
  const BoundOp& work = *first->work;
  return {.where = place_of(program_, settings_.rank, work, first->step),
          .what = fmt::format("has not ended while the host waited for {:.1f} s: {}", seconds,
                              shape_of(program_, work)),
          .fault = Fault::environment};
}

/// The number first: a record that comes between leaves a smaller one, which has run too.
void CudaBackend::look_what_has_run() {
  for (std::size_t e = 0; e < events_.size(); ++e) {
    const std::int64_t number = latest_[e].number;
    if (number > 0 && query(events_[e].get()) == cudaSuccess) ran_whole_[e] = number;
  }
}

bool CudaBackend::ran_whole(std::size_t event, std::int64_t number) const {
  return !watcher_->failed() || ran_whole_[turn_of(event, number)] >= number;
}

/// After a failure: aborted collectives end, so that memory may go. What does not end in time is
/// left to whoever ends the process.
void CudaBackend::let_streams_end() {
  if (released_ != nullptr) *reinterpret_cast<volatile std::uint32_t*>(released_.get()) = 1;
  const auto deadline = std::chrono::steady_clock::now() + kStreamsEnd;
  for (const OwnedStream& stream : streams_)
    while (cudaStreamQuery(stream.get()) == cudaErrorNotReady &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  static_cast<void>(cudaGetLastError());
}

/// Delays that a test put in.
Result<void> CudaBackend::put_delay(const BoundOp& op, std::int64_t step, const Place& place) {
  const Delays& delays = settings_.delays;
  const PreparedSegment& segment = *place.segment;
  const auto number = segment.first + static_cast<std::int64_t>(place.op);
  if (delays.op == op.op->id || (delays.each_in_turn && number == step % segment.plan_ops))
    return delay(delays.duration, stream_of(op));
  if (!delays.seed) return {};
  const std::uint64_t draw =
      random_bits(*delays.seed + static_cast<std::uint64_t>(settings_.rank), ++delays_drawn_);
  if (draw % 4 != 0) return {};
  const auto longest = static_cast<std::uint64_t>(delays.duration.value);
  return delay(Nanos(static_cast<std::int64_t>(draw / 4 % longest)), stream_of(op));
}

bool CudaBackend::is_faulty(const BoundOp& op, std::int64_t step) const {
  const auto& fault = settings_.fault;
  return fault && fault->rank == settings_.rank && fault->op == op.op->id && fault->step == step;
}

/// In place of the op.
Result<void> CudaBackend::run_faulty(const BoundOp& op) {
  switch (settings_.fault->kind) {
    case InjectedFault::Kind::kill: std::raise(SIGKILL); break;
    case InjectedFault::Kind::stop:
      return stop_until(reinterpret_cast<const volatile std::uint32_t*>(released_.get()),
                        stream_of(op));
    case InjectedFault::Kind::miscount:
      if (const auto* collective = std::get_if<Collective>(&op.op->body))
        return communicators_.launch(op, collective->count - 1, stream_of(op));
      break;
    case InjectedFault::Kind::fail: break;
  }
  return fail("", "fails, as it was told to", Fault::environment);
}

}  // namespace mfsdp::cuda
