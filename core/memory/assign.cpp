#include "core/memory/assign.hpp"

#include <algorithm>
#include <map>

#include "core/memory/allocation.hpp"
#include "core/memory/packing.hpp"
#include "core/plan/index.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// Lifetimes of a pool's buffers over all plans. Plans never run at the same time, so the positions
/// of each plan follow those of the one before.
struct PoolTimeline {
  struct OfBuffer {
    BufferId buffer;
    std::vector<std::vector<Lifetime>> instances;
  };
  std::vector<OfBuffer> buffers;
  std::int64_t length = 0;
};

void append(PoolTimeline& timeline, const PoolLifetimes& plan, IdIndex<BufferId>& seen) {
  std::map<BufferId, std::size_t> instances;  // of this plan so far
  for (const BufferLifetimes& buffer : plan.buffers) {
    if (seen.insert(buffer.buffer, timeline.buffers.size()))
      timeline.buffers.push_back({.buffer = buffer.buffer, .instances = {}});
    auto& all = timeline.buffers[seen[buffer.buffer]].instances;
    const std::size_t instance = instances[buffer.buffer]++;
    if (instance == all.size()) all.emplace_back();
    for (const Lifetime& life : buffer.lifetimes)
      all[instance].push_back(
          {.begin = life.begin + timeline.length, .end = life.end + timeline.length});
  }
  timeline.length += plan.length;
}

/// When any of a buffer's instances is live: these are consecutive in the pool.
std::vector<Lifetime> lifetimes_of_any(const std::vector<std::vector<Lifetime>>& instances) {
  if (instances.size() == 1) return instances.front();
  std::vector<Lifetime> all;
  for (const auto& lifetimes : instances) all.insert(all.end(), lifetimes.begin(), lifetimes.end());
  std::ranges::sort(all, {}, &Lifetime::begin);
  std::vector<Lifetime> merged;
  for (const Lifetime& life : all)
    if (merged.empty() || life.begin > merged.back().end)
      merged.push_back(life);
    else
      merged.back().end = std::max(merged.back().end, life.end);
  return merged;
}

/// The largest sum of instances that are live at once.
Bytes most_live(const Program& program, const Pool& pool, const PoolTimeline& timeline) {
  AllocationProblem problem{.items = {}, .alignment = pool.alignment};
  for (const PoolTimeline::OfBuffer& lives : timeline.buffers)
    for (const std::vector<Lifetime>& instance : lives.instances)
      problem.items.push_back(
          {.size = program.buffers[lives.buffer.value].size, .lifetimes = instance});
  return Bytes(lower_bound_of(blocks_of(problem)));
}

Result<std::map<PoolId, PoolTimeline>> timelines(const Program& program) {
  std::map<PoolId, PoolTimeline> all;
  std::map<PoolId, IdIndex<BufferId>> seen;
  for (const Plan& plan : program.plans) {
    MFSDP_LET(pools, buffer_lifetimes(program, plan));
    for (const PoolLifetimes& pool : pools) append(all[pool.pool], pool, seen[pool.pool]);
  }
  return all;
}

/// Places persistent buffers from offset 0 on; returns their end.
std::int64_t place_persistent(Program& program, const Pool& pool) {
  std::int64_t end = 0;
  for (Buffer& buffer : program.buffers) {
    if (buffer.pool != pool.id || !buffer.persistent) continue;
    buffer.offset = Bytes(end);
    end = round_up(checked_add(end, buffer.size.value), pool.alignment);
  }
  return end;
}

void place_transient(Program& program, Pool& pool, const PoolTimeline& timeline,
                     AllocationCache* cache) {
  AllocationProblem problem{.items = {}, .alignment = pool.alignment};
  // Slot classes are numbered by first appearance, which is the order of their slots in memory.
  std::map<std::optional<std::int64_t>, std::int64_t> classes;
  bool rotates = false;
  for (const PoolTimeline::OfBuffer& lives : timeline.buffers) {
    const Buffer& buffer = program.buffers[lives.buffer.value];
    const std::int64_t instances = buffer.instances.value_or(1);
    rotates = rotates || instances > 1;
    const std::int64_t number =
        classes.try_emplace(buffer.slot_class, std::ssize(classes)).first->second;
    problem.items.push_back(
        {.size = instances == 1 ? buffer.size
                                : Bytes(checked_mul(instances, instance_pitch(buffer, pool).value)),
         .lifetimes = lifetimes_of_any(lives.instances),
         .slot_class = number});
  }
  const AllocatorPolicy policy = program.config.allocator;
  const Allocation allocation =
      cache == nullptr ? allocate(problem, policy) : cache->allocate(problem, policy);
  for (std::size_t i = 0; i < timeline.buffers.size(); ++i)
    program.buffers[timeline.buffers[i].buffer.value].offset = pool.height + allocation.offsets[i];
  pool.lower_bound =
      pool.height + (rotates ? most_live(program, pool, timeline) : allocation.lower_bound);
  pool.height += allocation.height;
}

}  // namespace

Result<void> assign_memory(Program& program, AllocationCache* cache) {
  MFSDP_LET(transient, timelines(program));
  for (Pool& pool : program.pools) {
    pool.height = Bytes(place_persistent(program, pool));
    pool.lower_bound = pool.height;
    const auto found = transient.find(pool.id);
    if (found != transient.end()) place_transient(program, pool, found->second, cache);
  }
  return {};
}

}  // namespace mfsdp
