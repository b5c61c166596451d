#include "sim/simulator/lowered_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace mfsdp {
namespace {

/// A launch of which members are still added.
struct OpenLaunch {
  std::uint32_t communicator = 0;
  std::int64_t bandwidth = 0;  ///< ns
  Int128 wanted = 0;           ///< demand on the link times ns; kOne is 1
  std::int64_t latency = 0;    ///< ns
  bool by_kernels = false;
  Launch launch{};
  std::vector<std::uint32_t> channels{};  ///< with a message
};

class Lowering {
 public:
  Lowering(const Program& program, const Plan& plan, const PlanIds& ids, const Prices& prices)
      : program_(program),
        plan_(plan),
        ids_(ids),
        prices_(prices),
        awaited_(program, plan),
        tracks_(program.streams.size()),
        slots_(first_slots(program)) {}

  Result<LoweredPlan> run() {
    lowered_.leaves_sms = prices_.leaves_sms;
    MFSDP_TRY(open_segments());
    for (const LoweredSegment& segment : lowered_.segments)
      MFSDP_TRY(tracks_.add_segment(plan_, segment.source, ids_, program_.events));
    tracks_.finish();
    lowered_.track_stream = tracks_.streams();
    for (segment_ = 0; segment_ < lowered_.segments.size(); ++segment_) MFSDP_TRY(translate());
    add_live_turns();
    return std::move(lowered_);
  }

 private:
  [[nodiscard]] const std::vector<Op>& ops() const {
    return plan_.segments[lowered_.segments[segment_].source].ops;
  }

  [[nodiscard]] tl::unexpected<Error> wrong(std::size_t op, std::string what) const {
    return fail(place_of(plan_, lowered_.segments[segment_].source, op), std::move(what));
  }

  [[nodiscard]] auto place(std::size_t op) const {
    return [this, op] { return place_of(plan_, lowered_.segments[segment_].source, op); };
  }

  Result<void> open_segments() {
    std::int64_t begun = 0;
    for (std::size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      const auto where = [&] { return fmt::format("{}.{}.repeat", plan_.name, segment.name); };
      if (segment.repeat < 0)
        return fail(where(), fmt::format("expected at least 0, got {}", segment.repeat));
      if (segment.repeat == 0) continue;
      LoweredSegment lowered;
      lowered.source = static_cast<std::uint32_t>(s);
      lowered.repeat = segment.repeat;
      lowered.length = static_cast<std::int64_t>(segment.ops.size());
      lowered.begin = lowered_.length;
      lowered.microbatches = segment.microbatches;
      lowered.begun = begun;
      begun = checked_add(begun, checked_mul(segment.microbatches, segment.repeat));
      lowered.streams.resize(program_.streams.size());
      lowered_.length = checked_add(lowered_.length, checked_mul(lowered.length, lowered.repeat));
      if (lowered_.length > kMostOps || lowered.repeat > kMostOps)
        return fail(where(), fmt::format("a step of more than {} ops is not simulated", kMostOps));
      lowered_.segments.push_back(std::move(lowered));
    }
    if (lowered_.segments.empty()) return {};
    const Segment& first = plan_.segments[lowered_.segments[0].source];
    for (const BufferId id : first.live_in) {
      const auto where = [&] { return fmt::format("{}.{}.live_in", plan_.name, first.name); };
      MFSDP_LET(buffer, ids_.buffers.resolve(id, where));
      if (!program_.buffers[buffer].instances) lowered_.live_in.push_back(slots_[buffer]);
    }
    return {};
  }

  /// Instances of buffers that a step releases before it acquires them are live before the first
  /// op.
  void add_live_turns() {
    std::vector<bool> seen(slots_.back());
    for (const LoweredSegment& segment : lowered_.segments)
      for (std::int64_t k = 0; k < segment.repeat; ++k) {
        bool turns = false;
        for (const Op& op : plan_.segments[segment.source].ops) {
          const auto* acquire = std::get_if<Acquire>(&op.body);
          const auto* release = std::get_if<Release>(&op.body);
          if (acquire == nullptr && release == nullptr) continue;
          const std::uint32_t buffer =
              ids_.buffers[acquire != nullptr ? acquire->buffer : release->buffer];
          const auto& instances = program_.buffers[buffer].instances;
          if (!instances || k >= *instances) continue;  // the same slots again
          turns = true;
          const std::uint32_t slot =
              slots_[buffer] + static_cast<std::uint32_t>(segment.turn(k, op.lag, *instances));
          if (!seen[slot] && release != nullptr) lowered_.live_in.push_back(slot);
          seen[slot] = true;
        }
        if (!turns) break;
      }
  }

