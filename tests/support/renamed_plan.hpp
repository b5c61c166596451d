// The same program under other names and ids, with its tables in another order: its meaning is the
// same, so every reader must give the same results.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::test {

/// Renames everything but what names mean something for: plans, parameters, operands' roles,
/// attributes and the optimizer's states.
class Renaming {
 public:
  explicit Renaming(std::uint32_t seed) : random_(seed) {}

  [[nodiscard]] Program operator()(Program program) {
    for (Plan& plan : program.plans)
      for (Segment& segment : plan.segments)
        for (const Op& op : segment.ops) ops_.emplace(op.id, OpId());
    number(ops_);
    renumber(program.streams, streams_);
    renumber(program.communicators, communicators_);
    renumber(program.events, events_);
    renumber(program.units, units_);
    renumber(program.groups, groups_);
    renumber(program.pools, pools_);
    renumber(program.buffers, buffers_);
    for (RankClass& ranks : program.classes) ranks.role = name();
    for (Communicator& communicator : program.communicators) communicator.purpose = name();
    for (Event& event : program.events) event.name = name();
    for (PlanUnit& unit : program.units) unit.name = name();
    for (Group& group : program.groups) rename(group);
    for (Pool& pool : program.pools) {
      pool.name = name();
      if (pool.registered) pool.registered = communicators_.at(*pool.registered);
    }
    for (Buffer& buffer : program.buffers) rename(buffer);
    shuffle(program.plans);
    for (Plan& plan : program.plans)
      for (Segment& segment : plan.segments) rename(segment);
    return program;
  }

 private:
  template <class Key>
  using Ids = std::map<Key, Key>;

  std::string name() { return "n" + std::to_string(random_()); }

  template <class T>
  void shuffle(std::vector<T>& list) {
    std::ranges::shuffle(list, random_);
  }

  /// Other ids for the keys, some of them large.
  template <class Key>
  void number(Ids<Key>& ids) {
    std::vector<std::size_t> numbers(2 * ids.size() + 1);
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    numbers.back() = 4'000'000'000;
    shuffle(numbers);
    for (std::size_t i = 0; auto& [from, to] : ids) to = Key(numbers[i++]);
  }
  template <class T, class Key>
  void renumber(std::vector<T>& list, Ids<Key>& ids) {
    for (const T& thing : list) ids.emplace(thing.id, Key());
    number(ids);
    for (T& thing : list) thing.id = ids.at(thing.id);
    shuffle(list);
  }

  void rename(Group& group) {
    group.unit = units_.at(group.unit);
    shuffle(group.parameters);
    shuffle(group.reduce);
  }
  void rename(Buffer& buffer) {
    buffer.name = name();
    buffer.pool = pools_.at(buffer.pool);
    if (buffer.unit) buffer.unit = units_.at(*buffer.unit);
    if (buffer.slot_class) buffer.slot_class = *buffer.slot_class + 7;
    if (!buffer.holds) return;
    for (HeldGroup& held : buffer.holds->groups) held.group = groups_.at(held.group);
    shuffle(buffer.holds->groups);
  }
  void rename(Segment& segment) {
    segment.name = name();
    for (auto* live : {&segment.live_in, &segment.live_out}) {
      for (BufferId& id : *live) id = buffers_.at(id);
      std::ranges::sort(*live);
    }
    for (Op& op : segment.ops) {
      op.id = ops_.at(op.id);
      op.name = name();
      op.stream = streams_.at(op.stream);
      if (op.unit) op.unit = units_.at(*op.unit);
      if (op.group) op.group = groups_.at(*op.group);
      std::visit([this](auto& body) { rename(body); }, op.body);
    }
  }
  void rename(Operand& operand) {
    operand.buffer = buffers_.at(operand.buffer);
    shuffle(operand.rank_strides);
  }
  void rename(Kernel& kernel) {
    for (Operand& operand : kernel.operands) rename(operand);
  }
  void rename(Collective& collective) {
    collective.communicator = communicators_.at(collective.communicator);
    rename(collective.input);
    rename(collective.output);
  }
  void rename(Copy& copy) {
    rename(copy.input);
    rename(copy.output);
  }
  void rename(Record& record) { record.event = events_.at(record.event); }
  template <class AnyWait>
    requires requires(AnyWait& wait) { wait.bindings; }
  void rename(AnyWait& wait) {
    wait.event = events_.at(wait.event);
    for (Binding& binding : wait.bindings) binding.record = ops_.at(binding.record);
    shuffle(wait.bindings);
  }
  template <class Life>
    requires requires(Life& life) { life.buffer; }
  void rename(Life& life) {
    life.buffer = buffers_.at(life.buffer);
  }
  template <class Bracket>
    requires requires(Bracket& bracket) { bracket.communicator; }
  void rename(Bracket& bracket) {
    bracket.communicator = communicators_.at(bracket.communicator);
  }

  std::mt19937 random_;
  Ids<OpId> ops_;
  Ids<StreamId> streams_;
  Ids<CommunicatorId> communicators_;
  Ids<EventId> events_;
  Ids<UnitId> units_;
  Ids<GroupId> groups_;
  Ids<PoolId> pools_;
  Ids<BufferId> buffers_;
};

[[nodiscard]] inline Program renamed(const Program& program, std::uint32_t seed) {
  return Renaming(seed)(program);
}

}  // namespace mfsdp::test
