#include "verify/cpu/machine/rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <utility>

#include "verify/cpu/machine/announce.hpp"
#include "verify/cpu/machine/view_runs.hpp"

namespace mfsdp {
namespace {

/// Whether it is a send or a recv.
bool is_transfer(const Op& op) {
  const auto* collective = std::get_if<Collective>(&op.body);
  return collective != nullptr && is_point_to_point(collective->kind);
}

constexpr int kPoison = 0xff;  ///< as a byte of every element: a NaN in bf16, fp16 and fp32

std::size_t unsigned_of(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t bytes_of(const OperandView& view) {
  return mfsdp::bytes_of(product_of(view.shape), view.dtype).value;
}

Result<void> copy(const OperandView& from, const OperandView& to) {
  if (!is_contiguous(from) || !is_contiguous(to) || bytes_of(from) != bytes_of(to))
    return fail("", "expected input and output of a copy to be contiguous and of equal bytes",
                Fault::environment);
  if (from.data != to.data) std::memcpy(to.data, from.data, unsigned_of(bytes_of(from)));
  return {};
}

}  // namespace

CpuRank::CpuRank(MachineShare& share, const Program& program, std::int64_t rank)
    : share_(share),
      program_(program),
      rank_(rank),
      host_waits_(share.run),
      tickets_(program.communicators.size(), 0) {
  for (const std::size_t event : event_list(program)) {
    events_.push_back(std::make_unique<Event>(program.events[event].name));
    share.run.add(events_.back()->gate);
  }
  for (std::size_t i = 0; i < program.streams.size(); ++i) {
    streams_.push_back(
        std::make_unique<Stream>(Chaos(share.settings.chaos, rank, i, program.streams.size())));
    share.run.add(streams_.back()->gate);
  }
  make_room_for_timings();
  try {
    for (const auto& stream : streams_)
      stream->thread = std::jthread([this, &own = *stream] { serve(own); });
  } catch (...) {
    end_streams();
    throw;
  }
}

/// Avoids allocations within a step: old timings are removed before a step's first op is added.
void CpuRank::make_room_for_timings() {
  constexpr Int128 kMost = 1 << 16;  ///< per stream; more space is allocated when needed
  const Plan* plan = program_.find_plan(share_.settings.timed_plan);
  if (plan == nullptr || share_.settings.timed_steps == 0) return;
  for (std::size_t l = 0; l < count_op_lists(*plan); ++l)
    timed_ops_.emplace_back(op_list(*plan, l));
  const auto make_room = [&](std::vector<Timed>& timings, auto belongs) {
    Int128 ops = 0;
    for (std::size_t s = 0; s < plan->segments.size(); ++s)
      for_each_op_of_run(*plan, s, [&](const Op& op) {
        if (belongs(op)) ops += plan->segments[s].repeat;
      });
    timings.reserve(static_cast<std::size_t>(std::min(ops * share_.settings.timed_steps, kMost)));
  };
  const auto on_host = [](const Op& op) { return op.kind() == OpKind::host_wait; };
  make_room(host_timings_, on_host);
  for (std::size_t s = 0; s < streams_.size(); ++s)
    make_room(streams_[s]->timings,
              [&](const Op& op) { return op.stream == program_.streams[s].id && !on_host(op); });
}

void CpuRank::end_streams() {
  for (const auto& stream : streams_) {
    {
      const std::scoped_lock lock(stream->gate.mutex);
      stream->closed = true;
    }
    stream->gate.changed.notify_all();
  }
  streams_.clear();  // joins
}

CpuRank::~CpuRank() {
  end_streams();
  for (const Allocation& allocation : allocations_)
    ::operator delete(allocation.data, std::align_val_t(unsigned_of(allocation.alignment)));
}

Result<std::byte*> CpuRank::allocate(const Pool& pool) {
  const std::size_t bytes = unsigned_of(pool.height.value);
  void* data = ::operator new(bytes, std::align_val_t(unsigned_of(pool.alignment)), std::nothrow);
  if (data == nullptr)
    return fail(fmt::format("rank {}, pool {}", rank_, pool.name),
                fmt::format("there is no memory for its {} bytes", bytes), Fault::environment);
  if (share_.settings.poison) std::memset(data, kPoison, bytes);
  allocations_.push_back(
      {.data = static_cast<std::byte*>(data), .size = pool.height, .alignment = pool.alignment});
  return allocations_.back().data;
}

Result<void> CpuRank::upload(std::span<const std::byte> from, std::byte* device) {
  std::ranges::copy(from, device);
  return {};
}

Result<void> CpuRank::download(const std::byte* device, std::span<std::byte> to) {
  std::copy_n(device, to.size(), to.data());
  return {};
}

std::vector<Bytes> CpuRank::allocated() const {
  std::vector<Bytes> sizes;
  for (const Allocation& allocation : allocations_) sizes.push_back(allocation.size);
  return sizes;
}

// ---- the host's side -------------------------------------------------------------------------

/// The host must call this once for every op. It reads the clock only at a step's begin and after
/// each of its waits, because reading takes as long as a small kernel.
std::optional<CpuRank::Issue> CpuRank::issue_of(const BoundOp& op, std::int64_t step) {
  const std::less<> before;
  for (const std::span<const Op> segment : timed_ops_)
    if (!before(op.op, segment.data()) && before(op.op, segment.data() + segment.size())) {
      if (std::exchange(looked_in_, step) != step) looked_at_ = now();
      return Issue{.number = ++issued_, .drains = drains_, .at = looked_at_};
    }
  return std::nullopt;
}

Result<void> CpuRank::push(std::size_t stream, Item item) {
  if (item.op != nullptr) {
    MFSDP_TRY(share_.run.outcome());
    share_.run.count_issued();
    item.timed = issue_of(*item.op, item.step);
  }
  Stream& to = *streams_[stream];
  {
    const std::scoped_lock lock(to.gate.mutex);
    to.queue.push_back(item);
  }
  to.gate.changed.notify_all();
  return {};
}

Result<void> CpuRank::issue(const BoundOp& op, std::int64_t step) {
  // The order in which the host issues collectives is their order on the communicator.
  std::int64_t number = 0;
  if (const auto* collective = std::get_if<Collective>(&op.op->body))
    number = is_transfer(*op.op) ? transfers_issued_[{op.communicator, op.peer, collective->kind}]++
                                 : tickets_[op.communicator]++;
  return push(op.stream, {.op = &op, .step = step, .number = number});
}

Result<void> CpuRank::record(const BoundOp& op, std::int64_t step, std::int64_t number) {
  return push(op.stream, {.op = &op, .step = step, .number = number});
}

Result<void> CpuRank::wait(const BoundOp& op, std::int64_t step, std::int64_t number) {
  if (share_.settings.faults.dropped_wait == op.op->id) return {};
  return push(op.stream, {.op = &op, .step = step, .number = number});
}

Result<Nanos> CpuRank::host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                 std::int64_t number) {
  const HostPause pause(host_waits_);
  // The host also waits for the end of copies, which are no launches.
  const auto issue = op.op->kind() == OpKind::host_wait ? issue_of(op, step) : std::nullopt;
  const bool waits = share_.settings.faults.dropped_wait != op.op->id;
  const Nanos recorded = waits ? await_event(event, number) : now();
  looked_at_ = now();
  MFSDP_TRY(share_.run.outcome());
  if (issue) {
    OpTiming timing;
    timing.begin = issue->at;
    timing.end = looked_at_;
    keep(host_timings_, {.op = &op, .step = step, .number = number, .timed = issue}, timing);
  }
  return recorded;
}

Nanos CpuRank::now() const { return since_start(std::chrono::steady_clock::now()); }

Nanos CpuRank::since_start(std::chrono::steady_clock::time_point at) const {
  return Nanos(std::chrono::nanoseconds(at - share_.start).count());
}

Result<void> CpuRank::synchronise() {
  ++drains_;
  looked_in_.reset();
  for (std::size_t s = 0; s < streams_.size(); ++s)
    MFSDP_TRY(push(s, {.op = nullptr, .step = 0, .number = drains_}));
  const HostPause pause(host_waits_);
  for (const auto& stream : streams_) {
    std::unique_lock lock(stream->gate.mutex);
    stream->gate.changed.wait(lock, [&] { return stream->drained == drains_; });
  }
  const std::scoped_lock no_report(share_.reporting);
  return share_.run.outcome();
}

std::vector<OpTiming> CpuRank::take_timings() {
  std::vector<Timed> all = std::exchange(host_timings_, {});
  for (std::size_t s = 0; s < streams_.size(); ++s)
    for (Timed& timed : std::exchange(streams_[s]->timings, {})) {
      timed.timing.stream = s;
      all.push_back(timed);
    }
  std::ranges::sort(all, {}, &Timed::issue);
  std::vector<OpTiming> timings;
  for (const Timed& timed : all) timings.push_back(timed.timing);
  return timings;
}

// ---- the streams' side -----------------------------------------------------------------------

/// Takes all issued ops at once, so that the host's lock orders a stream's work after the host's as
/// rarely as possible.
void CpuRank::serve(Stream& stream) {
  std::vector<Item> taken;
  while (true) {
    taken.clear();
    {
      std::unique_lock lock(stream.gate.mutex);
      stream.gate.changed.wait(lock, [&] { return stream.closed || !stream.queue.empty(); });
      if (stream.queue.empty()) return;
      std::swap(taken, stream.queue);
    }
    for (const Item& item : taken) run_item(stream, item);
  }
}

void CpuRank::set_current(Stream& stream, const Item& item) {
  const std::scoped_lock lock(stream.current_mutex);
  stream.current = item;
}

/// After a failure, streams continue with ops that bring finished results to the host, up to the
/// first op that they cannot run. So the last ended step is reported, whichever thread is late.
bool CpuRank::ends_after_failure(const Item& item) const {
  switch (item.op->op->kind()) {
    case OpKind::copy:
    case OpKind::record: return true;
    case OpKind::wait: {
      Event& awaited = *events_[item.op->event];
      const std::scoped_lock lock(awaited.gate.mutex);
      return awaited.has_run(item.number);
    }
    default: return false;
  }
}

void CpuRank::run_item(Stream& stream, const Item& item) {
  if (item.op == nullptr) {
    {
      const std::scoped_lock lock(stream.gate.mutex);
      stream.drained = item.number;
    }
    stream.gate.changed.notify_all();
    return;
  }
  if (share_.run.failed() && (stream.halted || !ends_after_failure(item))) {
    stream.halted = true;
    return;
  }
  set_current(stream, item);
  auto outcome = run_op(stream, item);
  set_current(stream, {});
  // A wait that the failure ended has not seen its event.
  if (share_.run.failed()) stream.halted = stream.halted || !ends_after_failure(item);
  share_.run.count_ended();
  if (outcome) return;
  share_.run.fail({.where = place(*item.op, item.step),
                   .what = outcome.error().message(),
                   .fault = outcome.error().fault});
}

Result<void> CpuRank::run_op(Stream& stream, const Item& item) {
  stream.chaos.delay();
  const auto& fault = share_.settings.faults.fault;
  if (fault && fault->rank == rank_ && fault->op == item.op->op->id && fault->step == item.step)
    return run_faulty(stream, item, fault->kind);
  OpTiming timing;
  if (!item.timed || is_transfer(*item.op->op)) return run_body(stream, item, timing);
  const OpKind kind = item.op->op->kind();
  const bool works = kind == OpKind::kernel || kind == OpKind::copy;
  timing.begin = works ? now() : std::max(stream.ended, item.timed->at);
  auto outcome = run_body(stream, item, timing);
  if (works || kind == OpKind::wait) timing.end = now();
  timing.end = std::max(timing.begin, timing.end);
  stream.ended = std::max(stream.ended, timing.end);
  keep(stream.timings, item, timing);
  return outcome;
}

void CpuRank::keep(std::vector<Timed>& timings, const Item& item, OpTiming timing) const {
  const std::int64_t oldest = item.step - share_.settings.timed_steps + 1;
  if (!timings.empty() && timings.front().timing.step < oldest)
    std::erase_if(timings, [&](const Timed& old) { return old.timing.step < oldest; });
  timing.op = item.op;
  timing.step = item.step;
  timing.drains = item.timed->drains;
  timing.issued = item.timed->at;
  timings.push_back({.issue = item.timed->number, .timing = timing});
}

/// Sets the times of a collective and of a record, which read the clock themselves. The times of a
/// send or a recv are kept when it has ended.
Result<void> CpuRank::run_body(Stream& stream, const Item& item, OpTiming& timing) try {
  const BoundOp& op = *item.op;
  announce_ranges(op);
  switch (op.op->kind()) {
    case OpKind::kernel:
      return share_.settings.kernel({.kernel = op.kernel,
                                     .operands = op.operands,
                                     .group = op.op->group,
                                     .rank = rank_,
                                     .step = item.step});
    case OpKind::collective:
      return is_transfer(*op.op) ? begin_transfer(stream, item) : join(item.number, op, timing);
    case OpKind::copy: return copy(op.operands[0], op.operands[1]);
    case OpKind::record: {
      Event& event = *events_[op.event];
      const std::scoped_lock lock(event.gate.mutex);
      event.run(item.number);
      timing.begin = timing.end = event.at = now();
      event.gate.changed.notify_all();
      return {};
    }
    case OpKind::wait: await_event(op.event, item.number); return {};
    case OpKind::release:
      if (share_.settings.poison) std::memset(op.buffer.data(), kPoison, op.buffer.size());
      return {};
    case OpKind::group_begin:  // its sends and recvs begin together; others meet in turn
      stream.in_group = true;
      return {};
    case OpKind::group_end:
      stream.in_group = false;
      end_transfers(stream);
      return {};
    case OpKind::acquire:
    case OpKind::host_wait: break;
  }
  return {};
} catch (const std::exception& error) {
  return fail("", error.what(), Fault::environment);
} catch (...) {
  return fail("", "an exception that is no std::exception was thrown", Fault::environment);
}

Result<void> CpuRank::run_faulty(Stream& stream, const Item& item, InjectedFault::Kind kind) {
  if (kind == InjectedFault::Kind::stop) {
    stop_here(stream);
    return {};
  }
  if (kind == InjectedFault::Kind::fail || item.op->op->kind() != OpKind::collective)
    return fail("", "fails, as requested", Fault::environment);
  Op op = *item.op->op;
  --std::get<Collective>(op.body).count;
  BoundOp bound = *item.op;
  bound.op = &op;
  if (is_transfer(op)) {
    RankTransfer transfer{.op = &bound, .rank = rank_, .number = item.number};
    MFSDP_TRY(transfers_of(bound).begin(transfer));
    transfers_of(bound).await(transfer);
    return {};
  }
  OpTiming unused;
  return join(item.number, bound, unused);
}

Result<void> CpuRank::join(std::int64_t ticket, const BoundOp& op, OpTiming& timing) {
  Meeting& meeting = *share_.meetings.of[op.communicator][unsigned_of(rank_)];
  MFSDP_LET(times, meeting.join(rank_, ticket, op));
  timing.begin = since_start(times.begin);
  timing.end = since_start(times.end);
  return {};
}

Transfers& CpuRank::transfers_of(const BoundOp& op) const {
  return *share_.meetings.transfers[op.communicator];
}

/// Within a group it returns at once.
Result<void> CpuRank::begin_transfer(Stream& stream, const Item& item) {
  BegunTransfer& begun = stream.begun.emplace_back(BegunTransfer{
      .item = item, .transfer = {.op = item.op, .rank = rank_, .number = item.number}});
  MFSDP_TRY(transfers_of(*item.op).begin(begun.transfer));
  if (!stream.in_group) end_transfers(stream);
  return {};
}

/// Those of a group are one launch, which runs from the first begin to the last end.
void CpuRank::end_transfers(Stream& stream) {
  OpTiming timing;
  timing.begin = Nanos(std::numeric_limits<std::int64_t>::max());
  for (const auto& [item, transfer] : stream.begun) {
    transfers_of(*item.op).await(transfer);
    timing.begin = std::min(timing.begin, since_start(transfer.times.begin));
    timing.end = std::max(timing.end, since_start(transfer.times.end));
  }
  for (const auto& [item, transfer] : stream.begun) {
    if (share_.run.failed()) break;
    stream.ended = std::max(stream.ended, timing.end);
    if (item.timed) keep(stream.timings, item, timing);
  }
  stream.begun.clear();
}

Nanos CpuRank::await_event(std::size_t event, std::int64_t number) {
  Event& awaited = *events_[event];
  std::unique_lock lock(awaited.gate.mutex);
  share_.run.await(awaited.gate, lock, [&] { return awaited.has_run(number); });
  return awaited.at;
}

void CpuRank::stop_here(Stream& stream) {
  std::unique_lock lock(stream.gate.mutex);
  share_.run.await(stream.gate, lock, [] { return false; });
}

// ---- reports ---------------------------------------------------------------------------------

/// Messages count steps from 1.
std::string CpuRank::place(const BoundOp& op, std::int64_t step) const {
  return fmt::format("rank {}, {} ({}), step {}", rank_, op.op->name,
                     to_string(program_.streams[op.stream].role), step + 1);
}

std::vector<Stall> CpuRank::stalls() {
  std::vector<Stall> list;
  for (const auto& stream : streams_) {
    Item item;
    {
      const std::scoped_lock lock(stream->current_mutex);
      item = stream->current;
    }
    if (item.op == nullptr) continue;
    Stall stall{.reason = Stall::Reason::in_op, .text = place(*item.op, item.step)};
    const OpKind kind = item.op->op->kind();
    if (kind == OpKind::wait) {
      stall.reason = Stall::Reason::event;
      stall.text += " waits for event " + events_[item.op->event]->name;
    } else if (is_transfer(*item.op->op) || kind == OpKind::group_end) {
      if (const auto missing = transfers_of(*item.op).missing(rank_); !missing.empty()) {
        stall.reason = Stall::Reason::meeting;
        stall.text += fmt::format(" waits for rank {}", fmt::join(missing, ", "));
      }
    } else if (kind == OpKind::collective) {
      Meeting& meeting = *share_.meetings.of[item.op->communicator][unsigned_of(rank_)];
      const std::vector<std::int64_t> missing = meeting.missing(item.number);
      if (std::find(missing.begin(), missing.end(), rank_) == missing.end()) {
        stall.reason = Stall::Reason::meeting;
        stall.text += missing.empty() ? " waits for the collective before it"
                                      : fmt::format(" waits for rank {}", fmt::join(missing, ", "));
      }
    }
    if (stall.reason == Stall::Reason::in_op) stall.text += " does not end";
    list.push_back(std::move(stall));
  }
  return list;
}

}  // namespace mfsdp
