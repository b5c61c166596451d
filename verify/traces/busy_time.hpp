// The union of intervals, and the length of its part within any window.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/base/quantity.hpp"

namespace mfsdp::traces {

/// Half-open.
struct Interval {
  Nanos begin;
  Nanos end;

  friend bool operator==(const Interval&, const Interval&) = default;
};

class BusyTime {
 public:
  BusyTime() = default;
  /// The intervals may overlap and have any order; empty ones are ignored.
  explicit BusyTime(std::vector<Interval> intervals);

  /// Time within [begin, end) that the union covers.
  [[nodiscard]] Nanos within(Nanos begin, Nanos end) const { return before(end) - before(begin); }
  /// End of the last stretch that begins before `time`.
  [[nodiscard]] std::optional<Nanos> last_end(Nanos time) const;
  /// Begin of the first stretch that begins at `time` or later.
  [[nodiscard]] std::optional<Nanos> next_begin(Nanos time) const;
  /// Disjoint, not touching, ascending.
  [[nodiscard]] std::span<const Interval> stretches() const { return stretches_; }

 private:
  [[nodiscard]] Nanos before(Nanos time) const;

  std::vector<Interval> stretches_;
  std::vector<Nanos> sums_;  ///< of the stretches before each
};

}  // namespace mfsdp::traces
