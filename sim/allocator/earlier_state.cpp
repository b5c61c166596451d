#include "sim/allocator/earlier_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace mfsdp {
namespace {

struct HeldAddresses {
  std::int64_t end = 0;
  std::int64_t stream = 0;
  bool is_small = false;
  bool is_expandable = false;
};

struct UsedBlock {
  std::int64_t end = 0;
  bool is_exact = true;  ///< false: an unsplit rest may belong to it
};

/// Finds the pool of an address from the blocks that the record and the final state have there.
class PoolsOfPieces {
 public:
  PoolsOfPieces(std::span<const MemoryEvent> events, std::span<const SnapshotSegment> segments,
                const AllocatorSettings& settings) {
    const auto add = [&](const MemoryEvent& event) {
      if (event.action != MemoryAction::allocate && event.action != MemoryAction::free) return;
      is_small_[event.address] =
          CachingAllocator::rounded(event.size, settings) <= CachingAllocator::kMostSmall;
    };
    std::ranges::for_each(events, add);
    for (const SnapshotSegment& segment : segments) std::ranges::for_each(segment.live, add);
  }

  /// For pages of an expandable segment. Without blocks, the size of the page decides.
  [[nodiscard]] bool is_small_piece(std::int64_t begin, std::int64_t size) const {
    const auto inside = is_small_.lower_bound(begin);
    if (inside != is_small_.end() && inside->first < begin + size) return inside->second;
    return size % CachingAllocator::kSharedSegment != 0;
  }

 private:
  std::map<std::int64_t, bool> is_small_;
};

class BackwardAllocator {
 public:
  BackwardAllocator(std::span<const MemoryEvent> events, std::span<const SnapshotSegment> segments,
                    const AllocatorSettings& settings)
      : settings_(settings), pools_(events, segments, settings) {
    for (const SnapshotSegment& segment : segments) {
      const HeldAddresses held{.end = segment.address + segment.size,
                               .stream = segment.stream,
                               .is_small = segment.is_small,
                               .is_expandable = segment.is_expandable};
      if (held.is_expandable) note_begin(held, segment.address);
      held_[segment.address] = held;
      for (const MemoryEvent& block : segment.live)
        used_[block.address] = {.end = block.address + block.size};
    }
  }

  /// Null, or how the event contradicts the state after it.
  [[nodiscard]] const char* undo(const MemoryEvent& event) {
    switch (event.action) {
      case MemoryAction::allocate: return undo_allocation(event);
      case MemoryAction::free: return undo_free(event);
      case MemoryAction::segment: return undo_segment(event);
      case MemoryAction::release: return undo_release(event);
      case MemoryAction::out_of_memory: return nullptr;
    }
    return nullptr;
  }

  [[nodiscard]] std::vector<CachingAllocator::Segment> state() {
    std::vector<CachingAllocator::Segment> all;
    for (const auto& [address, held] : held_) {
      CachingAllocator::Segment segment{
          .address = address,
          .size = held.end - address,
          .stream = held.stream,
          .is_small = held.is_small,
          .is_expandable = held.is_expandable,
          .range = held.is_expandable ? begins_.at(range_of(held)) : 0,
          .parts = {}};
      add_parts(segment);
      all.push_back(std::move(segment));
    }
    return all;
  }

 private:
  using Range = std::pair<std::int64_t, bool>;  ///< stream, small

  static Range range_of(const HeldAddresses& held) { return {held.stream, held.is_small}; }
  void note_begin(const HeldAddresses& held, std::int64_t address) {
    const auto [found, is_new] = begins_.try_emplace(range_of(held), address);
    if (!is_new) found->second = std::min(found->second, address);
  }

  /// The held range that contains all of these addresses; end() if none does.
  [[nodiscard]] std::map<std::int64_t, HeldAddresses>::iterator holding(std::int64_t begin,
                                                                        std::int64_t end) {
    auto found = held_.upper_bound(begin);
    if (found == held_.begin()) return held_.end();
    --found;
    return found->second.end >= end ? found : held_.end();
  }

  [[nodiscard]] bool is_free(std::int64_t begin, std::int64_t end) const {
    const auto next = used_.lower_bound(begin);
    if (next != used_.end() && next->first < end) return false;
    return next == used_.begin() || std::prev(next)->second.end <= begin;
  }

  [[nodiscard]] static bool splits_all(const HeldAddresses& held) {
    return held.is_small || held.is_expandable;
  }

  /// Extends the block that ends before `begin` in the same segment. It owned the bytes between if
  /// they are too few for a block of their own, or if a block begins there that was split from its
  /// end.
  void extend_block_before(std::int64_t begin, const HeldAddresses& held, std::int64_t from,
                           bool is_taken) {
    auto block = used_.lower_bound(begin);
    if (splits_all(held) || block == used_.begin()) return;
    --block;
    if (block->first < from || block->second.is_exact) return;
    const std::int64_t rest = begin - block->second.end;
    if (rest < 0 || rest > largest_rest(block->second.end - block->first)) {
      if (is_taken) block->second.is_exact = true;
      return;
    }
    block->second = {.end = begin};
  }

