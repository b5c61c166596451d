#include "core/plan/peak_memory.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "core/plan/index.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kRepeats = 2;  ///< as lifetimes unroll a plan

struct Fullest {
  CategoryBytes categories{};
  std::int64_t position = 0;  ///< of the acquire that makes it so
};

Fullest fullest(const Program& program, const IdIndex<BufferId>& index, const PoolLifetimes& pool) {
  struct Change {
    std::int64_t position;
    bool begins;  ///< ends come first at one position
    const Buffer* buffer;
  };
  std::vector<Change> changes;
  for (const BufferLifetimes& buffer : pool.buffers)
    for (const Lifetime& life : buffer.lifetimes) {
      const Buffer* what = &program.buffers[index[buffer.buffer]];
      changes.push_back({.position = life.begin, .begins = true, .buffer = what});
      changes.push_back({.position = life.end, .begins = false, .buffer = what});
    }
  std::ranges::stable_sort(
      changes, {}, [](const Change& change) { return std::pair(change.position, change.begins); });
  Fullest most;
  CategoryBytes live{};
  Bytes total;
  Bytes largest;
  for (const Change& change : changes) {
    const Bytes size = change.begins ? change.buffer->size : Bytes(0) - change.buffer->size;
    live.at(static_cast<std::size_t>(change.buffer->category)) += size;
    total += size;
    if (total <= largest) continue;
    largest = total;
    most = {.categories = live, .position = change.position};
  }
  return most;
}

/// The op on the stream at which memory is used: the next one behind the position that works or, at
/// the segment's end, the one before.
std::string user_at(const Plan& plan, StreamId stream, std::int64_t position) {
  for (const Segment& segment : plan.segments) {
    std::vector<const Op*> ops;
    for (const Op& op : segment.ops)
      if (op.stream == stream) ops.push_back(&op);
    const std::int64_t length = std::ssize(ops) * std::min(segment.repeat, kRepeats);
    if (position >= length) {
      position -= length;
      continue;
    }
    const std::span<const Op*> all(ops);
    const auto at = static_cast<std::size_t>(position % std::ssize(ops));
    const auto works = [](const Op* op) {
      return op->kind() == OpKind::kernel || op->kind() == OpKind::collective;
    };
    const auto after = std::ranges::find_if(all.subspan(at), works);
    if (after != all.end()) return (*after)->name;
    for (std::size_t i = at; i > 0; --i)
      if (works(all[i - 1])) return all[i - 1]->name;
    return all[at]->name;
  }
  return {};
}

/// The stream that acquires the buffer.
std::optional<StreamId> acquirer(const Plan& plan, BufferId buffer) {
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops)
      if (const auto* acquire = std::get_if<Acquire>(&op.body))
        if (acquire->buffer == buffer) return op.stream;
  return std::nullopt;
}

}  // namespace

Bytes sum_of(const CategoryBytes& categories) {
  Bytes sum;
  for (const Bytes bytes : categories) sum += bytes;
  return sum;
}

PeakMemory peak_memory(const Program& program, const Plan& plan,
                       const std::vector<PoolLifetimes>& pools) {
  const IdIndex<BufferId> index(program.buffers);
  const IdIndex<PoolId> pool_index(program.pools);
  const auto on_device = [&](PoolId pool) {
    return program.pools[pool_index[pool]].space == MemorySpace::device;
  };
  PeakMemory peak;
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && on_device(buffer.pool))
      peak.categories.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  Bytes largest;
  for (const PoolLifetimes& pool : pools) {
    if (!on_device(pool.pool)) continue;
    const Fullest most = fullest(program, index, pool);
    for (std::size_t i = 0; i < most.categories.size(); ++i)
      peak.categories.at(i) += most.categories.at(i);
    if (sum_of(most.categories) <= largest) continue;
    largest = sum_of(most.categories);
    if (const auto stream = acquirer(plan, pool.buffers.front().buffer))
      peak.op = user_at(plan, *stream, most.position);
  }
  return peak;
}

}  // namespace mfsdp
