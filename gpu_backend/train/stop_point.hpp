// Where a run ends early: before which step or batch of an evaluation, the same on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "core/base/error.hpp"

namespace mfsdp {

/// Ranks issue plans at different times, so that "stop now" means another one to each of them; the
/// first rank to ask about a turn answers for all.
class StopPoint {
 public:
  virtual ~StopPoint() = default;
  /// Whether turn `turn` runs: each run of a plan is one, numbered from 0. Ranks ask in the order
  /// of turns, each about every one.
  [[nodiscard]] virtual Result<bool> runs(std::int64_t turn) = 0;
};

/// The stop point of ranks that are threads of one process.
class SharedStopPoint final : public StopPoint {
 public:
  /// `requested`: whether the run should end, as Ctrl-C's flag; asked by one rank at a time.
  explicit SharedStopPoint(std::function<bool()> requested) : requested_(std::move(requested)) {}

  [[nodiscard]] Result<bool> runs(std::int64_t turn) override {
    const std::scoped_lock lock(mutex_);
    if (turn < next_) return true;
    if (!stopped_) stopped_ = requested_();
    if (!stopped_) next_ = turn + 1;
    return !stopped_;
  }

  /// Whether some turn was refused. To be asked when the ranks have ended.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::function<bool()> requested_;
  std::mutex mutex_;
  std::int64_t next_ = 0;  ///< all turns before it run
  bool stopped_ = false;
};

}  // namespace mfsdp
