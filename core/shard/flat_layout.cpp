#include "core/shard/flat_layout.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/base/quantity.hpp"

namespace mfsdp {
namespace {

/// The chunk of a packed layout: the largest power of two up to kWidestChunk that adds at most 1/64
/// to the used elements; kNarrowestChunk where all add more.
std::int64_t packed_chunk(std::int64_t used, std::int64_t ranks) {
  const std::int64_t least_shard = ceil_div(used, ranks);
  for (std::int64_t chunk = kWidestChunk; chunk > kNarrowestChunk; chunk /= 2)
    if (checked_mul(ranks, round_up(least_shard, chunk)) - used <= used / 64) return chunk;
  return kNarrowestChunk;
}

}  // namespace

std::int64_t FlatLayout::padding() const {
  return elements - std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

FlatLayout packed_layout(std::span<const LayoutItem> items, std::int64_t ranks,
                         std::int64_t block) {
  assert(ranks > 0);
  FlatLayout layout;
  layout.ranks = ranks;
  std::int64_t used = 0;
  for (const LayoutItem& item : items) {
    layout.offsets.push_back(round_up(used, std::max(kWidestChunk, block)));
    layout.sizes.push_back(item.elements);
    used = checked_add(layout.offsets.back(), item.elements);
  }
  if (items.empty()) return layout;
  layout.chunk = block > 1 ? std::max(block, kNarrowestChunk) : packed_chunk(used, ranks);
  layout.elements = checked_mul(ranks, round_up(ceil_div(used, ranks), layout.chunk));
  return layout;
}

FlatLayout make_flat_layout(LayoutRule rule, std::span<const LayoutItem> items, std::int64_t ranks,
                            std::int64_t block) {
  assert(block == 1 || rule == LayoutRule::packed);
  return rule == LayoutRule::packed ? packed_layout(items, ranks, block)
                                    : megatron_fsdp_layout(items, ranks);
}

Interval owned_interval(const FlatLayout& layout, std::size_t item, std::int64_t rank) {
  // Where the rank owns none of the item, clamping gives an empty interval at its nearer end, so
  // that the intervals of all ranks are adjacent.
  const std::int64_t begin = layout.offsets.at(item);
  const std::int64_t end = begin + layout.sizes.at(item);
  const std::int64_t shard = layout.shard();
  return Interval{.begin = std::clamp(rank * shard, begin, end),
                  .end = std::clamp((rank + 1) * shard, begin, end)};
}

std::vector<Interval> padding_intervals(const FlatLayout& layout) {
  std::vector<std::size_t> order(layout.offsets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return layout.offsets[i]; });
  std::vector<Interval> padding;
  std::int64_t covered = 0;
  const auto leave = [&](std::int64_t until) {
    if (until > covered) padding.push_back(Interval{.begin = covered, .end = until});
  };
  for (const std::size_t i : order) {
    leave(layout.offsets[i]);
    covered = layout.offsets[i] + layout.sizes[i];
  }
  leave(layout.elements);
  return padding;
}

}  // namespace mfsdp
