// Settings of PyTorch's caching allocator, as PYTORCH_CUDA_ALLOC_CONF states them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// Defaults are PyTorch 2.11's.
struct AllocatorSettings {
  static constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
  /// Size buckets by power of two: below 2 MiB, 2 MiB, ..., 32 GiB and above.
  static constexpr std::size_t kBuckets = 16;

  /// Blocks of at least this many bytes are not split.
  std::optional<std::int64_t> max_split_size{};
  /// Bytes by which an unsplit block may exceed the requested size.
  std::int64_t max_non_split_rounding = 20 * kMebibyte;
  /// Sizes are rounded up to a power of two divided into this many steps; 0 and 1: to 512 bytes.
  std::array<std::int64_t, kBuckets> power2_divisions{};
  /// Fraction of `limit` above which long unused cached blocks are released; 0: never.
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  /// Bytes that the process may reserve; none: no limit.
  std::optional<std::int64_t> limit{};

  friend bool operator==(const AllocatorSettings&, const AllocatorSettings&) = default;
};

/// Parses "max_split_size_mb:128,expandable_segments:True,roundup_power2_divisions:[256:1,>:8]".
/// Settings without effect on device memory (backend:native, pinned_*, release_lock_on_cudamalloc)
/// are ignored. Errors name `where` and the setting: an unknown setting, backend:cudaMallocAsync,
/// or a value out of range.
[[nodiscard]] Result<AllocatorSettings> parse_allocator_settings(std::string_view text,
                                                                 const std::string& where);

}  // namespace mfsdp
