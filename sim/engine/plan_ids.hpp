// The ids of a program resolved to positions in its lists.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Positions by id; ids may have gaps of any size.
template <class Key>
class Positions {
 public:
  template <class T>
  Positions(const std::vector<T>& list, std::string_view kind) : kind_(kind) {
    for (std::size_t i = 0; i < list.size(); ++i)
      positions_.emplace(list[i].id, static_cast<std::uint32_t>(i));
  }

  /// The position of an id that is known to be there.
  [[nodiscard]] std::uint32_t operator[](Key id) const { return positions_.at(id); }

  /// The position, or an error that names the place.
  [[nodiscard]] Result<std::uint32_t> resolve(Key id, const auto& place) const {
    const auto it = positions_.find(id);
    if (it != positions_.end()) return it->second;
    return fail(place(), fmt::format("there is no {} with id {}", kind_, id.value));
  }

 private:
  std::unordered_map<Key, std::uint32_t> positions_;
  std::string_view kind_;
};

struct PlanIds {
  explicit PlanIds(const Program& program)
      : streams(program.streams, "stream"),
        communicators(program.communicators, "communicator"),
        events(program.events, "event"),
        units(program.units, "unit"),
        buffers(program.buffers, "buffer"),
        pools(program.pools, "pool") {}

  Positions<StreamId> streams;
  Positions<CommunicatorId> communicators;
  Positions<EventId> events;
  Positions<UnitId> units;
  Positions<BufferId> buffers;
  Positions<PoolId> pools;
};

}  // namespace mfsdp
