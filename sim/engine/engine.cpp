#include "sim/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace mfsdp {
namespace {

/// The reported step and one that runs ahead in it, after the first.
constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kReported = 1;
/// Instances of a segment whose times are kept when not all are.
constexpr std::int64_t kKeptInstances = 2;

// What a stream is blocked on, beside tracks.
constexpr std::int64_t kNothing = -1;
constexpr std::int64_t kHost = -2;

}  // namespace

Engine::Engine(const Program& program, const Plan& plan, const LoweredPlan& lowered,
               MemoryLedger& memory)
    : program_(program),
      plan_(plan),
      lowered_(lowered),
      memory_(memory),
      host_(static_cast<std::uint32_t>(program.streams.size())),
      cursors_(program.streams.size()),
      counts_(lowered.track_stream.size()),
      waiters_(lowered.track_stream.size()),
      blocked_on_(program.streams.size(), kNothing),
      completed_(kSteps) {
  for (const Stream& stream : program.streams)
    is_compute_.push_back(stream.role == StreamRole::compute);
  record_.exposed_by_unit.resize(program.units.size() + 1);
}

Result<StepRecord> Engine::run() {
  if (lowered_.entries == 0) return std::move(record_);
  record_.spans.reserve(static_cast<std::size_t>(std::min(lowered_.spans, kMostSpans)));
  for (std::uint32_t stream = 0; stream < host_; ++stream) {
    const bool idle = std::ranges::all_of(
        lowered_.segments, [&](const LoweredSegment& s) { return s.streams[stream].empty(); });
    cursors_[stream].done = idle;
    if (idle) continue;
    settle(cursors_[stream]);
    ready_.push_back(stream);
  }
  advance_host();
  while (completed_[kReported] < lowered_.entries) {
    std::size_t next = 0;  // advance() appends the streams that it wakes
    while (next < ready_.size()) MFSDP_TRY(advance(ready_[next++]));
    ready_.clear();
    if (completed_[kReported] == lowered_.entries) break;
    if (running_.empty()) return tl::unexpected(stalled());
    pass_time();
  }
  record_.end = now_;
  return std::move(record_);
}

/// Moves a cursor that is past its list's end to the next entry of its stream.
void Engine::settle(Cursor& cursor) const {
  const auto stream = static_cast<std::size_t>(&cursor - cursors_.data());
  while (!cursor.done) {
    const LoweredSegment& segment = lowered_.segments[cursor.segment];
    const std::vector<Entry>& entries = segment.streams[stream];
    if (cursor.index < entries.size()) break;
    cursor.index = 0;
    if (!entries.empty() && ++cursor.instance < segment.repeat) {
      cursor.position += segment.length;
      continue;
    }
    cursor.instance = 0;
    if (++cursor.segment == lowered_.segments.size()) {
      cursor.segment = 0;
      cursor.done = ++cursor.step == kSteps;
    }
    cursor.position = cursor.step * lowered_.length + lowered_.segments[cursor.segment].begin;
  }
}

const Entry& Engine::entry_at(std::uint32_t stream) const {
  const Cursor& cursor = cursors_[stream];
  return lowered_.segments[cursor.segment].streams[stream][cursor.index];
}

/// Runs the stream's entries until one takes time or has to wait.
Result<void> Engine::advance(std::uint32_t stream) {
  while (!cursors_[stream].done) {
    const Cursor& cursor = cursors_[stream];
    const Entry& entry = entry_at(stream);
    if (cursor.position + entry.op >= issued_) {
      blocked_on_[stream] = kHost;
      return {};
    }
    switch (entry.action) {
      case Action::kernel:
      case Action::copy: begin(stream, entry); return {};
      case Action::launch: {
        const Target& turn = lowered_.launches[entry.detail].turn;
        if (reached(turn, turn.count(cursor.step, cursor.instance), stream)) begin(stream, entry);
        return {};
      }
      case Action::wait: {
        const Target& target = lowered_.waits[entry.detail].target(cursor.instance);
        if (!reached(target, target.count(cursor.step, cursor.instance), stream)) return {};
        break;
      }
      case Action::record: reach(entry.detail); break;
      case Action::acquire:
      case Action::release: MFSDP_TRY(use_buffer(cursor, entry)); break;
    }
    pass(stream);
  }
  return {};
}

/// Whether a track has come to that count; if not, `who` is woken when it has.
bool Engine::reached(const Target& target, std::int64_t count, std::uint32_t who) {
  if (counts_[target.track] >= count) return true;
  waiters_[target.track].push_back({.count = count, .who = who});
  if (who != host_) blocked_on_[who] = target.track;
  return false;
}

void Engine::reach(std::uint32_t track) {
  const std::int64_t count = ++counts_[track];
  std::vector<Waiter>& waiters = waiters_[track];
  bool host = false;
  std::erase_if(waiters, [&](const Waiter& waiter) {
    if (waiter.count > count) return false;
    if (waiter.who == host_) {
      host = true;
    } else {
      wake(waiter.who);
    }
    return true;
  });
  if (host) advance_host();
}

/// To be called once for each stop: a stream waits for one thing, or has ended one op.
void Engine::wake(std::uint32_t stream) {
  blocked_on_[stream] = kNothing;
  ready_.push_back(stream);
}

