// Model of torch.cuda's caching allocator: which block an allocation gets, and how much is
// reserved.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11, written anew from its
// behaviour and tested against recorded runs (docs/lab). In short:
// - Sizes are rounded up to 512 bytes, or to steps of a power of two.
// - Sizes up to 1 MiB share segments of 2 MiB; sizes below 10 MiB share segments of 20 MiB; larger
//   ones have segments of their own, rounded up to 2 MiB.
// - A request takes the smallest free block of its stream that is large enough, at the lowest
//   address. The rest of the block stays a free block if it is large enough. Free neighbours are
//   merged.
// - Streams share no blocks.
// - Expandable segments are one range of addresses for each stream and pool; pages of 2 or 20 MiB
//   are backed as needed.
// - Memory pools of CUDA graphs are not modelled.
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

/// All in bytes, except the counts.
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
  /// Largest block of the small pool in bytes; blocks of the large pool are larger.
  static constexpr std::int64_t kMostSmall = AllocatorSettings::kMebibyte;
  /// Size of a segment of the small pool, and of a page of its expandable segments.
  static constexpr std::int64_t kSmallSegment = 2 * AllocatorSettings::kMebibyte;
  /// Size of a shared segment of the large pool, and of a page of its expandable segments.
  static constexpr std::int64_t kSharedSegment = 20 * AllocatorSettings::kMebibyte;

  /// The address at which the device puts a new segment of `size` bytes, or an expandable segment
  /// whose first `size` bytes are backed first; nothing if unknown.
  using Place = std::function<std::optional<std::int64_t>(std::int64_t size, std::int64_t stream)>;

  /// A segment is placed below all earlier ones if `place` returns nothing, or an address that is
  /// taken.
  explicit CachingAllocator(const AllocatorSettings& settings, Place place = {});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// The address; nothing if the limit is exceeded even after all cached blocks were released.
  /// `size` is at least 1.
  [[nodiscard]] std::optional<std::int64_t> allocate(std::int64_t size, std::int64_t stream);

  /// Frees an address that allocate() returned. Its stream may use the memory again at once.
  void free(std::int64_t address);
  /// The host frees memory that other streams may still use (record_stream): it is no longer
  /// allocated, but no allocation takes it before free().
  void retire(std::int64_t address);

  /// torch.cuda.empty_cache().
  void release_cached();

  [[nodiscard]] const AllocatorCounters& counters() const { return counters_; }

  struct FreeBytes {
    std::int64_t stream = 0;
    std::int64_t whole = 0;  ///< of segments without a block in use
    std::int64_t parts = 0;  ///< beside blocks in use
  };
  /// By stream, ascending: reserved bytes that are not in use.
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
  /// All segments, by address.
  [[nodiscard]] std::vector<Segment> segments() const;

  /// Sets the state to these segments, ordered by address, of an allocator with the same settings.
  /// Must be called before the first allocation. Free neighbours must be merged into one block.
  void restore(const std::vector<Segment>& segments);

  /// Called for each segment, or page of an expandable segment, that is reserved or released.
  using Watch = std::function<void(const MemoryEvent&)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

  /// The size to which a request of `size` bytes is rounded up.
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
  std::map<std::int64_t, std::int64_t> segments_;  ///< begin to end
  std::int64_t fresh_ = std::int64_t{1} << 60;     ///< lowest address of segments without a Place
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
  std::unique_ptr<Pool> small_;
  std::unique_ptr<Pool> large_;
  std::unordered_map<std::int64_t, Block*> used_;  ///< by address
};

}  // namespace mfsdp
