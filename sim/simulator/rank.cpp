#include "sim/simulator/rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace mfsdp {
namespace {

/// Number of instances of a segment whose times are kept if not all are.
constexpr std::int64_t kKeptInstances = 2;

// Values of a stream's blocker other than tracks.
constexpr std::int64_t kNothing = -1;
constexpr std::int64_t kHost = -2;   // a wait of the host
constexpr std::int64_t kIssue = -3;  // the host has not issued the op yet

}  // namespace

Rank::Rank(const RankPlan& common, const std::vector<std::uint32_t>& groups,
           const KernelTimes& kernels, bool keeps_times)
    : common_(common),
      lowered_(common.lowered),
      groups_(groups),
      kernels_(kernels),
      memory_(common.memory),
      keeps_times_(keeps_times),
      host_(static_cast<std::uint32_t>(common.program.streams.size())),
      cursors_(host_),
      counts_(lowered_.track_stream.size()),
      blocked_on_(host_, kNothing),
      issue_at_(host_, kNever),
      running_(host_, lowered_.leaves_sms),
      completed_(kSteps) {
  for (const Stream& stream : common.program.streams)
    is_compute_.push_back(stream.role == StreamRole::compute);
  record_.exposed_by_unit.resize(common.program.units.size() + 1);
  record_.exposed_by_communicator.resize(common.program.communicators.size());
  if (keeps_times)
    record_.spans.reserve(static_cast<std::size_t>(std::min(lowered_.spans, kMostSpans)));
  for (std::uint32_t stream = 0; stream < host_; ++stream) {
    const bool idle = std::ranges::all_of(
        lowered_.segments, [&](const LoweredSegment& s) { return s.streams[stream].empty(); });
    cursors_[stream].done = idle;
    if (idle) continue;
    next_instance(stream);
    ready_.push_back(stream);
  }
  if (lowered_.entries > 0) advance_host();
}

const std::vector<Entry>& Rank::entries(std::uint32_t stream) const {
  return lowered_.segments[cursors_[stream].segment].streams[stream];
}

/// Moves a cursor at the end of its entries to the next instance of a segment with entries.
void Rank::next_instance(std::uint32_t stream) {
  Cursor& cursor = cursors_[stream];
  const bool begins = cursor.next == nullptr && !entries(stream).empty();
  if (!begins) {
    const LoweredSegment& segment = lowered_.segments[cursor.segment];
    if (!entries(stream).empty() && ++cursor.instance < segment.repeat) {
      cursor.position += segment.length;
    } else {
      do {
        if (++cursor.segment == lowered_.segments.size()) {
          cursor.segment = 0;
          cursor.done = ++cursor.step == kSteps;
        }
      } while (entries(stream).empty());
      cursor.instance = 0;
      cursor.position = cursor.step * lowered_.length + lowered_.segments[cursor.segment].begin;
    }
  }
  cursor.next = entries(stream).data();
  cursor.last = cursor.next + entries(stream).size();
}

Result<void> Rank::run(std::int64_t now, std::int64_t until, std::vector<std::uint32_t>& arrived,
                       std::vector<std::uint32_t>& affected) {
  while (true) {
    pass_time(now);
    MFSDP_TRY(step(arrived, affected));
    if (now >= until || finished_ || !arrived.empty() || !affected.empty() || !posted().empty())
      return {};
    now = share();
    if (now >= until) return {};
    if (lowered_.host_length == 0 && running_.computes_alone()) {
      run_alone();
      now = now_;
    }
  }
}

/// The rest of the loop above for a rank that runs one compute op and nothing else: advances through
/// the ops after it until the stream must wait, launches something, or may wake another one.
/// Nothing slows these ops down.
void Rank::run_alone() {
  const std::uint32_t stream = running_.first();
  Running& op = running_.of_stream(stream);
  const Cursor& cursor = cursors_[stream];
  while (true) {
    if (op.end == kNever) return;
    pass_time(op.end);
    if (op.step == kReported && keeps_times_) keep_spans(op);
    pass(stream);
    finish();
    while (passes_alone(stream)) pass(stream);
    finish();
    const bool goes_on = !finished_ && !cursor.done && cursor.next->action == Action::kernel &&
                         cursor.position + cursor.next->op < issued_;
    if (!goes_on) break;
    begin(stream).set_rate(now_, kOne);
  }
  running_.remove(stream);
  wake(stream);
}

