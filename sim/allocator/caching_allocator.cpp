#include "sim/allocator/caching_allocator.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/quantity.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kUnit = 512;  ///< of all sizes
constexpr std::int64_t kLeastOwn =
    10 * AllocatorSettings::kMebibyte;  ///< that have a segment of their own
constexpr std::int64_t kOwnUnit = 2 * AllocatorSettings::kMebibyte;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
/// Size of an expandable segment's address range: more than the memory of any device.
constexpr std::int64_t kRange = std::int64_t{1} << 42;

std::int64_t segment_size(std::int64_t size) {
  if (size <= CachingAllocator::kMostSmall) return CachingAllocator::kSmallSegment;
  return size < kLeastOwn ? CachingAllocator::kSharedSegment : round_up(size, kOwnUnit);
}

}  // namespace

struct CachingAllocator::Block {
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::int64_t stream = 0;
  Pool* pool = nullptr;
  Block* before = nullptr;  ///< of the same segment
  Block* after = nullptr;
  std::int64_t freed_at = 0;  ///< of the pool's searches
  bool used = false;
  bool retired = false;  ///< freed by the host, still used by other streams
  bool mapped = true;
  bool expandable = false;
  std::int64_t range = 0;  ///< where the expandable segment begins

  [[nodiscard]] bool is_split() const { return before != nullptr || after != nullptr; }
};

struct CachingAllocator::Pool {
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return std::tuple(a->stream, a->size, a->address) <
             std::tuple(b->stream, b->size, b->address);
    }
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const {
      return std::pair(a->stream, a->address) < std::pair(b->stream, b->address);
    }
  };

  bool small = false;
  std::set<Block*, BySize> free{};
  std::set<Block*, ByAddress> unmapped{};
  std::int64_t searches = 0;

  [[nodiscard]] std::int64_t page() const { return small ? kSmallSegment : kSharedSegment; }
};

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, Place place)
    : settings_(settings),
      place_(std::move(place)),
      small_(std::make_unique<Pool>(Pool{.small = true})),
      large_(std::make_unique<Pool>()) {}

CachingAllocator::~CachingAllocator() = default;

std::int64_t CachingAllocator::rounded(std::int64_t size, const AllocatorSettings& settings) {
  if (size < kUnit) return kUnit;
  const auto log2 = [](std::int64_t n) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
  };
  const int first = log2(AllocatorSettings::kMebibyte);
  const auto bucket = std::min(static_cast<std::size_t>(std::max(log2(size) - first, 0)),
                               AllocatorSettings::kBuckets - 1);
  const std::int64_t divisions = settings.power2_divisions[bucket];
  if (divisions <= 1 || size <= kUnit * divisions) return round_up(size, kUnit);
  const std::int64_t floor = std::int64_t{1} << log2(size);
  return size == floor ? size : round_up(size, floor / divisions);
}

bool CachingAllocator::has_room(std::int64_t size) const {
  return !settings_.limit || counters_.reserved + size <= *settings_.limit;
}

void CachingAllocator::reserve(std::int64_t size) {
  counters_.reserved += size;
  counters_.peak_reserved = std::max(counters_.peak_reserved, counters_.reserved);
  ++counters_.segments;
}

void CachingAllocator::tell(MemoryAction action, const Block& block) const {
  if (!watch_) return;
  watch_({.action = action,
          .address = block.address,
          .size = block.size,
          .stream = block.stream,
          .is_piece = block.expandable});
}

/// Asks the caller's Place for the address of `size` bytes; without an answer, reserves `span`
/// bytes of addresses below all earlier segments.
std::int64_t CachingAllocator::place(std::int64_t size, std::int64_t span, std::int64_t stream) {
  std::optional<std::int64_t> begin;
  if (place_) begin = place_(size, stream);
  if (begin) {
    const auto next = segments_.lower_bound(*begin);
    if ((next != segments_.end() && next->first < *begin + size) ||
        (next != segments_.begin() && std::prev(next)->second > *begin))
      begin.reset();
  }
  if (!begin) begin = fresh_ -= span;
  segments_[*begin] = *begin + size;
  return *begin;
}

