#include "reports/trace/replay.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr Nanos kBefore(std::numeric_limits<std::int64_t>::min() / 4);  ///< before anything

bool takes_time(const Op& op) {
  const OpKind kind = op.kind();
  return kind == OpKind::kernel || kind == OpKind::collective || kind == OpKind::copy;
}

/// As TrafficSummary counts them.
std::int64_t sent_bytes(const Collective& op, std::int64_t ranks) {
  const std::int64_t bytes = bytes_of(op.count, op.dtype).value;
  switch (op.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::reduce_scatter: return checked_mul(bytes, ranks - 1);
    case CollectiveKind::all_reduce:
      return checked_narrow(static_cast<Int128>(bytes) * 2 * (ranks - 1) / ranks);
    case CollectiveKind::shift:
    case CollectiveKind::send: return bytes;
    case CollectiveKind::recv: return 0;
  }
  return 0;
}

OpWork facts_of(const Program& program, const IdIndex<CommunicatorId>& communicators,
                const Op& op) {
  OpWork facts;
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
    facts.bytes = kernel->bytes();
    facts.flops = kernel->flops;
  } else if (const auto* copy = std::get_if<Copy>(&op.body)) {
    facts.bytes = copy->input.touched_bytes();
  } else if (const auto* collective = std::get_if<Collective>(&op.body)) {
    const auto place = communicators.find(collective->communicator);
    if (place) facts.bytes = sent_bytes(*collective, program.communicators[*place].size);
  }
  return facts;
}

/// When an event was recorded last, and the op of that stream before it.
struct Recorded {
  Nanos at = kBefore;
  std::size_t op = kNone;  ///< position in whole_step()
};

struct StreamState {
  Nanos now = kBefore;
  std::size_t last = kNone;           ///< the op before, in whole_step()
  std::vector<std::size_t> awaiting;  ///< ops that the next one waits for
};

/// Walks a step in host order.
class Walk {
 public:
  Walk(const Program& program, const Plan& plan, std::span<const TimedOp> whole)
      : program_(program),
        plan_(plan),
        whole_(whole),
        stream_ids_(program.streams),
        event_ids_(program.events),
        buffer_ids_(program.buffers),
        streams_(program.streams.size()),
        live_(program.buffers.size()) {
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const OpTime& op = *whole[i].op;
      places_[{op.op, op.segment, whole[i].instance}].at.push_back(i);
    }
  }

  void run() {
    result_ = {};
    begun_ = 0;
    for (auto& [key, places] : places_) places.passed = 0;
    std::vector<std::int64_t> runs(count_op_lists(plan_), 0);  // of each list
    for (std::size_t s = 0; s < plan_.segments.size(); ++s)
      for (std::int64_t run = 0; run < plan_.segments[s].repeat; ++run) {
        begun_ += plan_.segments[s].microbatches;
        for (const ListCall& call : calls_of(plan_, s)) {
          now_ = {.name = list_name(plan_, call.list),
                  .number = runs[call.list]++,
                  .lag = call.lag_in(run)};
          for (const Op& op : op_list(plan_, call.list)) step(op);
        }
      }
  }

  /// All state so far belongs to the step before, whose ops are not shown.
  void begin_next(Nanos step) {
    const auto earlier = [&](Nanos& time) {
      if (time > kBefore) time -= step;
    };
    for (StreamState& stream : streams_) {
      earlier(stream.now);
      stream.last = kNone;
      stream.awaiting.clear();
    }
    for (auto& [event, record] : records_) {
      earlier(record.at);
      record.op = kNone;
    }
    for (auto& buffer : live_)
      for (auto& [slot, begin] : buffer) earlier(begin);
    earlier(host_);
  }

  [[nodiscard]] Replay take() { return std::move(result_); }

 private:
  void step(const Op& op) {
    const auto place = stream_ids_.find(op.stream);
    if (!place) return;
    StreamState& stream = streams_[*place];
    if (takes_time(op)) return launch(op, stream);
    const std::int64_t lag = now_.lag + op.lag;
    if (const auto* record = std::get_if<Record>(&op.body))
      records_[event_key(record->event, lag)] = {.at = stream.now, .op = stream.last};
    else if (const auto* wait = std::get_if<Wait>(&op.body))
      await(stream, records_[event_key(wait->event, lag)]);
    else if (const auto* host_wait = std::get_if<HostWait>(&op.body))
      host_ = std::max(host_, records_[event_key(host_wait->event, lag)].at);
    else if (const auto* acquire = std::get_if<Acquire>(&op.body))
      come(acquire->buffer, lag, std::max(stream.now, host_));
    else if (const auto* release = std::get_if<Release>(&op.body))
      go(release->buffer, lag, std::max(stream.now, host_));
  }

  void launch(const Op& op, StreamState& stream) {
    const auto found = places_.find({op.id, now_.name, now_.number});
    if (found == places_.end() || found->second.passed == found->second.at.size()) return;
    const std::size_t place = found->second.at[found->second.passed++];
    for (const std::size_t awaited : stream.awaiting)
      result_.waits.push_back({.awaited = awaited, .waiter = place});
    stream.awaiting.clear();
    stream.now = whole_[place].end;
    stream.last = place;
  }

  static void await(StreamState& stream, const Recorded& record) {
    stream.now = std::max(stream.now, record.at);
    if (record.op != kNone && record.op != stream.last) stream.awaiting.push_back(record.op);
  }

  void come(BufferId id, std::int64_t lag, Nanos at) {
    const auto buffer = buffer_ids_.find(id);
    if (buffer) live_[*buffer].emplace_back(slot_of(*buffer, lag), at);
  }

  void go(BufferId id, std::int64_t lag, Nanos at) {
    const auto buffer = buffer_ids_.find(id);
    if (!buffer) return;
    auto& live = live_[*buffer];
    const auto found =
        std::ranges::find(live, slot_of(*buffer, lag), &std::pair<std::int64_t, Nanos>::first);
    if (found == live.end()) return;
    result_.buffers.push_back(
        {.buffer = *buffer, .slot = found->first, .begin = found->second, .end = at});
    live.erase(found);
  }

  [[nodiscard]] std::int64_t slot_of(std::size_t buffer, std::int64_t lag) const {
    return instance_of(begun_, lag, program_.buffers[buffer].instances.value_or(1));
  }

  [[nodiscard]] std::pair<std::size_t, std::int64_t> event_key(EventId id, std::int64_t lag) const {
    const auto event = event_ids_.find(id);
    if (!event) return {kNone, 0};
    return {*event, instance_of(begun_, lag, program_.events[*event].instances.value_or(1))};
  }

  const Program& program_;
  const Plan& plan_;
  std::span<const TimedOp> whole_;
  IdIndex<StreamId> stream_ids_;
  IdIndex<EventId> event_ids_;
  IdIndex<BufferId> buffer_ids_;
  /// The op, its segment or pass, and the number of the run. Where passes are written out, an op has
  /// its id in several segments, and several times in one.
  using Key = std::tuple<OpId, std::string_view, std::int64_t>;
  struct Places {
    std::vector<std::size_t> at;  ///< in whole_step(), in the order of time
    std::size_t passed = 0;
  };
  std::map<Key, Places> places_;
  struct {
    std::string_view name;  ///< of the segment or pass
    std::int64_t number = 0;
    std::int64_t lag = 0;
  } now_;  ///< the list that runs
  std::vector<StreamState> streams_;
  std::map<std::pair<std::size_t, std::int64_t>, Recorded> records_;
  std::vector<std::deque<std::pair<std::int64_t, Nanos>>> live_;  ///< slots and when they came
  Nanos host_ = kBefore;
  std::int64_t begun_ = 0;  ///< microbatches in this step
  Replay result_;
};