/// Does the stream's next entry if it takes no time and concerns no other stream.
bool Rank::passes_alone(std::uint32_t stream) {
  const Cursor& cursor = cursors_[stream];
  if (cursor.done) return false;
  const Entry& entry = *cursor.next;
  if (cursor.position + entry.op >= issued_) return false;
  switch (entry.action) {
    case Action::acquire:
    case Action::release: return use_buffer(cursor);
    case Action::wait: {
      const Target& target = lowered_.target(entry.detail, cursor.instance);
      return counts_[target.track] >= target.count(cursor.step, cursor.instance);
    }
    case Action::record:
      if (!waiters_.empty()) return false;
      ++counts_[entry.detail];
      return true;
    case Action::kernel:
    case Action::copy:
    case Action::launch: break;
  }
  return false;
}

Result<void> Rank::step(std::vector<std::uint32_t>& arrived, std::vector<std::uint32_t>& affected) {
  end_ops(arrived, affected);
  if (next_issue_ <= now_) wake_issued();
  finish();
  // advance_stream() appends the streams that it wakes to the list.
  std::size_t next = 0;
  while (next < ready_.size()) MFSDP_TRY(advance_stream(ready_[next++]));
  ready_.clear();
  // A kernel holds the SMs only when every stream has advanced as far as possible, in any order.
  if (come_up_) running_.take_queued(now_, arrived);
  come_up_ = false;
  finish();
  note_computing(affected);
  return {};
}

/// Collectives are slowed down by concurrent kernels, depending on their class.
void Rank::note_computing(std::vector<std::uint32_t>& affected) {
  const ComputingClasses computes = running_.computes();
  if (computes == computes_) return;
  computes_ = computes;
  for (const Running& op : running_.ops())
    if (op.is_collective() && !op.waits && !op.is_point_to_point()) affected.push_back(op.group);
}

/// Runs the stream's entries until one takes time or must wait.
Result<void> Rank::advance_stream(std::uint32_t stream) {
  const Cursor& cursor = cursors_[stream];
  while (!cursor.done) {
    const Entry& entry = *cursor.next;
    if (cursor.position + entry.op >= issued_) {
      blocked_on_[stream] = kHost;
      return {};
    }
    if (lowered_.host_length > 0) {
      const std::int64_t issued = issue_time(cursor);
      if (issued > now_) {
        blocked_on_[stream] = kIssue;
        issue_at_[stream] = issued;
        next_issue_ = std::min(next_issue_, issued);
        return {};
      }
    }
    switch (entry.action) {
      case Action::kernel: come_up_ |= begin(stream).queued; return {};
      case Action::copy: begin(stream); return {};
      case Action::launch: {
        const Target& turn = lowered_.launches[entry.detail].turn;
        if (!reached(turn, turn.count(cursor.step, cursor.instance), stream)) return {};
        begin(stream);
        come_up_ = true;
        return {};
      }
      case Action::wait: {
        const Target& target = lowered_.target(entry.detail, cursor.instance);
        if (!reached(target, target.count(cursor.step, cursor.instance), stream)) return {};
        break;
      }
      case Action::record: reach(entry.detail); break;
      case Action::acquire:
      case Action::release:
        if (!use_buffer(cursor)) return tl::unexpected(misused_buffer(cursor));
        break;
    }
    pass(stream);
  }
  return {};
}

/// Whether a track has reached that count; if not, `who` is woken when it does.
bool Rank::reached(const Target& target, std::int64_t count, std::uint32_t who) {
  if (counts_[target.track] >= count) return true;
  waiters_.push_back({.track = target.track, .count = count, .who = who});
  if (who != host_) blocked_on_[who] = target.track;
  return false;
}

