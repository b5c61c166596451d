// Every interleaving of a small plan, state by state: how far each stream and the host are. Slow
// and obvious, and shares nothing with the provers that it judges.
//
// Two ops can run at once exactly if some reachable state has both at the head of their streams and
// ready. Ops that touch only what their own stream touches, and order nothing, are left out: they
// change neither.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::test {

class Interleavings {
 public:
  /// `steps` steps, repeated segments at most twice. Ids are positions, as the planner gives them.
  Interleavings(const Program& program, const Plan& plan, int steps = 2) : program_(program) {
    chains_.resize(program.streams.size() + 1);
    for (int step = 0; step < steps; ++step)
      for (const Segment& segment : plan.segments)
        for (std::int64_t i = 0; i < std::min<std::int64_t>(segment.repeat, 2); ++i)
          for (std::size_t o = 0; o < segment.ops.size(); ++o) issue(segment, o);
    leave_out_private_ops();
  }

  /// Names of two ops that can touch the same bytes at once, one of them writing; or nothing. Also
  /// nothing, with `gave_up`, beyond `most_states` states.
  std::optional<std::string> find_race(std::size_t most_states = 2'000'000) {
    std::set<State> seen;
    std::deque<State> left{State(chains_.size(), 0)};
    seen.insert(left.front());
    while (!left.empty()) {
      const State state = std::move(left.front());
      left.pop_front();
      std::vector<std::size_t> ready;
      for (std::size_t c = 0; c < chains_.size(); ++c)
        if (is_ready(state, c)) ready.push_back(c);
      for (const std::size_t a : ready)
        for (const std::size_t b : ready)
          if (a < b && conflict(head(state, a), head(state, b)))
            return head(state, a).name + " and " + head(state, b).name;
      for (const std::size_t c : ready) {
        State next = state;
        ++next[c];
        if (seen.insert(next).second) left.push_back(std::move(next));
      }
      if (seen.size() > most_states) {
        gave_up = true;
        return std::nullopt;
      }
    }
    states = seen.size();
    return std::nullopt;
  }

  bool gave_up = false;
  std::size_t states = 0;  ///< that were reached, where none has a race

 private:
  using State = std::vector<std::uint16_t>;  // ops done, by chain; the host's comes last

  struct Range {
    std::uint32_t pool;
    std::int64_t begin, end;
    bool writes;
  };
  struct Task {
    std::string name;
    std::size_t host = 0;                    ///< host's tasks that come before its issue
    std::vector<const void*> of;             ///< the buffers touched
    std::vector<std::vector<Range>> ranges;  ///< by rank
    std::vector<std::pair<std::size_t, std::size_t>> after;  ///< chain and number of tasks
    bool orders = false;                                     ///< a record, wait or collective
  };

  std::size_t host() const { return chains_.size() - 1; }
  const Task& head(const State& state, std::size_t c) const { return chains_[c][state[c]]; }

  bool is_ready(const State& state, std::size_t c) const {
    if (state[c] >= chains_[c].size()) return false;
    const Task& task = head(state, c);
    if (c != host() && state[host()] < task.host) return false;
    return std::all_of(task.after.begin(), task.after.end(),
                       [&](const auto& other) { return state[other.first] >= other.second; });
  }

  static bool conflict(const Task& a, const Task& b) {
    for (std::size_t rank = 0; rank < a.ranges.size(); ++rank)
      for (const Range& x : a.ranges[rank])
        for (const Range& y : b.ranges[rank])
          if ((x.writes || y.writes) && x.pool == y.pool && x.begin < y.end && y.begin < x.end)
            return true;
    return false;
  }

