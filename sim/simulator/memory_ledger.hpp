// Live bytes of the device pools over simulated time, by slot of a buffer's instance
// (core/plan/rotation.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/peak_memory.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/simulator/plan_ids.hpp"

namespace mfsdp {

class MemoryLedger {
 public:
  /// Persistent buffers and those of `live_in` (slots) are live from the start. Errors: an unknown
  /// pool id.
  static Result<MemoryLedger> open(const Program& program, const PlanIds& ids,
                                   const std::vector<std::uint32_t>& live_in);

  /// Discards all points, and adds a point for the memory that is live now.
  void begin_window(std::int64_t now);

  /// False if that instance is live. `keep`: record a point.
  [[nodiscard]] bool acquire(std::uint32_t slot, std::int64_t now, bool keep);
  /// False when that instance is not live.
  [[nodiscard]] bool release(std::uint32_t slot, std::int64_t now, bool keep);

  /// Returns the points; times are absolute.
  [[nodiscard]] std::vector<MemoryPoint> take_points() { return std::move(points_); }

 private:
  struct Entry {
    Bytes size;  ///< 0 in host memory
    Category category = Category::activation;
    bool live = false;
  };

  void add(Entry& entry);

  std::vector<Entry> entries_;  // by slot
  CategoryBytes live_{};
  std::vector<MemoryPoint> points_;
};

}  // namespace mfsdp
