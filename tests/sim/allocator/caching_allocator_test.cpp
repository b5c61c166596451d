#include "sim/allocator/caching_allocator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

namespace mfsdp {
namespace {

constexpr std::int64_t kMiB = AllocatorSettings::kMebibyte;

/// Later segments have higher addresses.
CachingAllocator allocator(const AllocatorSettings& settings = {}) {
  return CachingAllocator(settings, [next = std::int64_t{0}](std::int64_t, std::int64_t) mutable {
    return next += std::int64_t{1} << 44;
  });
}

TEST(CachingAllocator, SegmentsAreOfThreeSizes) {
  CachingAllocator a = allocator();
  const auto grown = [&](std::int64_t size) {
    const std::int64_t before = a.counters().reserved;
    EXPECT_TRUE(a.allocate(size, 0));
    return a.counters().reserved - before;
  };
  EXPECT_EQ(grown(1), 2 * kMiB);
  EXPECT_EQ(grown(kMiB), 0);  // after it
  EXPECT_EQ(grown(kMiB), 2 * kMiB);
  EXPECT_EQ(grown(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(grown(9 * kMiB), 0);
  EXPECT_EQ(grown(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(grown(10 * kMiB + 1), 12 * kMiB);
  EXPECT_EQ(a.counters().allocated, 512 + 2 * kMiB + kMiB + 512 + 19 * kMiB + 10 * kMiB + 512);
}

TEST(CachingAllocator, TheSmallestThatIsLargeEnoughAtTheLowestAddress) {
  CachingAllocator a = allocator();
  const auto large = a.allocate(40 * kMiB, 0);
  const auto first = a.allocate(30 * kMiB, 0);
  const auto second = a.allocate(30 * kMiB, 0);
  for (const auto& address : {large, second, first}) a.free(*address);
  EXPECT_EQ(a.allocate(24 * kMiB, 0), first);
  EXPECT_EQ(a.allocate(6 * kMiB, 0), *first + 24 * kMiB);  // what was left of it
  EXPECT_EQ(a.allocate(35 * kMiB, 0), large);
}

TEST(CachingAllocator, AMebibyteIsNotSplitOff) {
  CachingAllocator a = allocator();
  const auto whole = a.allocate(20 * kMiB, 0);
  a.free(*whole);
  EXPECT_EQ(a.allocate(19 * kMiB, 0), whole);
  EXPECT_EQ(a.counters().allocated, 20 * kMiB);
}

/// The record of another run may have one address for two segments that are live at once here.
TEST(CachingAllocator, NoTwoSegmentsShareAPlace) {
  CachingAllocator a({}, [](std::int64_t, std::int64_t) { return std::int64_t{1} << 30; });
  const auto first = a.allocate(64 * kMiB, 0);
  const auto second = a.allocate(64 * kMiB, 0);
  EXPECT_EQ(first, std::int64_t{1} << 30);
  EXPECT_NE(first, second);
  a.free(*first);
  a.release_cached();
  EXPECT_EQ(a.allocate(32 * kMiB, 0), first);
}

TEST(CachingAllocator, StreamsShareNothing) {
  CachingAllocator a = allocator();
  a.free(*a.allocate(64 * kMiB, 1));
  EXPECT_TRUE(a.allocate(64 * kMiB, 2));
  EXPECT_EQ(a.counters().reserved, 128 * kMiB);
  ASSERT_EQ(a.free_bytes().size(), 1U);
  EXPECT_EQ(a.free_bytes()[0].stream, 1);
  EXPECT_EQ(a.free_bytes()[0].whole, 64 * kMiB);
}

TEST(CachingAllocator, FreeNeighboursBecomeOne) {
  CachingAllocator a = allocator();
  std::vector<std::int64_t> four;
  for (int i = 0; i < 4; ++i) four.push_back(*a.allocate(5 * kMiB, 0));
  for (const int i : {0, 2, 1, 3}) a.free(four[static_cast<std::size_t>(i)]);
  EXPECT_EQ(a.allocate(20 * kMiB, 0), four[0]);
  EXPECT_EQ(a.counters().reserved, 20 * kMiB);
}

TEST(CachingAllocator, CachedSegmentsGoBeforeMemoryIsOut) {
  CachingAllocator a = allocator({.limit = 100 * kMiB});
  a.free(*a.allocate(60 * kMiB, 1));
  EXPECT_TRUE(a.allocate(60 * kMiB, 2));
  EXPECT_EQ(a.counters().retries, 1);
  EXPECT_EQ(a.counters().reserved, 60 * kMiB);
  EXPECT_EQ(a.counters().peak_reserved, 60 * kMiB);
  EXPECT_FALSE(a.allocate(60 * kMiB, 1));
}

TEST(CachingAllocator, LargeBlocksStayWhole) {
  CachingAllocator a = allocator({.max_split_size = 32 * kMiB, .limit = 100 * kMiB});
  const auto large = a.allocate(64 * kMiB, 0);
  a.free(*large);
  EXPECT_NE(a.allocate(24 * kMiB, 0), large);  // would have to split it
  EXPECT_EQ(a.allocate(50 * kMiB, 0), large);  // less than 20 MiB too large
  a.free(*large);
  EXPECT_TRUE(a.allocate(40 * kMiB, 0));  // which gives the large one back, and is no retry
  EXPECT_EQ(a.counters().retries, 0);
  EXPECT_EQ(a.counters().reserved, 64 * kMiB);
}

TEST(CachingAllocator, WhatWasFreeForLongGoesFirst) {
  CachingAllocator a = allocator({.garbage_collection_threshold = 0.5, .limit = 200 * kMiB});
  a.free(*a.allocate(60 * kMiB, 0));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(a.allocate(12 * kMiB, 1));
  EXPECT_LT(a.counters().reserved, 60 * kMiB + 8 * 12 * kMiB);
  EXPECT_EQ(a.counters().released, 1);
  EXPECT_EQ(a.counters().retries, 0);
}

TEST(CachingAllocator, ExpandableSegmentsGrowAndShrinkByPages) {
  CachingAllocator a = allocator({.expandable_segments = true, .limit = 100 * kMiB});
  const auto first = a.allocate(30 * kMiB, 0);
  EXPECT_EQ(a.counters().reserved, 40 * kMiB);
  const auto second = a.allocate(30 * kMiB, 0);
  EXPECT_EQ(second, *first + 30 * kMiB);
  EXPECT_EQ(a.counters().reserved, 60 * kMiB);
  a.free(*first);
  EXPECT_TRUE(a.allocate(50 * kMiB, 1));  // 60: the page of 20 that lies in the first one goes
  EXPECT_EQ(a.counters().retries, 1);
  EXPECT_EQ(a.counters().reserved, 100 * kMiB);
  EXPECT_EQ(a.counters().released, 1);
}

// PyTorch's snapshots have one segment for each contiguous mapped range.
TEST(CachingAllocator, AnExpandableSegmentEndsAtAHole) {
  CachingAllocator a = allocator({.expandable_segments = true, .limit = 100 * kMiB});
  const auto first = a.allocate(30 * kMiB, 0);
  ASSERT_TRUE(a.allocate(30 * kMiB, 0));
  a.free(*first);
  ASSERT_TRUE(a.allocate(50 * kMiB, 1));  // unmaps the first 20 MiB, a page inside the freed block
  std::vector<CachingAllocator::Segment> of_stream_0;
  for (const auto& segment : a.segments())
    if (segment.stream == 0) of_stream_0.push_back(segment);
  ASSERT_EQ(of_stream_0.size(), 1U);
  EXPECT_EQ(of_stream_0[0].address, *first + 20 * kMiB);
  EXPECT_EQ(of_stream_0[0].size, 40 * kMiB);

  // A hole in the midst: the middle page lies between blocks in use.
  CachingAllocator b = allocator({.expandable_segments = true, .limit = 100 * kMiB});
  const auto below = b.allocate(20 * kMiB, 0);
  const auto between = b.allocate(20 * kMiB, 0);
  const auto above = b.allocate(20 * kMiB, 0);
  b.free(*between);
  ASSERT_TRUE(b.allocate(60 * kMiB, 1));
  const auto segments = b.segments();
  ASSERT_EQ(segments.size(), 3U);  // two of stream 0, one of stream 1
  std::int64_t bytes = 0;
  for (const auto& segment : segments) {
    bytes += segment.size;
    std::int64_t next = segment.address;
    for (const auto& part : segment.parts) {
      EXPECT_EQ(part.address, next);
      next += part.size;
    }
    EXPECT_EQ(next, segment.address + segment.size);
  }
  EXPECT_EQ(bytes, b.counters().reserved);
  const auto begins_at = [&](std::int64_t address) {
    return std::ranges::count(segments, address, &CachingAllocator::Segment::address);
  };
  EXPECT_EQ(begins_at(*below), 1);
  EXPECT_EQ(begins_at(*above), 1);
}

TEST(CachingAllocator, SizesInStepsOfAPowerOfTwo) {
  AllocatorSettings settings;
  settings.power2_divisions.fill(4);
  EXPECT_EQ(CachingAllocator::rounded(1, settings), 512);
  EXPECT_EQ(CachingAllocator::rounded(2048, settings), 2048);
  EXPECT_EQ(CachingAllocator::rounded(2049, settings), 2560);
  EXPECT_EQ(CachingAllocator::rounded(5 * kMiB + 1, settings), 6 * kMiB);
  EXPECT_EQ(CachingAllocator::rounded(8 * kMiB, settings), 8 * kMiB);
}

// ---- against the rules, looked up one by one
// ------------------------------------------------------

/// Blocks in a list by address; every search visits all of them.
class Slow {
 public:
  explicit Slow(const AllocatorSettings& settings) : settings_(settings) {}

  std::int64_t allocate(std::int64_t size, std::int64_t stream) {
    const std::int64_t wanted = CachingAllocator::rounded(size, settings_);
    const bool small = wanted <= kMiB;
    const std::int64_t most = settings_.max_split_size.value_or(std::int64_t{1} << 60);
    auto best = blocks_.end();
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at)
      if (!at->second.used && at->second.stream == stream && at->second.small == small &&
          at->second.size >= wanted &&
          (best == blocks_.end() || at->second.size < best->second.size))
        best = at;
    if (best != blocks_.end() &&
        ((wanted < most && best->second.size >= most) ||
         (wanted >= most && best->second.size >= wanted + settings_.max_non_split_rounding)))
      best = blocks_.end();
    if (best == blocks_.end()) {
      const std::int64_t whole = small ? 2 * kMiB
                                 : wanted < 10 * kMiB
                                     ? 20 * kMiB
                                     : (wanted + 2 * kMiB - 1) / kMiB / 2 * 2 * kMiB;
      reserved += whole;
      segment_ += std::int64_t{1} << 44;
      best = blocks_.emplace(segment_, Block{whole, segment_, stream, small, false}).first;
    }
    const std::int64_t rest = best->second.size - wanted;
    if (small ? rest >= 512 : wanted < most && rest > kMiB) {
      Block left = best->second;
      left.size = rest;
      blocks_.emplace(best->first + wanted, left);
      best->second.size = wanted;
    }
    best->second.used = true;
    return best->first;
  }

  void free(std::int64_t address) {
    blocks_.at(address).used = false;
    for (auto at = blocks_.begin(); std::next(at) != blocks_.end();) {
      const auto next = std::next(at);
      if (at->second.used || next->second.used || at->second.segment != next->second.segment) {
        at = next;
        continue;
      }
      at->second.size += next->second.size;
      blocks_.erase(next);
    }
  }

  std::int64_t reserved = 0;

 private:
  struct Block {
    std::int64_t size, segment, stream;
    bool small, used;
  };
  AllocatorSettings settings_;
  std::map<std::int64_t, Block> blocks_;
  std::int64_t segment_ = 0;
};

RC_GTEST_PROP(CachingAllocator, IsAsTheRulesSay, ()) {
  AllocatorSettings settings;
  if (*rc::gen::arbitrary<bool>()) settings.max_split_size = *rc::gen::inRange(21, 64) * kMiB;
  if (*rc::gen::arbitrary<bool>())
    settings.power2_divisions.fill(std::int64_t{1} << *rc::gen::inRange(1, 5));
  CachingAllocator fast = allocator(settings);
  Slow slow(settings);
  std::vector<std::int64_t> live;
  const int events = *rc::gen::inRange(1, 200);
  for (int i = 0; i < events; ++i) {
    if (!live.empty() && *rc::gen::inRange(0, 5) < 2) {
      const auto at = live.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(live));
      fast.free(*at);
      slow.free(*at);
      live.erase(at);
    } else {
      const std::int64_t size =
          *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << *rc::gen::inRange(1, 28));
      const std::int64_t stream = *rc::gen::inRange(0, 2);
      const auto address = fast.allocate(size, stream);
      RC_ASSERT(address == slow.allocate(size, stream));
      live.push_back(*address);
    }
    RC_ASSERT(fast.counters().reserved == slow.reserved);
  }
}

/// For any sequence of calls: blocks do not overlap, and all reserved bytes are in use or free.
RC_GTEST_PROP(CachingAllocator, LosesNoByte, ()) {
  AllocatorSettings settings;
  settings.expandable_segments = *rc::gen::arbitrary<bool>();
  settings.limit = *rc::gen::inRange(64, 400) * kMiB;
  if (*rc::gen::arbitrary<bool>()) settings.garbage_collection_threshold = 0.5;
  if (*rc::gen::arbitrary<bool>()) settings.max_split_size = 40 * kMiB;
  CachingAllocator a = allocator(settings);
  std::map<std::int64_t, std::int64_t> live;  // address to end
  const int events = *rc::gen::inRange(1, 200);
  for (int i = 0; i < events; ++i) {
    if (!live.empty() && *rc::gen::inRange(0, 5) < 2) {
      const auto at =
          std::next(live.begin(), *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(live)));
      a.free(at->first);
      live.erase(at);
    } else {
      const std::int64_t size =
          *rc::gen::inRange<std::int64_t>(1, std::int64_t{1} << *rc::gen::inRange(1, 28));
      const auto address = a.allocate(size, *rc::gen::inRange(0, 2));
      if (!address) continue;
      const auto next = live.lower_bound(*address);
      const bool apart = (next == live.end() || *address + size <= next->first) &&
                         (next == live.begin() || std::prev(next)->second <= *address);
      RC_ASSERT(apart);
      live[*address] = *address + size;
    }
    std::int64_t unused = 0;
    for (const auto& bytes : a.free_bytes()) unused += bytes.whole + bytes.parts;
    RC_ASSERT(a.counters().reserved == a.counters().allocated + unused);
    RC_ASSERT(a.counters().reserved <= *settings.limit);
  }
  for (const auto& [address, end] : live) a.free(address);
  a.release_cached();
  RC_ASSERT(a.counters().reserved == 0);
}

}  // namespace
}  // namespace mfsdp
