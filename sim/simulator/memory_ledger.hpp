// Live bytes of the device pools over simulated time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/plan/peak_memory.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/simulator/plan_ids.hpp"

namespace mfsdp {

class MemoryLedger {
 public:
  /// Persistent buffers are live from the start, and so are `live_in` (positions). Errors: a pool
  /// id that does not resolve.
  static Result<MemoryLedger> open(const Program& program, const PlanIds& ids,
                                   const std::vector<std::uint32_t>& live_in);

  /// Forgets all points, and begins with a point of what is live now.
  void begin_window(std::int64_t now);

  /// False when the buffer is live. `keep` says whether to keep a point.
  [[nodiscard]] bool acquire(std::uint32_t buffer, std::int64_t now, bool keep);
  /// False when the buffer is not live.
  [[nodiscard]] bool release(std::uint32_t buffer, std::int64_t now, bool keep);

  /// Times are absolute.
  [[nodiscard]] std::vector<MemoryPoint> take_points() { return std::move(points_); }

 private:
  struct Entry {
    Bytes size;  ///< 0 in host memory
    Category category = Category::activation;
    bool live = false;
  };

  void add(Entry& entry);

  std::vector<Entry> entries_;  // by position in the program's buffers
  CategoryBytes live_{};
  std::vector<MemoryPoint> points_;
};

}  // namespace mfsdp
