// The point where a run ends early: a step or a batch of an evaluation, the same on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "core/base/error.hpp"

namespace mfsdp {

/// Ranks issue plans at different times, so "stop now" would be a different point for each of them.
/// The first rank that asks about a turn decides for all.
class StopPoint {
 public:
  virtual ~StopPoint() = default;
  /// Whether run number `turn` of a plan takes place, counted from 0 over all plans. Ranks ask
  /// about every number, in order.
  [[nodiscard]] virtual Result<bool> runs(std::int64_t turn) = 0;
};

/// The stop point of ranks that are threads of one process.
class SharedStopPoint final : public StopPoint {
 public:
  /// `requested`: whether the run should end, such as Ctrl-C's flag. One rank at a time calls it.
  explicit SharedStopPoint(std::function<bool()> requested) : requested_(std::move(requested)) {}

  [[nodiscard]] Result<bool> runs(std::int64_t turn) override {
    const std::scoped_lock lock(mutex_);
    if (turn < next_) return true;
    if (!stopped_) stopped_ = requested_();
    if (!stopped_) next_ = turn + 1;
    return !stopped_;
  }

  /// Whether a turn was refused. Call after the ranks have ended.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::function<bool()> requested_;
  std::mutex mutex_;
  std::int64_t next_ = 0;  ///< all runs of plans before this number take place
  bool stopped_ = false;
};

}  // namespace mfsdp