  /// Translates the entries of one segment, and the places where the host waits in it.
  Result<void> translate() {
    latest_.assign(program_.events.size(), std::nullopt);
    counted_.assign(tracks_.size(), 0);
    MFSDP_TRY(time_host());
    LoweredSegment& segment = lowered_.segments[segment_];
    segment.ordered_begin = lowered_.ordered;
    for (std::size_t i = 0; i < ops().size(); ++i) {
      Entry entry{.op = static_cast<std::uint32_t>(i)};
      MFSDP_LET(is_entry, translate(ops()[i], i, entry));
      if (is_entry) add(ids_.streams[ops()[i].stream], entry);
    }
    lowered_.ordered = checked_add(lowered_.ordered, checked_mul(segment.ordered, segment.repeat));
    return {};
  }

  /// Computes when the host has issued each op of the segment.
  Result<void> time_host() {
    if (!prices_.host) return {};
    LoweredSegment& segment = lowered_.segments[segment_];
    segment.host_begin = lowered_.host_length;
    segment.issued.reserve(ops().size());
    std::int64_t now = 0;
    for (std::size_t i = 0; i < ops().size(); ++i) {
      const Nanos price = prices_.host(ops()[i]);
      if (price.value < 0)
        return wrong(i, fmt::format("expected a host time of at least 0 ns, got {}", price.value));
      now = checked_add(now, price.value);
      segment.issued.push_back(now);
    }
    lowered_.host_length =
        checked_add(lowered_.host_length, checked_mul(segment.host_length(), segment.repeat));
    return {};
  }

  /// False if the op leaves no entry in its stream.
  Result<bool> translate(const Op& op, std::size_t i, Entry& entry) {
    const std::uint32_t stream = ids_.streams[op.stream];
    switch (op.kind()) {
      case OpKind::acquire:
        return use_buffer(std::get<Acquire>(op.body).buffer, Action::acquire, op, i, entry);
      case OpKind::release:
        return use_buffer(std::get<Release>(op.body).buffer, Action::release, op, i, entry);
      case OpKind::kernel: {
        const KernelPrice price = prices_.kernel(op);
        entry.kind = price.kind;
        entry.ragged_loss = std::clamp<std::int64_t>(price.ragged_loss, 0, kOne);
        return run_for(price.duration, Action::kernel, i, entry);
      }
      case OpKind::copy: return copy(prices_.copy(std::get<Copy>(op.body)), i, entry);
      case OpKind::group_begin:
        open_[stream] = {.communicator =
                             ids_.communicators[std::get<GroupBegin>(op.body).communicator]};
        return false;
      case OpKind::collective: {
        const auto group = open_.find(stream);
        if (group != open_.end()) {
          MFSDP_TRY(join(group->second, i));
          return false;
        }
        OpenLaunch alone{.communicator =
                             ids_.communicators[std::get<Collective>(op.body).communicator]};
        MFSDP_TRY(join(alone, i));
        return close(std::move(alone), op, i, entry);
      }
      case OpKind::group_end: {
        OpenLaunch group = std::move(open_[stream]);
        open_.erase(stream);
        if (ids_.communicators[std::get<GroupEnd>(op.body).communicator] != group.communicator)
          return wrong(i, "expected the communicator of its group_begin");
        return close(std::move(group), op, i, entry);
      }
      case OpKind::record: {
        const std::uint32_t event = ids_.events[std::get<Record>(op.body).event];
        entry.action = Action::record;
        entry.detail = tracks_.of_record(event, stream);
        latest_[event] = TrackPlace{entry.detail, counted_[entry.detail]++};
        return true;
      }
      case OpKind::wait:
        MFSDP_TRY(add_wait(std::get<Wait>(op.body).event, std::get<Wait>(op.body).bindings, op, i));
        entry.action = Action::wait;
        entry.detail = static_cast<std::uint32_t>(lowered_.waits.size() - 1);
        return true;
      case OpKind::host_wait: {
        const auto& wait = std::get<HostWait>(op.body);
        MFSDP_TRY(add_wait(wait.event, wait.bindings, op, i));
        lowered_.segments[segment_].host.push_back(
            {.op = entry.op, .wait = static_cast<std::uint32_t>(lowered_.waits.size() - 1)});
        return false;
      }
    }
    return false;
  }

  Result<bool> use_buffer(BufferId id, Action action, const Op& op, std::size_t i, Entry& entry) {
    MFSDP_LET(buffer, ids_.buffers.resolve(id, place(i)));
    if (program_.buffers[buffer].persistent)
      return wrong(i, fmt::format("buffer '{}' is persistent", program_.buffers[buffer].name));
    entry.action = action;
    entry.detail = static_cast<std::uint32_t>(lowered_.uses.size());
    lowered_.uses.push_back({.buffer = buffer,
                             .slot = slots_[buffer],
                             .instances = program_.buffers[buffer].instances.value_or(1),
                             .lag = op.lag});
    return true;
  }

