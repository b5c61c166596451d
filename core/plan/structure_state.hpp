// State of the structural check (structure_faults.hpp), and how its steps report faults.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/structure_faults.hpp"

namespace mfsdp::structure {

/// The lag limit of a pass that no segment calls.
inline constexpr Int128 kNotCalled = -1;

struct State {
  const Program& program;
  std::size_t most;  ///< faults of each kind
  std::vector<StructureFault> faults{};
  std::array<std::size_t, 5> counts{};  ///< of faults, by kind
  IdIndex<StreamId> streams{};
  IdIndex<CommunicatorId> communicators{};
  IdIndex<EventId> events{};
  IdIndex<UnitId> units{};
  IdIndex<PoolId> pools{};
  IdIndex<BufferId> buffers{};
  IdIndex<GroupId> groups{};
  IdIndex<OpId> ops{};
  IdIndex<PassId> passes{};  ///< of the plan
  std::set<Port> ports{};    ///< that some buffer is
  /// What persistent buffers hold: kind, optimizer state, group.
  std::set<std::tuple<ContentKind, std::string, GroupId>> kept{};
  std::vector<std::pair<OpId, EventId>> records{};  ///< of the plan, ascending
  // Positions of the plan, of the list of ops (instances.hpp) and of the op that are being checked.
  std::size_t plan = 0;
  std::size_t list = 0;
  std::size_t op = 0;
  const Op* now = nullptr;     ///< that op
  const Op* launch = nullptr;  ///< the group_begin that has no group_end yet
  /// By list: the ops' own lags stay below it, so that every call of the list works on microbatches
  /// that have begun.
  std::vector<Int128> lag_limit{};
};

/// Whether another fault of that kind is kept: ask before composing its text.
inline bool wants(const State& s, StructureFaultKind kind) {
  return s.counts.at(static_cast<std::size_t>(kind)) < s.most;
}

inline void add(State& s, StructureFaultKind kind, std::string where, std::string what,
                std::optional<BufferId> buffer = std::nullopt) {
  if (!wants(s, kind)) return;
  ++s.counts.at(static_cast<std::size_t>(kind));
  s.faults.push_back(
      {.kind = kind, .where = std::move(where), .what = std::move(what), .buffer = buffer});
}

/// The segment or the pass whose list is being checked.
inline std::string list_place(const State& s) {
  const std::size_t segments = s.program.plans[s.plan].segments.size();
  return s.list < segments ? fmt::format("plans[{}].segments[{}]", s.plan, s.list)
                           : fmt::format("plans[{}].passes[{}]", s.plan, s.list - segments);
}

/// At the op that is being checked: `field` continues its path.
inline void add_here(State& s, StructureFaultKind kind, std::string_view field, std::string what,
                     std::optional<BufferId> buffer = std::nullopt) {
  if (wants(s, kind))
    add(s, kind, fmt::format("{}.ops[{}]{}", list_place(s), s.op, field), std::move(what), buffer);
}

/// Adds a fault of the op's body, which is an object with one key.
inline void add_in_body(State& s, StructureFaultKind kind, std::string_view field, std::string what,
                        std::optional<BufferId> buffer = std::nullopt) {
  if (wants(s, kind))
    add_here(s, kind, fmt::format(".body.{}{}", to_string(s.now->kind()), field), std::move(what),
             buffer);
}

inline std::string no_such(std::string_view what, std::uint32_t id) {
  return fmt::format("there is no {} with id {}", what, id);
}

template <class Key>
bool resolves_here(State& s, const IdIndex<Key>& ids, Key id, std::string_view field,
                   std::string_view what) {
  if (ids.find(id)) return true;
  add_here(s, StructureFaultKind::unknown_id, field, no_such(what, id.value));
  return false;
}

template <class Key>
bool resolves_in_body(State& s, const IdIndex<Key>& ids, Key id, std::string_view field,
                      std::string_view what) {
  if (ids.find(id)) return true;
  add_in_body(s, StructureFaultKind::unknown_id, field, no_such(what, id.value));
  return false;
}

/// Ids are unique; mesh, groups, pools and buffers are in bounds.
void check_lists(State& s);
/// Ops of plan `s.plan` name what there is, and touch bytes of their buffers.
void check_plan(State& s, const Plan& plan);

}  // namespace mfsdp::structure
