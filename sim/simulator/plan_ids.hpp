// Resolves the ids of a program to positions in its lists.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/index.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Positions by id, with an error for unknown ids.
template <class Key>
class Positions {
 public:
  template <class T>
  Positions(const std::vector<T>& list, std::string_view kind) : index_(list), kind_(kind) {}

  /// The position of an id that is known to exist.
  [[nodiscard]] std::uint32_t operator[](Key id) const {
    return static_cast<std::uint32_t>(index_[id]);
  }

  /// The position, or an error that names the place.
  [[nodiscard]] Result<std::uint32_t> resolve(Key id, const auto& place) const {
    if (const auto position = index_.find(id)) return static_cast<std::uint32_t>(*position);
    return fail(place(), fmt::format("there is no {} with id {}", kind_, id.value));
  }

 private:
  IdIndex<Key> index_;
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