  /// Bytes that may stay with an unsplit block of the large pool.
  [[nodiscard]] std::int64_t largest_rest(std::int64_t size) const {
    const bool is_never_split = settings_.max_split_size && size >= *settings_.max_split_size;
    return is_never_split ? settings_.max_non_split_rounding : CachingAllocator::kMostSmall;
  }

  const char* undo_allocation(const MemoryEvent& event) {
    const auto found = used_.find(event.address);
    if (found == used_.end()) return "allocates a block that is not there after it";
    const auto held = holding(event.address, found->second.end);
    if (held == held_.end()) return "allocates a block outside all segments";
    used_.erase(found);
    extend_block_before(event.address, held->second, held->first, true);
    return nullptr;
  }

  const char* undo_free(const MemoryEvent& event) {
    const std::int64_t end = event.address + CachingAllocator::rounded(event.size, settings_);
    const auto held = holding(event.address, end);
    if (held == held_.end()) return "frees a block outside all segments";
    if (!is_free(event.address, end)) return "frees a block that is in use after it";
    extend_block_before(event.address, held->second, held->first, false);
    used_[event.address] = {.end = end, .is_exact = splits_all(held->second)};
    const auto next = used_.upper_bound(event.address);
    const std::int64_t limit =
        next == used_.end() ? held->second.end : std::min(next->first, held->second.end);
    extend_block_before(limit, held->second, held->first, false);
    return nullptr;
  }

  const char* undo_segment(const MemoryEvent& event) {
    const std::int64_t end = event.address + event.size;
    const auto found = holding(event.address, end);
    if (found == held_.end() || found->second.is_expandable != event.is_piece)
      return "makes a segment that is not there after it";
    if (!is_free(event.address, end)) return "makes a segment that is in use already";
    const std::int64_t begin = found->first;
    const HeldAddresses whole = found->second;
    if (!event.is_piece && (begin != event.address || whole.end != end))
      return "makes a segment of another size than there is after it";
    held_.erase(found);
    HeldAddresses rest = whole;
    rest.end = event.address;
    if (begin < event.address) held_[begin] = rest;
    if (end < whole.end) held_[end] = whole;
    return nullptr;
  }

  const char* undo_release(const MemoryEvent& event) {
    std::int64_t begin = event.address;
    HeldAddresses held{.end = event.address + event.size,
                       .stream = event.stream,
                       .is_small = event.is_piece ? pools_.is_small_piece(event.address, event.size)
                                                  : event.size == CachingAllocator::kSmallSegment,
                       .is_expandable = event.is_piece};
    const auto next = held_.lower_bound(begin);
    const bool reaches_next = next != held_.end() && next->first < held.end;
    if (reaches_next || (next != held_.begin() && std::prev(next)->second.end > begin))
      return "gives back a segment that is there after it";
    if (event.is_piece) {
      note_begin(held, begin);
      join_neighbours(begin, held, next);
    }
    held_[begin] = held;
    return nullptr;
  }

  /// Consecutive pages of one range form one segment.
  void join_neighbours(std::int64_t& begin, HeldAddresses& held,
                       std::map<std::int64_t, HeldAddresses>::iterator next) {
    const auto joins = [&](const HeldAddresses& other) {
      return other.is_expandable && range_of(other) == range_of(held);
    };
    if (next != held_.begin()) {
      const auto before = std::prev(next);
      if (before->second.end == begin && joins(before->second)) {
        begin = before->first;
        held_.erase(before);
      }
    }
    if (next != held_.end() && next->first == held.end && joins(next->second)) {
      held.end = next->second.end;
      held_.erase(next);
    }
  }

  void add_parts(CachingAllocator::Segment& segment) {
    const std::int64_t end = segment.address + segment.size;
    std::int64_t at = segment.address;
    const auto add_free = [&](std::int64_t until) {
      if (until > at) segment.parts.push_back({.address = at, .size = until - at});
    };
    for (auto block = used_.lower_bound(segment.address);
         block != used_.end() && block->first < end; ++block) {
      add_free(block->first);
      segment.parts.push_back(
          {.address = block->first, .size = block->second.end - block->first, .is_used = true});
      at = block->second.end;
    }
    add_free(end);
  }

  const AllocatorSettings& settings_;
  PoolsOfPieces pools_;
  std::map<std::int64_t, HeldAddresses> held_;  ///< by address
  std::map<std::int64_t, UsedBlock> used_;      ///< by address
  std::map<Range, std::int64_t> begins_;        ///< the lowest address of each expandable segment
};

}  // namespace

Result<std::vector<CachingAllocator::Segment>> state_before(
    std::span<const MemoryEvent> events, std::span<const SnapshotSegment> segments,
    const AllocatorSettings& settings) {
  BackwardAllocator backward(events, segments, settings);
  for (std::size_t i = events.size(); i > 0; --i)
    if (const char* contradiction = backward.undo(events[i - 1]))
      return fail(fmt::format("event {}", i - 1), contradiction);
  return backward.state();
}

}  // namespace mfsdp
