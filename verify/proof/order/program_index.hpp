// Positions in a program's lists, by id.
#pragma once

#include "core/plan/index.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// The first of two equal ids counts (MF002 reports the other).
struct ProgramIndex {
  explicit ProgramIndex(const Program& program)
      : streams(program.streams),
        communicators(program.communicators),
        events(program.events),
        units(program.units),
        pools(program.pools),
        buffers(program.buffers) {}

  IdIndex<StreamId> streams;
  IdIndex<CommunicatorId> communicators;
  IdIndex<EventId> events;
  IdIndex<UnitId> units;
  IdIndex<PoolId> pools;
  IdIndex<BufferId> buffers;
};

}  // namespace mfsdp
