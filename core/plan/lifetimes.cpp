#include "core/plan/lifetimes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/plan/happens_before.hpp"
#include "core/plan/index.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// An acquire and its release, as indices of instances of ops.
struct Use {
  std::size_t buffer = 0;
  std::size_t slot = 0;  ///< of the buffer's instance (rotation.hpp)
  std::size_t acquire = 0;
  std::size_t release = 0;
};

/// Pairs the acquires of the first step with their releases, which may be in the second step.
/// Buffers that are live at the step's begin were acquired in the step before.
Result<std::vector<Use>> pair_uses(const Program& program, const Plan& plan,
                                   const HappensBefore& order, const IdIndex<BufferId>& index,
                                   const std::vector<std::uint32_t>& slots) {
  std::vector<Use> uses;
  std::vector<std::optional<std::size_t>> open(slots.back());
  std::vector<std::int64_t> live_in(program.buffers.size());
  if (!plan.segments.empty())
    for (const BufferId id : plan.segments.front().live_in)
      if (const auto buffer = index.find(id)) ++live_in[*buffer];
  const auto slot_of = [&](std::size_t buffer, const OpInstance& instance) {
    const std::int64_t instances = program.buffers[buffer].instances.value_or(1);
    return slots[buffer] +
           static_cast<std::size_t>(instance_of(instance.begun, instance.lag, instances));
  };
  for (std::size_t i = 0; i < order.instances().size(); ++i) {
    const OpInstance& instance = order.instances()[i];
    if (const auto* acquire = std::get_if<Acquire>(&instance.op->body)) {
      auto& opened = open[slot_of(index[acquire->buffer], instance)];
      if (opened)
        return fail(fmt::format("op {} ({})", instance.op->id.value, instance.op->name),
                    fmt::format("acquires buffer '{}' while it is live",
                                program.buffers[index[acquire->buffer]].name));
      opened = i;
    } else if (const auto* release = std::get_if<Release>(&instance.op->body)) {
      const std::size_t buffer = index[release->buffer];
      const std::size_t slot = slot_of(buffer, instance);
      if (!open[slot] && live_in[buffer] > 0) {
        --live_in[buffer];
        continue;
      }
      if (!open[slot])
        return fail(
            fmt::format("op {} ({})", instance.op->id.value, instance.op->name),
            fmt::format("releases buffer '{}', which is not live", program.buffers[buffer].name));
      if (order.instances()[*open[slot]].step == 0)
        uses.push_back({.buffer = buffer, .slot = slot, .acquire = *open[slot], .release = i});
      open[slot].reset();
    }
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b)
    for (std::size_t slot = slots[b]; slot < slots[b + 1]; ++slot)
      if (open[slot] && order.instances()[*open[slot]].step == 0)
        return fail(fmt::format("buffer '{}'", program.buffers[b].name), "is never released");
  return uses;
}

/// Instances of each stream, in stream order.
std::vector<std::vector<std::size_t>> by_stream(const HappensBefore& order) {
  std::vector<std::vector<std::size_t>> lists(order.streams());
  for (std::size_t i = 0; i < order.instances().size(); ++i)
    lists[order.instances()[i].stream].push_back(i);
  return lists;
}

/// The first position of `stream` that is ordered after `release`.
std::int64_t known_at(const HappensBefore& order, const std::vector<std::size_t>& stream,
                      std::size_t release) {
  const auto knows = [&](std::size_t instance) { return order.before(release, instance); };
  const auto first = std::ranges::partition_point(stream, [&](std::size_t i) { return !knows(i); });
  return first - stream.begin();
}

/// Adds [begin, end), folded into one step of `length` positions. False if it overlaps itself.
bool add_wrapped(std::vector<Lifetime>& list, Lifetime life, std::int64_t length) {
  if (life.end - life.begin > length) return false;
  if (life.end <= length) {
    list.push_back(life);
  } else {
    list.push_back({.begin = life.begin, .end = length});
    list.push_back({.begin = 0, .end = life.end - length});
  }
  return true;
}

bool sort_and_check(std::vector<Lifetime>& list) {
  std::ranges::sort(list, {}, &Lifetime::begin);
  return std::ranges::adjacent_find(list, [](const Lifetime& a, const Lifetime& b) {
           return a.end > b.begin;
         }) == list.end();
}