  void touch(Task& task, const Operand& operand, bool writes) {
    const Buffer& buffer = program_.buffers[operand.buffer.value];
    const Mesh& mesh = program_.config.mesh;
    task.of.push_back(&buffer);
    for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
      std::int64_t begin = buffer.offset.value + operand.offset;
      for (const RankStride& stride : operand.rank_strides)
        begin += stride.bytes * mesh.index(rank, stride.axis);
      task.ranges[static_cast<std::size_t>(rank)].push_back(
          {buffer.pool.value, begin, begin + operand.span_bytes(), writes});
    }
  }
  void touch(Task& task, BufferId id) {
    const Buffer& buffer = program_.buffers[id.value];
    task.of.push_back(&buffer);
    for (auto& ranges : task.ranges)
      ranges.push_back(
          {buffer.pool.value, buffer.offset.value, buffer.offset.value + buffer.size.value, true});
  }

  Task task_of(const Op& op) {
    Task task;
    task.name = op.name;
    task.ranges.resize(static_cast<std::size_t>(program_.config.mesh.world_size()));
    task.host = chains_[host()].size();
    const auto all = [&](const Operand& operand) {
      touch(task, operand, operand.access != Access::read);
    };
    if (const auto* kernel = std::get_if<Kernel>(&op.body))
      for (const Operand& operand : kernel->operands) all(operand);
    if (const auto* copy = std::get_if<Copy>(&op.body)) {
      all(copy->input);
      all(copy->output);
    }
    if (const auto* collective = std::get_if<Collective>(&op.body)) {
      all(collective->input);
      all(collective->output);
    }
    if (const auto* acquire = std::get_if<Acquire>(&op.body)) touch(task, acquire->buffer);
    if (const auto* release = std::get_if<Release>(&op.body)) touch(task, release->buffer);
    return task;
  }

  void await(Task& task, EventId event) {
    task.orders = true;
    if (const auto found = records_.find(event); found != records_.end())
      task.after.push_back(found->second);
  }

  /// Before it issues a copy of a port the host waits for the last one, then fills or reads its memory.
  void host_work(const Segment& segment, std::size_t o) {
    const Op& op = segment.ops[o];
    const auto* copy = std::get_if<Copy>(&op.body);
    if (copy == nullptr || copy->on_host() == nullptr ||
        !std::ranges::find(program_.buffers, copy->on_host()->buffer, &Buffer::id)->is_port())
      return;
    std::size_t r = o;
    while (segment.ops[r].stream != op.stream || segment.ops[r].kind() != OpKind::record) ++r;
    Task task;
    task.name = "host for " + op.name;
    task.ranges.resize(static_cast<std::size_t>(program_.config.mesh.world_size()));
    const bool fills = copy->kind == CopyKind::h2d;
    touch(task, fills ? copy->input : copy->output, fills);
    await(task, std::get<Record>(segment.ops[r].body).event);
    chains_[host()].push_back(std::move(task));
  }

  void issue(const Segment& segment, std::size_t o) {
    const Op& op = segment.ops[o];
    host_work(segment, o);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) {
      Task task = task_of(op);
      await(task, wait->event);
      chains_[host()].push_back(std::move(task));
      return;
    }
    auto& chain = chains_[op.stream.value];
    Task task = task_of(op);
    if (const auto* wait = std::get_if<Wait>(&op.body)) await(task, wait->event);
    const std::pair<std::size_t, std::size_t> done{op.stream.value, chain.size() + 1};
    if (const auto* record = std::get_if<Record>(&op.body)) {
      task.orders = true;
      records_[record->event] = done;
    }
    if (const auto* collective = std::get_if<Collective>(&op.body)) {
      task.orders = true;
      const auto last = collectives_.find(collective->communicator);
      if (last != collectives_.end()) task.after.push_back(last->second);
      collectives_[collective->communicator] = done;
    }
    chain.push_back(std::move(task));
  }

  void leave_out_private_ops() {
    // Places, not buffers: two buffers of different streams may share one.
    std::map<std::pair<std::uint32_t, std::int64_t>, std::set<std::size_t>> users;
    std::map<std::uint32_t, std::set<std::size_t>> pool_users;
    for (std::size_t c = 0; c < chains_.size(); ++c)
      for (const Task& task : chains_[c])
        for (const auto& ranges : task.ranges)
          for (const Range& range : ranges) pool_users[range.pool].insert(c);
    std::map<const void*, std::set<std::size_t>> buffer_users;
    for (std::size_t c = 0; c < chains_.size(); ++c)
      for (const Task& task : chains_[c])
        for (const void* buffer : task.of) buffer_users[buffer].insert(c);
    const auto is_private = [&](const void* what) {
      const auto& buffer = *static_cast<const Buffer*>(what);
      if (pool_users[buffer.pool.value].size() == 1) return true;
      return buffer.persistent && buffer_users[what].size() == 1;
    };
    for (std::size_t c = 0; c < chains_.size(); ++c) {
      std::vector<std::size_t> kept_before{0};  // by old position
      std::vector<Task> kept;
      for (Task& task : chains_[c]) {
        if (task.orders || !std::all_of(task.of.begin(), task.of.end(), is_private))
          kept.push_back(std::move(task));
        kept_before.push_back(kept.size());
      }
      chains_[c] = std::move(kept);
      renumber_.push_back(std::move(kept_before));
    }
    for (auto& chain : chains_)
      for (Task& task : chain) {
        for (auto& [c, count] : task.after) count = renumber_[c][count];
        task.host = renumber_[host()][task.host];
      }
  }

  const Program& program_;
  std::vector<std::vector<Task>> chains_;
  std::vector<std::vector<std::size_t>> renumber_;
  std::map<EventId, std::pair<std::size_t, std::size_t>> records_;
  std::map<CommunicatorId, std::pair<std::size_t, std::size_t>> collectives_;
};

}  // namespace mfsdp::test
