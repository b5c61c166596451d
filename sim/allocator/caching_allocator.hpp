// What torch.cuda's caching allocator would do: which block an allocation gets, what it reserves.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11, written anew from what
// it does and held to recorded runs (docs/lab). In short: sizes are rounded to
// 512 bytes (or to steps of a power of two); up to 1 MiB they share segments of 2 MiB, below 10 MiB
// those of 20 MiB, and larger ones have segments of their own, rounded to 2 MiB; a request takes
// the smallest free block of its stream that is large enough, at the lowest address; what is left
// of it stays a block where it is large enough; neighbours that are free become one. Streams share
// no blocks. Expandable segments are one range of addresses a stream and pool, of which pages of 2
// or 20 MiB are backed as needed. Pools of CUDA graphs are not modelled.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/formats/memory_snapshot.hpp"
#include "sim/allocator/settings.hpp"

namespace mfsdp {

/// All in bytes but for the counts.
struct AllocatorCounters {
  std::int64_t allocated = 0;  ///< of blocks in use, rounded as they are
  std::int64_t reserved = 0;   ///< of segments
  std::int64_t peak_allocated = 0;
  std::int64_t peak_reserved = 0;
  std::int64_t segments = 0;  ///< made, or pieces mapped
  std::int64_t released = 0;  ///< segments given back, or pieces unmapped
  std::int64_t retries = 0;  ///< allocations that were tried again after all cached blocks had gone
};

class CachingAllocator {
 public:
  /// Bytes that a block of the small pool has at most, and a block of the large one more than.
  static constexpr std::int64_t kMostSmall = AllocatorSettings::kMebibyte;
  /// A segment of the small pool, and a piece of an expandable one.
  static constexpr std::int64_t kSmallSegment = 2 * AllocatorSettings::kMebibyte;
  /// A segment that blocks of the large pool share, and a piece of an expandable one.
  static constexpr std::int64_t kSharedSegment = 20 * AllocatorSettings::kMebibyte;

  /// Where the device puts a new segment of so many bytes, or where an expandable one begins of
  /// which so many are backed first; nothing where that is not known.
  using Place = std::function<std::optional<std::int64_t>(std::int64_t size, std::int64_t stream)>;

  /// What `place` does not know, or has given to a segment that is still there, is placed below
  /// all segments that were.
  explicit CachingAllocator(const AllocatorSettings& settings, Place place = {});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// The address; nothing where the limit leaves no room even after all cached blocks have gone.
  /// `size` is at least 1.
  [[nodiscard]] std::optional<std::int64_t> allocate(std::int64_t size, std::int64_t stream);

  /// Of an address that allocate() gave. It may be used by its stream again at once: whoever
  /// records uses on other streams calls this when these have ended.
  void free(std::int64_t address);

  /// torch.cuda.empty_cache().
  void release_cached();

  [[nodiscard]] const AllocatorCounters& counters() const { return counters_; }

  struct FreeBytes {
    std::int64_t stream = 0;
    std::int64_t whole = 0;  ///< of segments without a block in use
    std::int64_t parts = 0;  ///< beside blocks in use
  };
  /// By stream, ascending: what is reserved and not in use.
  [[nodiscard]] std::vector<FreeBytes> free_bytes() const;

  struct Segment {
    struct Part {
      std::int64_t address = 0;
      std::int64_t size = 0;
      bool is_used = false;
    };
    std::int64_t address = 0;
    std::int64_t size = 0;  ///< that is backed
    std::int64_t stream = 0;
    bool is_small = false;
    bool is_expandable = false;
    std::int64_t range = 0;   ///< where the addresses of an expandable one begin
    std::vector<Part> parts;  ///< by address

    [[nodiscard]] std::int64_t used() const;
  };
  /// All there are, by address.
  [[nodiscard]] std::vector<Segment> segments() const;

  /// Has these segments, by address, from now on: the state of an allocator with the same settings.
  /// Only of an allocator that has none yet. Their free neighbours are one part.
  void restore(const std::vector<Segment>& segments);

  /// Is told of each segment, or piece of one, that comes or goes.
  using Watch = std::function<void(const MemoryEvent&)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

  /// What a request of so many bytes is rounded to.
  [[nodiscard]] static std::int64_t rounded(std::int64_t size, const AllocatorSettings& settings);

 private:
  struct Block;
  struct Pool;

  [[nodiscard]] bool has_room(std::int64_t size) const;
  [[nodiscard]] bool splits(const Pool& pool, const Block& block, std::int64_t size) const;
  Block* take_free(Pool& pool, std::int64_t size, std::int64_t stream) const;
  Block* new_segment(Pool& pool, std::int64_t size, std::int64_t stream);
  Block* grow(Pool& pool, std::int64_t size, std::int64_t stream);
  Block* find_range(Pool& pool, std::int64_t size, std::int64_t stream);
  bool map(Pool& pool, Block* block, std::int64_t size);
  void unmap_free(Pool& pool);
  bool release_large(Pool& pool, std::int64_t size, std::int64_t stream);
  void release(Pool& pool, Block* block);
  void collect_garbage();
  void merge(Pool& pool, Block* into, Block* neighbour);
  void keep_free(Pool& pool, Block* block);
  Block* make(Block block);
  void drop(Block* block);
  void reserve(std::int64_t size);
  Block* restore_part(const Segment& segment, const Segment::Part& part, Block* before);
  Block* restore_gap(const Segment& segment, std::int64_t from, std::int64_t to, Block* before);
  void tell(MemoryAction action, const Block& block) const;
  std::int64_t place(std::int64_t size, std::int64_t span, std::int64_t stream);

  AllocatorSettings settings_;
  Place place_;
  Watch watch_;
  AllocatorCounters counters_;
  std::map<std::int64_t, std::int64_t> segments_;  ///< from where to where
  std::int64_t fresh_ = std::int64_t{1} << 60;     ///< lowest address that nobody knew
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
  std::unique_ptr<Pool> small_;
  std::unique_ptr<Pool> large_;
  std::unordered_map<std::int64_t, Block*> used_;  ///< by address
};

}  // namespace mfsdp
