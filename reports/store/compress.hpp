// Microbatches that run alike, found so that they are stored once. Internal to this folder and
// reports/html, whose pages have them once, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/record/result.hpp"

namespace mfsdp {

/// The instance `copy` of a segment runs as `instance` does, `shift` later.
struct InstanceCopy {
  std::string segment;
  std::int64_t instance = 0;
  std::int64_t copy = 0;
  Nanos shift;
  bool omitted = false;  ///< its times were not kept: it runs about so
};

struct CompressedOps {
  std::vector<std::size_t> kept;  ///< positions in the timeline, in its order
  std::vector<InstanceCopy> copies;
};

/// The ops whose times are not those of an earlier instance of their segment, moved by one time.
/// Every instance that is copied has the same ops as the one that it copies.
[[nodiscard]] CompressedOps compress_ops(const std::vector<OpTime>& timeline,
                                         const std::vector<OmittedInstances>& omitted);

/// `timeline` with the copies that are not omitted, in the order of start, segment, instance, op,
/// where the segments' order is that of their first ops.
void add_copies(std::vector<OpTime>& timeline, const std::vector<InstanceCopy>& copies);

/// `count` points from `first` on are repeated `copies` times, each `period` after the one before.
struct PointCopies {
  std::size_t first = 0;
  std::size_t points = 0;
  std::int64_t copies = 0;
  Nanos period;
};

/// Stretches of the timeline that the ops' copies make likely, each checked point by point. The
/// same bytes are live before the first and at the last of the points: the copies change the same.
[[nodiscard]] std::vector<PointCopies> find_point_copies(const std::vector<MemoryPoint>& points,
                                                         const std::vector<OpTime>& timeline,
                                                         const std::vector<InstanceCopy>& copies);

}  // namespace mfsdp
