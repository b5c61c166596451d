// Runs a plan's ops in a random order that streams, events and the host allow: a slow, obvious
// model of a GPU against which schedules are tested.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::test {

class RandomExecution {
 public:
  RandomExecution(const Program& program, const Plan& plan, std::uint32_t seed)
      : plan_(plan), random_(seed) {
    for (const Buffer& buffer : program.buffers) buffers_[buffer.id] = &buffer;
  }

  /// Runs `steps` steps to their end. Returns what went wrong, or nothing.
  std::optional<std::string> run(int steps) {
    for (int step = 0; step < steps; ++step)
      for (const Segment& segment : plan_.segments)
        for (std::int64_t i = 0; i < segment.repeat; ++i)
          for (const Op& op : segment.ops) host_.push_back(&op);
    while (!host_.empty() || pending() > 0) {
      issue();
      if (!run_one()) return "deadlock";
      if (complaint_) return complaint_;
    }
    if (!live_.empty())
      return "buffer " + buffers_[live_.begin()->second]->name + " never released";
    return std::nullopt;
  }

  /// The most buffers of a category that were live at once, by the rules of max_live_buffers(): a
  /// unit's gradients are one; casts are beside its other weights, of which the larger number counts;
  /// pools are added up.
  int most_live(Category category) const {
    std::map<PoolId, int> most;
    for (const auto& [kind, buffers] : most_live_)
      if (kind.category == category) most[kind.pool] = std::max(most[kind.pool], buffers);
    int sum = 0;
    for (const auto& [pool, buffers] : most) sum += buffers;
    return sum;
  }

 private:
  struct Issued {
    const Op* op;
    std::optional<int> awaits;  ///< number of the record that must have run
  };

  std::size_t pending() const {
    std::size_t count = 0;
    for (const auto& [id, queue] : streams_) count += queue.size();
    return count;
  }

  /// The host issues until it has to wait.
  void issue() {
    while (!host_.empty()) {
      const Op* op = host_.front();
      if (const auto* wait = std::get_if<HostWait>(&op->body)) {
        const auto latest = latest_record_.find(wait->event);
        if (latest != latest_record_.end() && !done_[latest->second]) return;
        host_.pop_front();
        continue;
      }
      Issued issued{.op = op, .awaits = std::nullopt};
      if (const auto* wait = std::get_if<Wait>(&op->body)) {
        const auto latest = latest_record_.find(wait->event);
        if (latest != latest_record_.end()) issued.awaits = latest->second;
      }
      if (const auto* record = std::get_if<Record>(&op->body)) {
        latest_record_[record->event] = static_cast<int>(done_.size());
        issued.awaits = static_cast<int>(done_.size());
        done_.push_back(false);
      }
      streams_[op->stream].push_back(issued);
      host_.pop_front();
    }
  }

  bool runnable(const Issued& issued) const {
    return !std::holds_alternative<Wait>(issued.op->body) || !issued.awaits ||
           done_[static_cast<std::size_t>(*issued.awaits)];
  }

  bool run_one() {
    std::vector<StreamId> ready;
    for (const auto& [id, queue] : streams_)
      if (!queue.empty() && runnable(queue.front())) ready.push_back(id);
    if (ready.empty()) return host_.empty() && pending() == 0;
    const StreamId chosen = ready[random_() % ready.size()];
    const Issued issued = streams_[chosen].front();
    streams_[chosen].pop_front();
    if (std::holds_alternative<Record>(issued.op->body))
      done_[static_cast<std::size_t>(*issued.awaits)] = true;
    if (const auto* a = std::get_if<Acquire>(&issued.op->body)) acquire(a->buffer);
    if (const auto* r = std::get_if<Release>(&issued.op->body)) release(r->buffer);
    if (const auto* k = std::get_if<Kernel>(&issued.op->body))
      for (const Operand& operand : k->operands) touch(operand, *issued.op);
    if (const auto* c = std::get_if<Collective>(&issued.op->body)) {
      touch(c->input, *issued.op);
      touch(c->output, *issued.op);
    }
    return true;
  }

  using Place = std::pair<std::uint32_t, std::int64_t>;  // pool, offset
  /// Buffers that are counted together.
  struct LiveKind {
    Category category = Category::activation;
    PoolId pool;
    bool holds_casts = false;

    friend auto operator<=>(const LiveKind&, const LiveKind&) = default;
  };
  /// One buffer, or all of a unit, which count as one.
  using LiveThing = std::pair<std::optional<UnitId>, std::optional<BufferId>>;

  static LiveKind kind_of(const Buffer& buffer) {
    return {.category = buffer.category,
            .pool = buffer.pool,
            .holds_casts = buffer.holds && buffer.holds->kind == ContentKind::cast_parameter};
  }
  static LiveThing thing_of(const Buffer& buffer) {
    if (buffer.category == Category::unsharded_grad && buffer.unit) return {buffer.unit, {}};
    return {{}, buffer.id};
  }

  void acquire(BufferId id) {
    const Buffer& buffer = *buffers_[id];
    if (buffer.size.value == 0) return;
    const Place place{buffer.pool.value, buffer.offset.value};
    const auto next = live_.lower_bound(place);
    const auto end = buffer.offset.value + buffer.size.value;
    if (next != live_.end() && next->first.first == place.first && next->first.second < end)
      report_mismatch(buffer, *buffers_[next->second]);
    if (next != live_.begin()) {
      const auto before = std::prev(next);
      const Buffer& other = *buffers_[before->second];
      if (before->first.first == place.first &&
          other.offset.value + other.size.value > place.second)
        report_mismatch(buffer, other);
    }
    live_.emplace(place, id);
    std::map<LiveThing, int>& alike = live_things_[kind_of(buffer)];
    ++alike[thing_of(buffer)];
    int& most = most_live_[kind_of(buffer)];
    most = std::max(most, static_cast<int>(alike.size()));
  }

  void release(BufferId id) {
    const Buffer& buffer = *buffers_[id];
    if (buffer.size.value == 0) return;
    if (live_.erase({buffer.pool.value, buffer.offset.value}) == 0)
      complaint_ = "release of dead buffer " + buffer.name;
    std::map<LiveThing, int>& alike = live_things_[kind_of(buffer)];
    const auto found = alike.find(thing_of(buffer));
    if (found != alike.end() && --found->second == 0) alike.erase(found);
  }

  void touch(const Operand& operand, const Op& op) {
    const Buffer& buffer = *buffers_[operand.buffer];
    if (buffer.persistent || buffer.size.value == 0) return;
    const auto found = live_.find({buffer.pool.value, buffer.offset.value});
    if (found == live_.end() || found->second != buffer.id)
      complaint_ = "op " + op.name + " touches dead buffer " + buffer.name;
  }

  void report_mismatch(const Buffer& a, const Buffer& b) {
    complaint_ = "buffers " + a.name + " and " + b.name + " share live bytes";
  }

  const Plan& plan_;
  std::mt19937 random_;
  std::map<BufferId, const Buffer*> buffers_;
  std::deque<const Op*> host_;
  std::map<StreamId, std::deque<Issued>> streams_;
  std::map<EventId, int> latest_record_;
  std::vector<bool> done_;
  std::map<Place, BufferId> live_;
  std::map<LiveKind, std::map<LiveThing, int>> live_things_;  // with their live buffers
  std::map<LiveKind, int> most_live_;
  std::optional<std::string> complaint_;
};

}  // namespace mfsdp::test