CachingAllocator::Block* CachingAllocator::make(Block block) {
  if (spare_.empty()) return &blocks_.emplace_back(block);
  Block* made = spare_.back();
  spare_.pop_back();
  *made = block;
  return made;
}

void CachingAllocator::drop(Block* block) { spare_.push_back(block); }

void CachingAllocator::keep_free(Pool& pool, Block* block) {
  block->freed_at = pool.searches;
  pool.free.insert(block);
}

/// Merges a neighbour into `into` if both are free and both are backed, or both are not.
void CachingAllocator::merge(Pool& pool, Block* into, Block* neighbour) {
  if (neighbour == nullptr || neighbour->used || neighbour->mapped != into->mapped) return;
  if (neighbour->mapped)
    pool.free.erase(neighbour);
  else
    pool.unmapped.erase(neighbour);
  if (into->before == neighbour) {
    into->address = neighbour->address;
    into->before = neighbour->before;
    if (into->before != nullptr) into->before->after = into;
  } else {
    into->after = neighbour->after;
    if (into->after != nullptr) into->after->before = into;
  }
  into->size += neighbour->size;
  drop(neighbour);
}

bool CachingAllocator::splits(const Pool& pool, const Block& block, std::int64_t size) const {
  const std::int64_t rest = block.size - size;
  if (pool.small || settings_.expandable_segments) return rest >= kUnit;
  return size < settings_.max_split_size.value_or(kMost) && rest > kMostSmall;
}

