#include <algorithm>
#include <cstdint>

#include "core/plan/structure_state.hpp"

namespace mfsdp::structure {
namespace {

/// Sums of pool sizes stay far below 63 bits.
constexpr std::int64_t kMostPoolBytes = std::int64_t{1} << 60;
/// Sizes may be multiplied by the number of ranks of an axis.
constexpr std::int64_t kMostMeshRanks = std::int64_t{1} << 40;
/// Instances of a buffer or an event: microbatches in flight.
constexpr std::int64_t kMostInstances = 4096;
/// Larger than any page of memory that a pool could lie in.
constexpr std::int64_t kMostAlignment = std::int64_t{1} << 30;

template <class Key, class T>
void index(State& s, IdIndex<Key>& into, const std::vector<T>& list, std::string_view name) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!into.insert(list[i].id, i) && wants(s, StructureFaultKind::double_id))
      add(s, StructureFaultKind::double_id, fmt::format("{}[{}].id", name, i),
          fmt::format("id {} appears twice", list[i].id.value));
}

void index_lists(State& s) {
  if (s.program.streams.size() > kMostPlanStreams)
    add(s, StructureFaultKind::malformed, "streams",
        fmt::format("expected at most {}, got {}", kMostPlanStreams, s.program.streams.size()));
  index(s, s.streams, s.program.streams, "streams");
  index(s, s.communicators, s.program.communicators, "communicators");
  index(s, s.events, s.program.events, "events");
  index(s, s.units, s.program.units, "units");
  index(s, s.pools, s.program.pools, "pools");
  index(s, s.buffers, s.program.buffers, "buffers");
  index(s, s.groups, s.program.groups, "groups");
}

void index_ops(State& s) {
  std::size_t number = 0;
  for (s.plan = 0; s.plan < s.program.plans.size(); ++s.plan)
    for (s.list = 0; s.list < count_op_lists(s.program.plans[s.plan]); ++s.list) {
      const auto& ops = op_list(s.program.plans[s.plan], s.list);
      for (s.op = 0; s.op < ops.size(); ++s.op)
        if (!s.ops.insert(ops[s.op].id, number++))
          add_here(s, StructureFaultKind::double_id, ".id",
                   fmt::format("id {} appears twice", ops[s.op].id.value));
    }
}

/// Bounded, so that later checks may multiply sizes.
void check_mesh(State& s) {
  const Mesh& mesh = s.program.config.mesh;
  for (const auto* grid : {&mesh.dense, &mesh.experts}) {
    Int128 ranks = 1;
    for (const MeshAxis& on : *grid) {
      ranks = std::min(ranks * on.size, Int128{kMostMeshRanks} + 1);
      if (on.size < 1)
        return add(s, StructureFaultKind::malformed, "config.mesh",
                   fmt::format("expected at least one rank on {}", to_string(on.axis)));
      if (std::ranges::count(*grid, on.axis, &MeshAxis::axis) > 1)
        return add(s, StructureFaultKind::malformed, "config.mesh",
                   fmt::format("{} is listed twice", to_string(on.axis)));
    }
    if (ranks > kMostMeshRanks)
      return add(s, StructureFaultKind::malformed, "config.mesh",
                 fmt::format("expected at most {} ranks", kMostMeshRanks));
  }
}

void check_group(State& s, std::size_t g) {
  const Group& group = s.program.groups[g];
  if (!s.units.find(group.unit))
    add(s, StructureFaultKind::unknown_id, fmt::format("groups[{}].unit", g),
        no_such("unit", group.unit.value));
  for (const auto& [axes, name] :
       {std::pair{&group.cut, "cut"}, std::pair{&group.reduce, "reduce"}})
    for (std::size_t a = 0; a < axes->size(); ++a)
      if (std::ranges::count(*axes, (*axes)[a]) > 1)
        add(s, StructureFaultKind::malformed, fmt::format("groups[{}].{}[{}]", g, name, a),
            fmt::format("{} is listed twice", to_string((*axes)[a])));
}

void check_pools(State& s) {
  Int128 height = 0;
  for (std::size_t i = 0; i < s.program.pools.size(); ++i) {
    const Pool& pool = s.program.pools[i];
    if (pool.height.value < 0 || height + pool.height.value > kMostPoolBytes)
      add(s, StructureFaultKind::malformed, fmt::format("pools[{}].height", i),
          fmt::format("expected at most 2^60 bytes in all pools, got {} after {} of other pools",
                      pool.height.value, static_cast<std::int64_t>(height)));
    else
      height += pool.height.value;
    if (pool.alignment < 1 || pool.alignment > kMostAlignment ||
        (pool.alignment & (pool.alignment - 1)) != 0)
      add(s, StructureFaultKind::malformed, fmt::format("pools[{}].alignment", i),
          "expected a power of two up to 2^30");
    if (pool.registered && !s.communicators.find(*pool.registered))
      add(s, StructureFaultKind::unknown_id, fmt::format("pools[{}].registered", i),
          no_such("communicator", pool.registered->value));
  }
}