  Result<bool> run_for(Nanos price, Action action, std::size_t i, Entry& entry) const {
    if (price.value < 0)
      return wrong(i, fmt::format("expected a price of at least 0 ns, got {}", price.value));
    entry.action = action;
    entry.duration = price.value;
    return true;
  }

  Result<bool> copy(const CopyPrice& price, std::size_t i, Entry& entry) {
    MFSDP_LET(is_entry, run_for(price.duration, Action::copy, i, entry));
    if (price.latency.value < 0 || price.latency > price.duration)
      return wrong(i, fmt::format("expected 0 <= latency <= duration, got {} and {} ns",
                                  price.latency.value, price.duration.value));
    if (price.link && price.duration.value > 0) {
      const Int128 bandwidth = price.duration.value - price.latency.value;
      entry.detail = static_cast<std::uint32_t>(lowered_.transfers.size());
      lowered_.transfers.push_back(
          {.demand = static_cast<std::int64_t>(bandwidth * kOne / price.duration.value),
           .link = *price.link});
    }
    return is_entry;
  }

  /// Adds a send or recv. Messages of one channel follow each other in a launch.
  void add_message(OpenLaunch& open, const Collective& collective, const CollectivePrice& price) {
    const PeerChannel channel{.communicator = open.communicator,
                              .peer = *collective.peer,
                              .sends = collective.kind == CollectiveKind::send};
    auto& known = lowered_.channels;
    const auto at = static_cast<std::uint32_t>(std::ranges::find(known, channel) - known.begin());
    if (at == known.size()) known.push_back(channel);
    Message message{.channel = at,
                    .duration = price.duration.value,
                    .link = price.link,
                    .bytes = bytes_of(collective.count, collective.dtype)};
    const std::int64_t bandwidth = price.duration.value - price.latency.value;
    if (std::ranges::find(open.channels, at) != open.channels.end())
      message.duration = bandwidth;
    else
      open.channels.push_back(at);
    if (price.duration.value > 0)
      message.demand = static_cast<std::int64_t>(
          static_cast<Int128>(std::clamp<std::int64_t>(price.link_share, 0, kOne)) * bandwidth /
          price.duration.value);
    open.launch.messages.push_back(message);
  }

  Result<void> join(OpenLaunch& open, std::size_t i) {
    const auto& collective = std::get<Collective>(ops()[i].body);
    const std::uint32_t communicator = ids_.communicators[collective.communicator];
    if (communicator != open.communicator)
      return wrong(i, "expected the communicator of its group");
    if (program_.communicators[communicator].size < 1)
      return wrong(i, "expected a communicator of at least 1 rank");
    const CollectivePrice price =
        prices_.collective(collective, program_.communicators[communicator]);
    if (price.latency.value < 0 || price.latency > price.duration)
      return wrong(i, fmt::format("expected 0 <= latency <= duration, got {} and {} ns",
                                  price.latency.value, price.duration.value));
    const std::int64_t bandwidth = price.duration.value - price.latency.value;
    open.bandwidth = checked_add(open.bandwidth, bandwidth);
    open.wanted +=
        static_cast<Int128>(bandwidth) * std::clamp<std::int64_t>(price.link_share, 0, kOne);
    open.latency = std::max(open.latency, price.latency.value);
    open.launch.occupancy = std::clamp<std::int64_t>(price.occupancy, open.launch.occupancy, kOne);
    for (std::size_t kind = 0; kind < kKernelClasses; ++kind) {
      const auto raise = [kind](auto& largest, const auto& own) {
        largest.values[kind] = std::max(largest.values[kind], own.values[kind]);
      };
      raise(open.launch.weight, price.weight);
      raise(open.launch.traffic, price.traffic);
      raise(open.launch.drag, price.drag);
    }
    const bool sends_or_receives = is_point_to_point(collective.kind);
    if (!open.launch.members.empty() && sends_or_receives != open.launch.is_point_to_point())
      return wrong(i, "expected either collectives or sends and receives in a group");
    if (sends_or_receives) {
      if (!collective.peer) return wrong(i, "expected a peer");
      add_message(open, collective, price);
    }
    open.launch.link = price.link;
    open.launch.brings = awaited_.of(ops()[i], collective);
    open.by_kernels |= price.by_kernels;
    open.launch.bytes += bytes_of(collective.count, collective.dtype);
    open.launch.members.push_back(static_cast<std::uint32_t>(i));
    return {};
  }

