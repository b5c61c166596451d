#include "verify/cpu/machine/rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "verify/cpu/machine/announce.hpp"
#include "verify/cpu/machine/view_runs.hpp"

namespace mfsdp {
namespace {

constexpr int kPoison = 0xff;  ///< as a byte of every element: a NaN in bf16, fp16 and fp32

std::size_t unsigned_of(std::int64_t value) { return static_cast<std::size_t>(value); }

std::int64_t bytes_of(const OperandView& view) {
  return mfsdp::bytes_of(product_of(view.shape), view.dtype).value;
}

Result<void> copy(const OperandView& from, const OperandView& to) {
  if (!is_contiguous(from) || !is_contiguous(to) || bytes_of(from) != bytes_of(to))
    return fail("", "expected input and output of a copy to be contiguous and of equal bytes");
  if (from.data != to.data) std::memcpy(to.data, from.data, unsigned_of(bytes_of(from)));
  return {};
}

bool is_work(OpKind kind) {
  return kind == OpKind::kernel || kind == OpKind::collective || kind == OpKind::copy;
}

}  // namespace

CpuRank::CpuRank(MachineShare& share, std::int64_t rank)
    : share_(share), rank_(rank), tickets_(share.program.communicators.size(), 0) {
  for (std::size_t i = 0; i < share.program.events.size(); ++i) {
    events_.push_back(std::make_unique<Event>());
    share.run.add(events_.back()->gate);
  }
  for (std::size_t i = 0; i < share.program.streams.size(); ++i) {
    streams_.push_back(std::make_unique<Stream>(
        Chaos(share.settings.chaos, rank, i, share.program.streams.size())));
    share.run.add(streams_.back()->gate);
  }
  try {
    for (const auto& stream : streams_)
      stream->thread = std::jthread([this, &own = *stream] { serve(own); });
  } catch (...) {
    end_streams();
    throw;
  }
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

std::vector<Bytes> CpuRank::allocated() const {
  std::vector<Bytes> sizes;
  for (const Allocation& allocation : allocations_) sizes.push_back(allocation.size);
  return sizes;
}

// ---- the host's side -------------------------------------------------------------------------

Result<void> CpuRank::push(std::size_t stream, Item item) {
  if (item.op != nullptr) {
    MFSDP_TRY(share_.run.outcome());
    share_.run.count_issued();
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
  const bool meets = op.op->kind() == OpKind::collective;
  return push(op.stream,
              {.op = &op, .step = step, .number = meets ? tickets_[op.communicator]++ : 0});
}

Result<void> CpuRank::record(const BoundOp& op, std::int64_t step, std::int64_t number) {
  return push(op.stream, {.op = &op, .step = step, .number = number});
}

Result<void> CpuRank::wait(const BoundOp& op, std::int64_t step, std::int64_t number) {
  if (share_.settings.faults.dropped_wait == op.op->id) return {};
  return push(op.stream, {.op = &op, .step = step, .number = number});
}

Result<Nanos> CpuRank::host_wait(const BoundOp& op, std::int64_t /*step*/, std::size_t event,
                                 std::int64_t number) {
  const HostPause pause(share_.run);
  Nanos at = now();
  if (share_.settings.faults.dropped_wait != op.op->id) at = await_event(event, number);
  MFSDP_TRY(share_.run.outcome());
  return at;
}

Nanos CpuRank::now() const {
  return Nanos(std::chrono::nanoseconds(std::chrono::steady_clock::now() - share_.start).count());
}

Result<void> CpuRank::synchronise() {
  ++drains_;
  for (std::size_t s = 0; s < streams_.size(); ++s)
    MFSDP_TRY(push(s, {.op = nullptr, .step = 0, .number = drains_}));
  const HostPause pause(share_.run);
  for (const auto& stream : streams_) {
    std::unique_lock lock(stream->gate.mutex);
    stream->gate.changed.wait(lock, [&] { return stream->drained == drains_; });
  }
  const std::scoped_lock no_report(share_.reporting);
  return share_.run.outcome();
}

std::vector<OpTiming> CpuRank::take_timings() {
  std::vector<OpTiming> all;
  for (const auto& stream : streams_) {
    all.insert(all.end(), stream->timings.begin(), stream->timings.end());
    stream->timings.clear();
  }
  return all;
}

// ---- the streams' side -----------------------------------------------------------------------

/// Takes what was issued, all at once: the host's lock orders a stream's work behind the host's as
/// seldom as can be.
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

/// After a failure only drains are served.
void CpuRank::run_item(Stream& stream, const Item& item) {
  if (item.op == nullptr) {
    {
      const std::scoped_lock lock(stream.gate.mutex);
      stream.drained = item.number;
    }
    stream.gate.changed.notify_all();
    return;
  }
  if (share_.run.failed()) return;
  set_current(stream, item);
  auto outcome = run_op(stream, item);
  set_current(stream, {});
  share_.run.count_ended();
  if (!outcome)
    share_.run.fail({.where = place(*item.op, item.step),
                     .what = outcome.error().message(),
                     .fault = Fault::environment});
}

Result<void> CpuRank::run_op(Stream& stream, const Item& item) {
  stream.chaos.delay();
  const auto& fault = share_.settings.faults.fault;
  if (fault && fault->rank == rank_ && fault->op == item.op->op->id && fault->step == item.step)
    return run_faulty(stream, item, fault->kind);
  if (share_.settings.timed_steps == 0 || !is_work(item.op->op->kind())) return run_body(item);
  const std::int64_t oldest = item.step - share_.settings.timed_steps + 1;
  if (!stream.timings.empty() && stream.timings.front().step < oldest)
    std::erase_if(stream.timings, [&](const OpTiming& timing) { return timing.step < oldest; });
  const Nanos begin = now();
  auto outcome = run_body(item);
  stream.timings.push_back({.op = item.op, .step = item.step, .begin = begin, .end = now()});
  return outcome;
}

Result<void> CpuRank::run_body(const Item& item) try {
  const BoundOp& op = *item.op;
  announce_ranges(op);
  switch (op.op->kind()) {
    case OpKind::kernel:
      return share_.settings.kernel({.kernel = &std::get<Kernel>(op.op->body),
                                     .operands = op.operands,
                                     .rank = rank_,
                                     .step = item.step});
    case OpKind::collective:
      return share_.meetings.of[op.communicator][unsigned_of(rank_)]->join(rank_, item.number, op);
    case OpKind::copy: return copy(op.operands[0], op.operands[1]);
    case OpKind::record: {
      Event& event = *events_[op.event];
      const std::scoped_lock lock(event.gate.mutex);
      event.recorded = item.number;
      event.at = now();
      event.gate.changed.notify_all();
      return {};
    }
    case OpKind::wait: await_event(op.event, item.number); return {};
    case OpKind::release:
      if (share_.settings.poison) std::memset(op.buffer.data(), kPoison, op.buffer.size());
      return {};
    case OpKind::acquire:
    case OpKind::group_begin:  // a group's members meet one after another
    case OpKind::group_end:
    case OpKind::host_wait: break;
  }
  return {};
} catch (const std::exception& error) {
  return fail("", error.what());
} catch (...) {
  return fail("", "something that is no std::exception was thrown");
}

Result<void> CpuRank::run_faulty(Stream& stream, const Item& item, InjectedFault::Kind kind) {
  if (kind == InjectedFault::Kind::stop) {
    stop_here(stream);
    return {};
  }
  if (kind == InjectedFault::Kind::fail || item.op->op->kind() != OpKind::collective)
    return fail("", "fails, as it was told to");
  Op op = *item.op->op;
  --std::get<Collective>(op.body).count;
  BoundOp bound = *item.op;
  bound.op = &op;
  return share_.meetings.of[bound.communicator][unsigned_of(rank_)]->join(rank_, item.number,
                                                                          bound);
}

Nanos CpuRank::await_event(std::size_t event, std::int64_t number) {
  Event& awaited = *events_[event];
  std::unique_lock lock(awaited.gate.mutex);
  share_.run.await(awaited.gate, lock, [&] { return awaited.recorded >= number; });
  return awaited.at;
}

void CpuRank::stop_here(Stream& stream) {
  std::unique_lock lock(stream.gate.mutex);
  share_.run.await(stream.gate, lock, [] { return false; });
}

// ---- what it says of itself ------------------------------------------------------------------

/// Steps count from 1 where people read them.
std::string CpuRank::place(const BoundOp& op, std::int64_t step) const {
  return fmt::format("rank {}, {} ({}), step {}", rank_, op.op->name,
                     to_string(share_.program.streams[op.stream].role), step + 1);
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
      stall.text += " waits for event " + share_.program.events[item.op->event].name;
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