bool bad_instances(const std::optional<std::int64_t>& instances) {
  return instances && (*instances < 2 || *instances > kMostInstances);
}

void add_instances(State& s, const std::string& where,
                   std::optional<BufferId> buffer = std::nullopt) {
  add(s, StructureFaultKind::malformed, where + ".instances",
      fmt::format("expected 2 to {}, or no such field: for one instance and for persistent buffers",
                  kMostInstances),
      buffer);
}

/// Each state that persists is in exactly one buffer: runs and saves look for it there.
void check_holds(State& s, const Buffer& buffer, const std::string& where) {
  const Contents& holds = *buffer.holds;
  const bool is_port = holds.kind == ContentKind::port;
  if (holds.port.has_value() != is_port)
    add(s, StructureFaultKind::malformed, where + ".port",
        is_port ? "missing" : "expected only where kind is port", buffer.id);
  if (holds.groups.empty() != is_port)
    add(s, StructureFaultKind::malformed, where + ".groups",
        is_port ? "expected none, as kind is port" : "expected a group", buffer.id);
  if (holds.port && (!buffer.persistent || !s.ports.insert(*holds.port).second))
    add(s, StructureFaultKind::malformed, where + ".port",
        fmt::format("expected one persistent buffer for {}", to_string(*holds.port)), buffer.id);
  for (std::size_t i = 0; i < holds.groups.size(); ++i) {
    const HeldGroup& held = holds.groups[i];
    const auto place = [&] { return fmt::format("{}.groups[{}]", where, i); };
    if (!s.groups.find(held.group))
      add(s, StructureFaultKind::unknown_id, place() + ".group",
          no_such("group", held.group.value));
    if (held.offset < 0)
      add(s, StructureFaultKind::malformed, place() + ".offset", "expected at least 0", buffer.id);
    if (buffer.persistent && !s.kept.emplace(holds.kind, holds.state, held.group).second)
      add(s, StructureFaultKind::malformed, place(),
          fmt::format("expected one persistent buffer for what it holds of group {}",
                      held.group.value),
          buffer.id);
  }
}

void check_buffer(State& s, std::size_t i) {
  const Buffer& buffer = s.program.buffers[i];
  const auto where = [&] { return fmt::format("buffers[{}]", i); };
  const auto found = s.pools.find(buffer.pool);
  if (!found)
    return add(s, StructureFaultKind::unknown_id, where() + ".pool",
               no_such("pool", buffer.pool.value));
  const Pool& pool = s.program.pools[*found];
  if (buffer.size.value < 0 || buffer.offset.value < 0)
    return add(s, StructureFaultKind::malformed, where(),
               "expected a size and an offset of at least 0", buffer.id);
  if (bad_instances(buffer.instances) || (buffer.instances && buffer.persistent))
    return add_instances(s, where(), buffer.id);
  if (pool.alignment > 0 && buffer.offset.value % pool.alignment != 0)
    add(s, StructureFaultKind::malformed, where() + ".offset",
        fmt::format("expected a multiple of {}", pool.alignment), buffer.id);
  const Int128 unit = std::max<std::int64_t>(pool.alignment, 1);
  const Int128 pitch = (Int128{buffer.size.value} + unit - 1) / unit * unit;
  const Int128 end =
      pitch * (buffer.instances.value_or(1) - 1) + buffer.offset.value + buffer.size.value;
  if (end > pool.height.value)
    add(s, StructureFaultKind::out_of_bounds, where(),
        fmt::format("ends at byte {} of pool '{}', which has {} bytes",
                    static_cast<std::int64_t>(std::min<Int128>(end, INT64_MAX)), pool.name,
                    pool.height.value),
        buffer.id);
  if (buffer.holds) check_holds(s, buffer, where() + ".holds");
}

}  // namespace

void check_lists(State& s) {
  index_lists(s);
  check_mesh(s);
  for (std::size_t g = 0; g < s.program.groups.size(); ++g) check_group(s, g);
  check_pools(s);
  for (std::size_t b = 0; b < s.program.buffers.size(); ++b) check_buffer(s, b);
  for (std::size_t e = 0; e < s.program.events.size(); ++e)
    if (bad_instances(s.program.events[e].instances))
      add_instances(s, fmt::format("events[{}]", e));
  index_ops(s);
}

}  // namespace mfsdp::structure