CachingAllocator::Block* CachingAllocator::take_free(Pool& pool, std::int64_t size,
                                                     std::int64_t stream) const {
  if (settings_.limit && settings_.garbage_collection_threshold > 0) ++pool.searches;
  Block key{.address = std::numeric_limits<std::int64_t>::min(), .size = size, .stream = stream};
  auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end() || (*found)->stream != stream) return nullptr;
  // A block at the end of the backed addresses counts as large as it could grow.
  const auto could_be = [](const Block* block) {
    const bool grows = block->after != nullptr && !block->after->mapped;
    return block->size + (grows ? block->after->size : 0);
  };
  for (auto next = std::next(found);
       (*found)->expandable && next != pool.free.end() && (*next)->stream == stream &&
       could_be(*next) < could_be(*found);
       ++next)
    found = next;
  const std::int64_t most_split = settings_.max_split_size.value_or(kMost);
  if (size < most_split && (*found)->size >= most_split) return nullptr;
  if (size >= most_split && (*found)->size >= size + settings_.max_non_split_rounding)
    return nullptr;
  Block* block = *found;
  pool.free.erase(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::new_segment(Pool& pool, std::int64_t size,
                                                       std::int64_t stream) {
  if (settings_.expandable_segments) return grow(pool, size, stream);
  const std::int64_t whole = segment_size(size);
  if (!has_room(whole)) return nullptr;
  reserve(whole);
  Block* made = make(
      {.address = place(whole, whole, stream), .size = whole, .stream = stream, .pool = &pool});
  tell(MemoryAction::segment, *made);
  return made;
}

/// The lowest address in the stream's ranges with `size` consecutive bytes that are free or not
/// backed.
CachingAllocator::Block* CachingAllocator::find_range(Pool& pool, std::int64_t size,
                                                      std::int64_t stream) {
  const auto has_room_from = [&](const Block* block) {
    std::int64_t room = 0;
    for (; room < size && block != nullptr && !block->used; block = block->after)
      room += block->size;
    return room >= size;
  };
  Block key{.address = std::numeric_limits<std::int64_t>::min(), .stream = stream};
  for (auto at = pool.unmapped.lower_bound(&key);
       at != pool.unmapped.end() && (*at)->stream == stream; ++at) {
    Block* block = *at;
    if (block->before != nullptr && !block->before->used) block = block->before;
    if (has_room_from(block)) return block;
  }
  const std::int64_t begin = place(pool.page(), kRange, stream);
  Block* block = make({.address = begin,
                       .size = kRange,
                       .stream = stream,
                       .pool = &pool,
                       .mapped = false,
                       .expandable = true,
                       .range = begin});
  pool.unmapped.insert(block);
  return block;
}

/// Backs whole pages from the beginning of the block. False if the limit does not allow it.
bool CachingAllocator::map(Pool& pool, Block* block, std::int64_t size) {
  const std::int64_t backed = round_up(size, pool.page());
  if (!has_room(backed)) return false;
  pool.unmapped.erase(block);
  block->mapped = true;
  if (backed < block->size) {
    Block* rest = make({.address = block->address + backed,
                        .size = block->size - backed,
                        .stream = block->stream,
                        .pool = &pool,
                        .before = block,
                        .after = block->after,
                        .mapped = false,
                        .expandable = true,
                        .range = block->range});
    if (rest->after != nullptr) rest->after->before = rest;
    block->after = rest;
    block->size = backed;
    pool.unmapped.insert(rest);
  }
  tell(MemoryAction::segment, *block);
  merge(pool, block, block->before);
  merge(pool, block, block->after);
  keep_free(pool, block);
  reserve(backed);
  return true;
}

CachingAllocator::Block* CachingAllocator::grow(Pool& pool, std::int64_t size,
                                                std::int64_t stream) {
  Block* block = find_range(pool, size, stream);
  if (!block->mapped && !map(pool, block, std::min(block->size, size))) return nullptr;
  while (block->size < size) {
    Block* next = block->after;
    if (!map(pool, next, std::min(size - block->size, next->size))) return nullptr;
    block = next;
  }
  pool.free.erase(block);
  return block;
}

void CachingAllocator::release(Pool& pool, Block* block) {
  tell(MemoryAction::release, *block);
  segments_.erase(block->address);
  pool.free.erase(block);
  counters_.reserved -= block->size;
  ++counters_.released;
  drop(block);
}

/// Releases the pages that lie completely inside free blocks of expandable segments.
void CachingAllocator::unmap_free(Pool& pool) {
  std::vector<Block*> candidates;
  for (Block* block : pool.free)
    if (block->expandable) candidates.push_back(block);
  for (Block* block : candidates) {
    const std::int64_t last = block->address + block->size;
    const std::int64_t begin = block->range + round_up(block->address - block->range, pool.page());
    const std::int64_t end = last - (last - block->range) % pool.page();
    if (begin >= end) continue;
    pool.free.erase(block);
    const auto piece = [&](std::int64_t from, std::int64_t to, Block* before, Block* after) {
      Block* made = make({.address = from,
                          .size = to - from,
                          .stream = block->stream,
                          .pool = &pool,
                          .before = before,
                          .after = after,
                          .expandable = true,
                          .range = block->range});
      if (before != nullptr) before->after = made;
      if (after != nullptr) after->before = made;
      keep_free(pool, made);
    };
    if (block->address < begin) piece(block->address, begin, block->before, block);
    if (end < last) piece(end, last, block, block->after);
    block->address = begin;
    block->size = end - begin;
    tell(MemoryAction::release, *block);
    block->mapped = false;
    merge(pool, block, block->before);
    merge(pool, block, block->after);
    pool.unmapped.insert(block);
    counters_.reserved -= end - begin;
    ++counters_.released;
  }
}

void CachingAllocator::release_cached() {
  for (Pool* pool : {large_.get(), small_.get()}) {
    std::vector<Block*> whole;
    for (Block* block : pool->free)
      if (!block->is_split() && !block->expandable) whole.push_back(block);
    for (Block* block : whole) release(*pool, block);
    unmap_free(*pool);
  }
}

/// With max_split_size set, cached segments that are too large to be split are released first: the
/// smallest one that is large enough, else the largest ones until their sum is enough.
bool CachingAllocator::release_large(Pool& pool, std::int64_t size, std::int64_t stream) {
  if (!settings_.max_split_size) return false;
  const std::int64_t least = std::max(size, *settings_.max_split_size);
  std::vector<Block*> large;  // ascending
  Block key{.address = std::numeric_limits<std::int64_t>::min(),
            .size = *settings_.max_split_size,
            .stream = stream};
  for (auto at = pool.free.lower_bound(&key); at != pool.free.end() && (*at)->stream == stream;
       ++at)
    if (!(*at)->expandable) large.push_back(*at);
  const auto enough =
      std::ranges::lower_bound(large, least, {}, [](const Block* block) { return block->size; });
  if (enough != large.end()) {
    release(pool, *enough);
    return true;
  }
  std::int64_t released = 0;
  for (; released < least && !large.empty(); large.pop_back()) {
    released += large.back()->size;
    release(pool, large.back());
  }
  return released >= least;
}

/// Releases segments that were free for longer than the average free segment, until reserved memory
/// is below the threshold's part of the limit.
void CachingAllocator::collect_garbage() {
  const auto target = static_cast<std::int64_t>(settings_.garbage_collection_threshold *
                                                static_cast<double>(*settings_.limit));
  std::int64_t to_free = counters_.reserved - target;
  if (to_free <= 0) return;
  const auto age = [&](const Block* block) { return large_->searches - block->freed_at; };
  std::int64_t ages = 0;
  std::int64_t count = 0;
  for (const Block* block : large_->free)
    if (!block->is_split()) {
      ages += age(block);
      ++count;
    }
  for (bool freed = true; to_free > 0 && freed && count > 0;) {
    freed = false;
    const std::int64_t oldest = ages / count;
    for (auto at = large_->free.begin(); at != large_->free.end();) {
      Block* block = *at++;
      if (block->is_split() || age(block) < oldest) continue;
      freed = true;
      to_free -= block->size;
      ages -= age(block);
      --count;
      release(*large_, block);
    }
  }
}

std::optional<std::int64_t> CachingAllocator::allocate(std::int64_t size, std::int64_t stream) {
  const std::int64_t wanted = rounded(size, settings_);
  Pool& pool = wanted <= kMostSmall ? *small_ : *large_;
  Block* block = take_free(pool, wanted, stream);
  if (block == nullptr) {
    if (settings_.limit && settings_.garbage_collection_threshold > 0) collect_garbage();
    block = new_segment(pool, wanted, stream);
    if (block == nullptr && release_large(pool, wanted, stream))
      block = new_segment(pool, wanted, stream);
    if (block == nullptr) {
      release_cached();
      ++counters_.retries;
      block = new_segment(pool, wanted, stream);
    }
    if (block == nullptr) return std::nullopt;
  }
  if (splits(pool, *block, wanted)) {
    Block* rest = make({.address = block->address + wanted,
                        .size = block->size - wanted,
                        .stream = stream,
                        .pool = &pool,
                        .before = block,
                        .after = block->after,
                        .expandable = block->expandable,
                        .range = block->range});
    if (rest->after != nullptr) rest->after->before = rest;
    block->after = rest;
    block->size = wanted;
    keep_free(pool, rest);
  }
  block->used = true;
  used_[block->address] = block;
  counters_.allocated += block->size;
  counters_.peak_allocated = std::max(counters_.peak_allocated, counters_.allocated);
  return block->address;
}

void CachingAllocator::free(std::int64_t address) {
  const auto found = used_.find(address);
  Block* block = found->second;
  used_.erase(found);
  if (!std::exchange(block->retired, false)) counters_.allocated -= block->size;
  block->used = false;
  merge(*block->pool, block, block->before);
  merge(*block->pool, block, block->after);
  keep_free(*block->pool, block);
}

void CachingAllocator::retire(std::int64_t address) {
  Block* block = used_.find(address)->second;
  counters_.allocated -= block->size;
  block->retired = true;
}

std::int64_t CachingAllocator::Segment::used() const {
  std::int64_t bytes = 0;
  for (const Part& part : parts)
    if (part.is_used) bytes += part.size;
  return bytes;
}

/// Expandable segments are listed as in PyTorch's snapshots: one segment for each contiguous mapped
/// range of addresses.
std::vector<CachingAllocator::Segment> CachingAllocator::segments() const {
  const std::set<const Block*> spare(spare_.begin(), spare_.end());
  std::vector<Segment> all;
  for (const Block& first : blocks_) {
    const bool continues = first.before != nullptr && first.before->mapped;
    if (continues || !first.mapped || spare.contains(&first)) continue;
    Segment segment{.address = first.address,
                    .stream = first.stream,
                    .is_small = first.pool->small,
                    .is_expandable = first.expandable,
                    .range = first.range,
                    .parts = {}};
    for (const Block* block = &first; block != nullptr && block->mapped; block = block->after) {
      segment.size += block->size;
      segment.parts.push_back(
          {.address = block->address, .size = block->size, .is_used = block->used});
    }
    all.push_back(std::move(segment));
  }
  std::ranges::sort(all, {}, &Segment::address);
  return all;
}

CachingAllocator::Block* CachingAllocator::restore_part(const Segment& segment,
                                                        const Segment::Part& part, Block* before) {
  Pool& pool = segment.is_small ? *small_ : *large_;
  Block* block = make({.address = part.address,
                       .size = part.size,
                       .stream = segment.stream,
                       .pool = &pool,
                       .before = before,
                       .used = part.is_used,
                       .expandable = segment.is_expandable,
                       .range = segment.range});
  if (before != nullptr) before->after = block;
  if (!part.is_used) {
    keep_free(pool, block);
    return block;
  }
  used_[block->address] = block;
  counters_.allocated += block->size;
  return block;
}

/// Unbacked addresses of an expandable segment.
CachingAllocator::Block* CachingAllocator::restore_gap(const Segment& segment, std::int64_t from,
                                                       std::int64_t to, Block* before) {
  if (from >= to) return before;
  Pool& pool = segment.is_small ? *small_ : *large_;
  Block* gap = make({.address = from,
                     .size = to - from,
                     .stream = segment.stream,
                     .pool = &pool,
                     .before = before,
                     .mapped = false,
                     .expandable = true,
                     .range = segment.range});
  if (before != nullptr) before->after = gap;
  pool.unmapped.insert(gap);
  return gap;
}

void CachingAllocator::restore(const std::vector<Segment>& segments) {
  struct Range {
    Segment last;  ///< its highest that is backed
    Block* end = nullptr;
  };
  std::map<std::int64_t, Range> ranges;  // of expandable segments, by begin
  for (const Segment& segment : segments) {
    Block* before = nullptr;
    if (segment.is_expandable) {
      const auto [range, is_new] = ranges.try_emplace(segment.range);
      const Segment& last = range->second.last;
      before = restore_gap(segment, is_new ? segment.range : last.address + last.size,
                           segment.address, range->second.end);
    }
    for (const Segment::Part& part : segment.parts) before = restore_part(segment, part, before);
    segments_[segment.address] = segment.address + segment.size;
    reserve(segment.size);
    if (segment.is_expandable) ranges[segment.range] = {.last = segment, .end = before};
  }
  for (const auto& [begin, range] : ranges)
    restore_gap(range.last, range.last.address + range.last.size, begin + kRange, range.end);
  counters_.peak_allocated = counters_.allocated;
}

std::vector<CachingAllocator::FreeBytes> CachingAllocator::free_bytes() const {
  std::map<std::int64_t, FreeBytes> by_stream;
  for (const Pool* pool : {small_.get(), large_.get()})
    for (const Block* block : pool->free) {
      FreeBytes& bytes = by_stream[block->stream];
      bytes.stream = block->stream;
      (block->is_split() || block->expandable ? bytes.parts : bytes.whole) += block->size;
    }
  std::vector<FreeBytes> all;
  for (const auto& [stream, bytes] : by_stream) all.push_back(bytes);
  return all;
}

}  // namespace mfsdp
