// Stretches of a list that come again, microbatch after microbatch.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reports/record/result.hpp"
#include "reports/store/compress.hpp"
#include "reports/trace/replay.hpp"

namespace mfsdp {

/// `count` entries from position `first` on come again `copies` times, each `period` later.
struct Repeat {
  std::size_t first = 0;
  std::size_t count = 0;
  std::int64_t copies = 0;
  Nanos period;
};

/// In order and disjoint, of `points` or `spans` by time. `copies`: of the timeline's instances,
/// exact or about so; each stretch is checked entry by entry.
[[nodiscard]] std::vector<Repeat> repeats_of(std::span<const MemoryPoint> points,
                                             const std::vector<OpTime>& timeline,
                                             const std::vector<InstanceCopy>& copies);
[[nodiscard]] std::vector<Repeat> repeats_of(std::span<const BufferSpan> spans,
                                             const std::vector<OpTime>& timeline,
                                             const std::vector<InstanceCopy>& copies);

/// Positions below `size` but for those of copies.
[[nodiscard]] std::vector<std::size_t> kept_positions(std::size_t size,
                                                      std::span<const Repeat> repeats);

}  // namespace mfsdp