void Rank::reach(std::uint32_t track) {
  const std::int64_t count = ++counts_[track];
  bool host = false;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.track != track || waiter.count > count) return false;
    if (waiter.who == host_) {
      host = true;
    } else {
      wake(waiter.who);
    }
    return true;
  });
  if (host) advance_host();
}

/// Called once for each stop: a stream waits for one condition, or has ended one op.
void Rank::wake(std::uint32_t stream) {
  blocked_on_[stream] = kNothing;
  ready_.push_back(stream);
}

/// Issues ops up to the host's next wait that is not satisfied.
void Rank::advance_host() {
  HostCursor& host = host_cursor_;
  issued_ = std::numeric_limits<std::int64_t>::max();
  while (host.step < kSteps) {
    const LoweredSegment& segment = lowered_.segments[host.segment];
    if (host.index < segment.host.size()) {
      const HostEntry& entry = segment.host[host.index];
      const Target& target = lowered_.target(entry.wait, host.instance);
      if (!reached(target, target.count(host.step, host.instance), host_)) {
        issued_ =
            host.step * lowered_.length + segment.begin + host.instance * segment.length + entry.op;
        break;
      }
      // The wait is satisfied; a host that arrived earlier continues now.
      if (lowered_.host_length > 0)
        host_late_ = std::max(host_late_, now_ - host_time(host, entry.op));
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
  for (std::uint32_t stream = 0; stream < host_; ++stream)
    if (blocked_on_[stream] == kHost) wake(stream);
}

/// When the host reaches an op of that instance if it never waits.
std::int64_t Rank::host_time(const HostCursor& at, std::uint32_t op) const {
  const LoweredSegment& segment = lowered_.segments[at.segment];
  return at.step * lowered_.host_length + segment.host_begin + at.instance * segment.host_length() +
         segment.issued[op];
}

/// When the stream's next op is issued. If later waits have delayed the host, the result is too
/// late, but it is in the past anyway.
std::int64_t Rank::issue_time(const Cursor& cursor) const {
  const HostCursor at{
      .step = cursor.step, .segment = cursor.segment, .instance = cursor.instance, .index = 0};
  return host_late_ + host_time(at, cursor.next->op);
}

void Rank::wake_issued() {
  next_issue_ = kNever;
  for (std::uint32_t stream = 0; stream < host_; ++stream) {
    if (blocked_on_[stream] != kIssue) continue;
    if (issue_at_[stream] <= now_)
      wake(stream);
    else
      next_issue_ = std::min(next_issue_, issue_at_[stream]);
  }
}

bool Rank::keeps_instance(std::int64_t instance) const {
  return instance < kKeptInstances || lowered_.spans <= kMostSpans;
}

/// False if an acquired buffer is live, or a released one is not.
bool Rank::use_buffer(const Cursor& cursor) {
  if (finished_) return true;  // the window is over
  const Entry& entry = *cursor.next;
  const BufferUse& use = lowered_.uses[entry.detail];
  std::uint32_t slot = use.slot;
  if (use.instances > 1)
    slot += static_cast<std::uint32_t>(
        lowered_.segments[cursor.segment].turn(cursor.instance, use.lag, use.instances));
  const bool keep = keeps_times_ && keeps_instance(cursor.instance);
  return entry.action == Action::acquire ? memory_.acquire(slot, now_, keep)
                                         : memory_.release(slot, now_, keep);
}

Error Rank::misused_buffer(const Cursor& cursor) const {
  const Entry& entry = *cursor.next;
  return {place_of(common_.plan, lowered_.segments[cursor.segment].source, entry.op),
          fmt::format("instance {}: buffer '{}' is {}", cursor.instance,
                      common_.program.buffers[lowered_.uses[entry.detail].buffer].name,
                      entry.action == Action::acquire ? "acquired while it is live"
                                                      : "released while it is not live")};
}

/// Starts the stream's next entry; a collective first waits for its group.
Running& Rank::begin(std::uint32_t stream) {
  const Cursor& cursor = cursors_[stream];
  const Entry& entry = *cursor.next;
  Running& op = running_.start(stream);
  op.entry = &entry;
  op.computes = entry.action != Action::launch && is_compute_[stream];
  op.segment = cursor.segment;
  op.step = cursor.step;
  op.instance = cursor.instance;
  op.start = op.came = op.rate_at = now_;
  std::int64_t scale = kOne;
  if (entry.action == Action::launch) {
    op.launch = &lowered_.launches[entry.detail];
    const bool meets_group = !op.launch->is_point_to_point();
    op.group = meets_group ? groups_[op.launch->communicator] : kNoGroup;
    op.messages_left = static_cast<std::uint32_t>(op.launch->messages.size());
    op.waits = op.queued = true;
    if (op.launch->order != kNoOrder) {
      const LoweredSegment& segment = lowered_.segments[cursor.segment];
      op.order = cursor.step * lowered_.ordered + segment.ordered_begin +
                 cursor.instance * segment.ordered + op.launch->order;
    }
  } else if (entry.action == Action::kernel) {
    op.queued = !op.computes;
    scale = kernels_.of({.step = cursor.step,
                         .segment = cursor.segment,
                         .instance = cursor.instance,
                         .op = entry.op});
  } else if (entry.action == Action::copy) {
    op.transfer = &lowered_.transfers[entry.detail];
  }
  op.remaining = static_cast<Int128>(entry.duration) * scale;
  return op;
}

/// Counts the stream's entry as done and advances to the next one.
void Rank::pass(std::uint32_t stream) {
  Cursor& cursor = cursors_[stream];
  if (++completed_[static_cast<std::size_t>(cursor.step)] == lowered_.entries && cursor.step == 0) {
    record_.begin = now_;
    record_.compute = record_.communication = record_.exposed = record_.waiting = 0;
    record_.host_bound = 0;
    record_.lost = 0;
    std::ranges::fill(record_.exposed_by_unit, ExposedTimes{});
    std::ranges::fill(record_.exposed_by_communicator, 0);
    memory_.begin_window(now_);
  }
  if (++cursor.next == cursor.last) next_instance(stream);
}

/// Completes the record at the end of the second step. Later steps run only for the other ranks.
void Rank::finish() {
  if (finished_ || completed_[kReported] < lowered_.entries) return;
  finished_ = true;
  record_.end = now_;
}

void Rank::end_ops(std::vector<std::uint32_t>& arrived, std::vector<std::uint32_t>& affected) {
  const bool held = running_.holds(now_);
  const auto& ended = running_.take_ended(now_);
  // Before the queued next kernel of the stream takes the SMs again.
  if (held) running_.take_queued(now_, arrived);
  for (const std::uint32_t stream : ended) {
    const Running& op = running_.ops()[stream];
    if (op.step == kReported && keeps_times_) keep_spans(op);
    pass(stream);
    wake(stream);
    if (op.launch == nullptr) continue;
    if (!op.launch->is_point_to_point()) affect(op.launch->link, affected);
    reach(op.launch->turn.track);
  }
}

void Rank::meet(std::uint32_t group, Int128 work, std::int64_t now,
                std::vector<std::uint32_t>& affected) {
  pass_time(now);
  Running& op = running_.of_group(group);
  op.waits = false;
  op.remaining = work;
  affect(op.launch->link, affected);
}

void Rank::begin_message(std::uint32_t stream, const MovingMessage& message, std::int64_t now,
                         std::vector<std::uint32_t>& affected) {
  pass_time(now);
  Running& op = running_.of_stream(stream);
  running_.add_message(message);
  op.set_moving(now, op.moving + 1, op.messages_left);
  affect(message.link, affected);
}

void Rank::end_message(std::uint32_t stream, const MovingMessage& message, std::int64_t now,
                       std::vector<std::uint32_t>& affected) {
  pass_time(now);
  Running& op = running_.of_stream(stream);
  running_.remove_message(message);
  op.set_moving(now, op.moving - 1, op.messages_left - 1);
  affect(message.link, affected);
}

void Rank::affect(int link, std::vector<std::uint32_t>& affected) const {
  for (const Running& op : running_.ops())
    if (op.is_on(link)) affected.push_back(op.group);
}

void Rank::set_rate(std::uint32_t group, std::int64_t now, std::int64_t rate) {
  pass_time(now);
  running_.of_group(group).set_rate(now, rate);
}

std::int64_t Rank::share() {
  running_.share(now_);
  return std::min(running_.doing().next_end, next_issue_);
}

bool Rank::runs() const {
  return std::ranges::any_of(running_.ops(),
                             [](const Running& op) { return op.is_there && !op.waits; });
}

void Rank::pass_time(std::int64_t now) {
  if (now > now_ && !finished_) account(now - now_);
  now_ = now;
}

void Rank::account(std::int64_t time) {
  const Doing& doing = running_.doing();
  record_.lost += static_cast<Int128>(time) * doing.lost;
  if (doing.computes) record_.compute += time;
  if (!doing.computes && lowered_.host_length > 0)
    for (std::uint32_t stream = 0; stream < host_; ++stream)
      if (is_compute_[stream] && blocked_on_[stream] == kIssue) record_.host_bound += time;
  if (doing.communicates) record_.communication += time;
  if (!doing.communicates || doing.computes) return;
  if (doing.waits) record_.waiting += time;
  record_.exposed += time;
  const Launch& awaited = awaited_launch();
  record_.exposed_by_unit[awaited.unit].at(static_cast<std::size_t>(awaited.brings)) += time;
  record_.exposed_by_communicator[awaited.communicator] += time;
}

/// The collective that delays compute now: the one that a compute stream runs or waits for, else
/// the one that ends last. A collective that waits for other ranks counts as ending after running
/// ones.
const Launch& Rank::awaited_launch() const {
  const Running* longest = nullptr;
  for (std::uint32_t own = 0; own < host_; ++own) {
    const Running& op = running_.ops()[own];
    if (!op.communicates()) continue;
    if (is_compute_[own]) return *op.launch;
    for (std::uint32_t stream = 0; stream < host_; ++stream) {
      if (!is_compute_[stream] || blocked_on_[stream] < 0) continue;
      const auto track = static_cast<std::uint32_t>(blocked_on_[stream]);
      if (track == op.launch->turn.track || lowered_.track_stream[track] == own) return *op.launch;
    }
    if (longest == nullptr || op.end > longest->end) longest = &op;
  }
  return *longest->launch;
}

void Rank::keep_spans(const Running& op) {
  if (!keeps_instance(op.instance)) return;
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

Error Rank::at_fault(const Running& op, std::string what) const {
  const std::uint32_t member = op.launch == nullptr ? op.entry->op : op.launch->members.front();
  return {place_of(common_.plan, lowered_.segments[op.segment].source, member), std::move(what)};
}

/// Not reachable where all ranks run one lowered plan: every wait refers to an op that the host
/// issued earlier. Ranks of several classes may wait for each other for ever.
Error Rank::stalled() const {
  for (const Running& op : running_.ops()) {
    if (!op.is_collective()) continue;
    return at_fault(op, fmt::format("deadlock: in instance {} of step {} it waits for other ranks "
                                    "for ever",
                                    op.instance, op.step));
  }
  for (const Cursor& cursor : cursors_) {
    if (cursor.done) continue;
    return {place_of(common_.plan, lowered_.segments[cursor.segment].source, cursor.next->op),
            fmt::format("deadlock: can never run in instance {} of step {}", cursor.instance,
                        cursor.step)};
  }
  return {common_.plan.name, "deadlock: the host waits for ever"};
}

}  // namespace mfsdp