std::int64_t most_alive(const PoolLifetimes& pool) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // position, +1 or -1
  for (const BufferLifetimes& buffer : pool.buffers)
    for (const Lifetime& life : buffer.lifetimes) {
      changes.emplace_back(life.begin, 1);
      changes.emplace_back(life.end, -1);
    }
  std::ranges::sort(changes);  // ends sort before begins at one position
  std::int64_t alive = 0;
  std::int64_t most = 0;
  for (const auto& [position, change] : changes) most = std::max(most, alive += change);
  return most;
}

}  // namespace

Result<std::vector<PoolLifetimes>> buffer_lifetimes(const Program& program, const Plan& plan) {
  const HappensBefore order(program, plan);
  const IdIndex<BufferId> buffer_index(program.buffers);
  const IdIndex<PoolId> pool_index(program.pools);
  const std::vector<std::uint32_t> slots = first_slots(program);
  MFSDP_LET(uses, pair_uses(program, plan, order, buffer_index, slots));
  const auto streams = by_stream(order);

  std::vector<PoolLifetimes> pools(program.pools.size());
  std::vector<std::optional<std::uint32_t>> acquiring(program.pools.size());
  std::vector<std::optional<std::size_t>> place(slots.back());
  std::ranges::sort(uses, {}, &Use::acquire);
  for (const Use& use : uses) {
    const Buffer& buffer = program.buffers[use.buffer];
    const std::size_t p = pool_index[buffer.pool];
    const OpInstance& acquire = order.instances()[use.acquire];
    if (acquiring[p].value_or(acquire.stream) != acquire.stream)
      return fail(fmt::format("pool '{}'", program.pools[p].name),
                  fmt::format("buffer '{}' is acquired on another stream than the pool's others",
                              buffer.name));
    acquiring[p] = acquire.stream;
    const auto& stream = streams[acquire.stream];
    PoolLifetimes& pool = pools[p];
    pool.pool = buffer.pool;
    pool.length = static_cast<std::int64_t>(stream.size()) / 2;
    if (!place[use.slot]) {
      place[use.slot] = pool.buffers.size();
      pool.buffers.push_back({.buffer = buffer.id, .lifetimes = {}});
    }
    const Lifetime life{.begin = acquire.position, .end = known_at(order, stream, use.release)};
    if (!add_wrapped(pool.buffers[*place[use.slot]].lifetimes, life, pool.length))
      return fail(fmt::format("buffer '{}'", buffer.name),
                  "is acquired again before its release is known to have run");
  }
  std::erase_if(pools, [](const PoolLifetimes& pool) { return pool.buffers.empty(); });
  for (PoolLifetimes& pool : pools)
    for (BufferLifetimes& buffer : pool.buffers)
      if (!sort_and_check(buffer.lifetimes))
        return fail(fmt::format("buffer '{}'", program.buffers[buffer_index[buffer.buffer]].name),
                    "is acquired again before its release is known to have run");
  return pools;
}

std::int64_t max_live_buffers(const Program& program, const std::vector<PoolLifetimes>& pools,
                              Category category) {
  const IdIndex<BufferId> index(program.buffers);
  std::int64_t most = 0;
  for (PoolLifetimes pool : pools) {
    std::vector<UnitId> counted;
    std::erase_if(pool.buffers, [&](const BufferLifetimes& lifetimes) {
      const Buffer& buffer = program.buffers[index[lifetimes.buffer]];
      if (buffer.category != category) return true;
      if (category != Category::unsharded_grad || !buffer.unit) return false;
      // Each group of a unit has a buffer; they are acquired and released together as one gradient.
      if (std::ranges::find(counted, *buffer.unit) != counted.end()) return true;
      counted.push_back(*buffer.unit);
      return false;
    });
    // A unit's casts to FP8 are beside its other weights and count as one with them.
    PoolLifetimes casts = pool;
    const auto holds_casts = [&](const BufferLifetimes& lifetimes) {
      const Buffer& buffer = program.buffers[index[lifetimes.buffer]];
      return buffer.holds && buffer.holds->kind == ContentKind::cast_parameter;
    };
    std::erase_if(casts.buffers, std::not_fn(holds_casts));
    std::erase_if(pool.buffers, holds_casts);
    most += std::max(most_alive(pool), most_alive(casts));
  }
  return most;
}

Result<std::int64_t> max_live_buffers(const Program& program, const Plan& plan, Category category) {
  MFSDP_LET(pools, buffer_lifetimes(program, plan));
  return max_live_buffers(program, pools, category);
}

}  // namespace mfsdp