/// Issues ops up to the next wait of the host that does not hold yet.
void Engine::advance_host() {
  HostCursor& host = host_cursor_;
  issued_ = std::numeric_limits<std::int64_t>::max();
  while (host.step < kSteps) {
    const LoweredSegment& segment = lowered_.segments[host.segment];
    if (host.index < segment.host.size()) {
      const HostEntry& entry = segment.host[host.index];
      const Target& target = lowered_.waits[entry.wait].target(host.instance);
      if (!reached(target, target.count(host.step, host.instance), host_)) {
        issued_ =
            host.step * lowered_.length + segment.begin + host.instance * segment.length + entry.op;
        break;
      }
      ++host.index;
      continue;
    }
    host.index = 0;
    if (!segment.host.empty() && ++host.instance < segment.repeat) continue;
    host.instance = 0;
    if (++host.segment < lowered_.segments.size()) continue;
    host.segment = 0;
    ++host.step;
  }
  for (std::uint32_t stream = 0; stream < blocked_on_.size(); ++stream)
    if (blocked_on_[stream] == kHost) wake(stream);
}

Result<void> Engine::use_buffer(const Cursor& cursor, const Entry& entry) {
  const bool acquire = entry.action == Action::acquire;
  const bool keep = cursor.instance < kKeptInstances;
  const MemoryLedger::Outcome outcome = acquire ? memory_.acquire(entry.detail, now_, keep)
                                                : memory_.release(entry.detail, now_, keep);
  const OpPlace place{lowered_.segments[cursor.segment].source, entry.op};
  if (outcome == MemoryLedger::Outcome::new_peak) record_.peak = place;
  if (outcome != MemoryLedger::Outcome::refused) return {};
  return fail(place_of(plan_, place.segment, place.op),
              fmt::format("instance {}: buffer '{}' is {}", cursor.instance,
                          program_.buffers[entry.detail].name,
                          acquire ? "acquired while it is live" : "released while it is not live"));
}

void Engine::begin(std::uint32_t stream, const Entry& entry) {
  const Cursor& cursor = cursors_[stream];
  Running op;
  op.stream = stream;
  op.entry = &entry;
  if (entry.action == Action::launch) op.launch = &lowered_.launches[entry.detail];
  op.segment = cursor.segment;
  op.step = cursor.step;
  op.instance = cursor.instance;
  op.start = now_;
  op.remaining = static_cast<Int128>(entry.duration) * kOne;
  running_.start(op);
}

/// Counts the stream's entry as done and goes on to the next.
void Engine::pass(std::uint32_t stream) {
  Cursor& cursor = cursors_[stream];
  if (++completed_[static_cast<std::size_t>(cursor.step)] == lowered_.entries && cursor.step == 0) {
    record_.begin = now_;
    record_.compute = record_.communication = record_.exposed = 0;
    record_.lost = 0;
    std::ranges::fill(record_.exposed_by_unit, 0);
    record_.peak.reset();
    memory_.begin_window(now_);
  }
  ++cursor.index;
  settle(cursor);
}

/// To the next end of an op.
void Engine::pass_time() {
  running_.share();
  const std::int64_t time = running_.until_first_end();
  now_ = checked_add(now_, time);  // first: the sums of account() stay below it
  account(time);
  running_.pass(time);
  for (const Running& op : running_.take_ended()) {
    if (op.step == kReported) keep_spans(op);
    const std::uint32_t stream = op.stream;
    pass(stream);
    wake(stream);
    if (op.launch != nullptr) reach(op.launch->turn.track);
  }
}

void Engine::account(std::int64_t time) {
  bool computes = false;
  bool communicates = false;
  for (const Running& op : running_.ops()) {
    communicates |= op.launch != nullptr;
    if (op.launch != nullptr || !is_compute_[op.stream]) continue;
    computes = true;
    record_.lost += static_cast<Int128>(time) * (kOne - op.rate);
  }
  if (computes) record_.compute += time;
  if (communicates) record_.communication += time;
  if (!communicates || computes) return;
  record_.exposed += time;
  record_.exposed_by_unit[exposed_unit()] += time;
}

/// Whose collective holds compute up now: the one that a compute stream runs or waits for, else the
/// one with most time left.
std::uint32_t Engine::exposed_unit() const {
  const Running* longest = nullptr;
  for (const Running& op : running_.ops()) {
    if (op.launch == nullptr) continue;
    if (is_compute_[op.stream]) return op.launch->unit;
    for (std::uint32_t stream = 0; stream < blocked_on_.size(); ++stream) {
      if (!is_compute_[stream] || blocked_on_[stream] < 0) continue;
      const auto track = static_cast<std::uint32_t>(blocked_on_[stream]);
      if (track == op.launch->turn.track || lowered_.track_stream[track] == op.stream)
        return op.launch->unit;
    }
    if (longest == nullptr || op.time_left() > longest->time_left()) longest = &op;
  }
  return longest->launch->unit;
}

void Engine::keep_spans(const Running& op) {
  if (op.instance >= kKeptInstances && lowered_.spans > kMostSpans) return;
  OpSpan span;
  span.segment = lowered_.segments[op.segment].source;
  span.op = op.entry->op;
  span.instance = op.instance;
  span.start = Nanos(op.start);
  span.end = Nanos(now_);
  if (op.launch == nullptr) {
    record_.spans.push_back(span);
    return;
  }
  for (const std::uint32_t member : op.launch->members) {
    span.op = member;
    record_.spans.push_back(span);
  }
}

/// Every wait binds to what the host issued before it, so this is out of reach for lowered plans.
Error Engine::stalled() const {
  for (std::uint32_t stream = 0; stream < cursors_.size(); ++stream) {
    const Cursor& cursor = cursors_[stream];
    if (cursor.done) continue;
    return {place_of(plan_, lowered_.segments[cursor.segment].source, entry_at(stream).op),
            fmt::format("deadlock: can never run in instance {} of step {}", cursor.instance,
                        cursor.step)};
  }
  return {plan_.name, "deadlock: the host waits for ever"};
}

}  // namespace mfsdp