/// Each step is like the last, so a stretch of one is there in every other, a step later.
std::vector<BufferSpan> within_step(const std::vector<BufferSpan>& spans, Nanos step) {
  std::vector<BufferSpan> parts;
  for (const BufferSpan& span : spans)
    for (const std::int64_t later : {-1, 0, 1}) {
      BufferSpan part = span;
      part.begin = std::max(Nanos(0), span.begin + Nanos(later * step.value));
      part.end = std::min(step, span.end + Nanos(later * step.value));
      if (part.begin < part.end) parts.push_back(part);
    }
  std::ranges::sort(parts, {}, [](const BufferSpan& part) {
    return std::tuple(part.begin, part.buffer, part.slot);
  });
  return parts;
}

}  // namespace

std::unordered_map<OpId, OpWork> op_facts(const Program& program, const Plan& plan) {
  const IdIndex<CommunicatorId> communicators(program.communicators);
  std::unordered_map<OpId, OpWork> facts;
  std::unordered_map<StreamId, OpId> last;       // that takes time
  std::unordered_map<OpId, OpId> before_record;  // by record op
  // Once for what records follow, also those of the step before, and once for the waits.
  for (const bool known : {false, true}) {
    std::unordered_map<StreamId, std::vector<OpId>> awaiting;
    const auto visit = [&](const Op& op) {
      if (takes_time(op)) {
        last[op.stream] = op.id;
        if (!known) return;
        OpWork& mine = facts[op.id] = facts_of(program, communicators, op);
        mine.waits = std::exchange(awaiting[op.stream], {});
      } else if (std::holds_alternative<Record>(op.body) && last.contains(op.stream)) {
        before_record[op.id] = last[op.stream];
      } else if (const auto* wait = std::get_if<Wait>(&op.body); wait != nullptr && known) {
        for (const Binding& binding : wait->bindings) {
          const auto awaited = before_record.find(binding.record);
          std::vector<OpId>& list = awaiting[op.stream];
          if (awaited != before_record.end() &&
              std::ranges::find(list, awaited->second) == list.end())
            list.push_back(awaited->second);
        }
      }
    };
    for (std::size_t s = 0; s < plan.segments.size(); ++s) for_each_op_of_run(plan, s, visit);
  }
  return facts;
}

Replay replay(const Program& program, const Plan& plan, std::span<const TimedOp> whole,
              Nanos step) {
  Walk walk(program, plan, whole);
  walk.run();
  walk.begin_next(step);  // the step before is like this one: now its records are known
  walk.run();
  Replay result = walk.take();
  result.buffers = within_step(result.buffers, step);
  return result;
}

}  // namespace mfsdp