  Result<bool> close(OpenLaunch open, const Op& op, std::size_t i, Entry& entry) {
    Launch& launch = open.launch;
    launch.communicator = open.communicator;
    launch.unit = static_cast<std::uint32_t>(program_.units.size());
    if (op.unit) MFSDP_SET(launch.unit, ids_.units.resolve(*op.unit, place(i)));
    const std::uint32_t track = tracks_.of_launch(open.communicator);
    launch.turn = tracks_.same_instance(segment_, {track, counted_[track]++});
    --launch.turn.base;  // it runs after all earlier launches
    if (prices_.launches_in_order && open.by_kernels)
      launch.order = lowered_.segments[segment_].ordered++;
    entry.action = Action::launch;
    entry.detail = static_cast<std::uint32_t>(lowered_.launches.size());
    entry.duration = checked_add(open.bandwidth, open.latency);
    if (entry.duration > 0) launch.demand = static_cast<std::int64_t>(open.wanted / entry.duration);
    lowered_.launches.push_back(std::move(launch));
    return true;
  }

  /// Adds a wait for an event with several instances.
  Result<void> add_turn_wait(std::uint32_t event, const Op& op, std::size_t i) {
    const LoweredSegment& segment = lowered_.segments[segment_];
    const TrackTable::TurnWait wait{.segment = segment_,
                                    .op = i,
                                    .event = event,
                                    .lag = op.lag,
                                    .instances = *program_.events[event].instances};
    const std::int64_t period = wait.instances / std::gcd(wait.instances, segment.microbatches);
    const std::int64_t count = std::min(segment.repeat, wait.instances + period);
    LoweredWait lowered{.first = static_cast<std::uint32_t>(lowered_.targets.size()),
                        .count = static_cast<std::uint32_t>(count),
                        .period = static_cast<std::uint32_t>(std::min(period, count))};
    for (std::int64_t k = 0; k < count; ++k) {
      const auto target = tracks_.of_turn(wait, k);
      if (!target)
        return wrong(i, fmt::format("deadlock: in instance {} of the segment it waits for event "
                                    "'{}', which no op records in that turn",
                                    k, program_.events[event].name));
      lowered_.targets.push_back(*target);
    }
    lowered_.waits.push_back(lowered);
    return {};
  }

  void add_targets(const Target& first, const Target& later) {
    lowered_.waits.push_back(
        {.first = static_cast<std::uint32_t>(lowered_.targets.size()), .count = 2, .period = 1});
    lowered_.targets.push_back(first);
    lowered_.targets.push_back(later);
  }

  Result<void> add_wait(EventId id, std::span<const Binding> bindings, const Op& op,
                        std::size_t i) {
    MFSDP_LET(event, ids_.events.resolve(id, place(i)));
    if (program_.events[event].instances) return add_turn_wait(event, op, i);
    if (latest_[event]) {
      const Target target = tracks_.same_instance(segment_, *latest_[event]);
      add_targets(target, target);
    } else {
      const std::string& name = program_.events[event].name;
      const auto before = tracks_.latest_before(segment_, event);
      if (!before)
        return wrong(i, fmt::format("deadlock: waits for event '{}', which no op records", name));
      const auto now = std::ranges::find(bindings, 0, &Binding::distance);
      if (before->step_before && now != bindings.end())
        return wrong(i, fmt::format("deadlock: waits for event '{}' of this step, but the host "
                                    "issues its record, op {}, only later",
                                    name, now->record.value));
      add_targets(before->target,
                  tracks_.instance_before(segment_, event).value_or(before->target));
    }
    return {};
  }

  void add(std::uint32_t stream, const Entry& entry) {
    LoweredSegment& segment = lowered_.segments[segment_];
    segment.streams[stream].push_back(entry);
    lowered_.entries += segment.repeat;
    if (entry.action == Action::launch) {
      const std::size_t members = lowered_.launches[entry.detail].members.size();
      lowered_.spans += segment.repeat * static_cast<std::int64_t>(members);
    } else if (entry.action == Action::kernel || entry.action == Action::copy) {
      lowered_.spans += segment.repeat;
    }
  }

  const Program& program_;
  const Plan& plan_;
  const PlanIds& ids_;
  const Prices& prices_;
  AwaitedKinds awaited_;
  TrackTable tracks_;
  std::vector<std::uint32_t> slots_;  // of each buffer, the first
  LoweredPlan lowered_;

  // State of the segment that is being translated:
  std::size_t segment_ = 0;
  std::vector<std::optional<TrackPlace>> latest_;  // record by event
  std::vector<std::int64_t> counted_;              // by track
  std::map<std::uint32_t, OpenLaunch> open_;       // group by stream
};

}  // namespace

Result<LoweredPlan> lower(const Program& program, const Plan& plan, const PlanIds& ids,
                          const Prices& prices) {
  return Lowering(program, plan, ids, prices).run();
}

}  // namespace mfsdp
