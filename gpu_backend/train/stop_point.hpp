// Where a run ends early: before which step, the same on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "core/base/error.hpp"

namespace mfsdp {

/// Ranks issue steps at different times, so that "stop now" means another step to each of them;
/// the first rank to ask about a step answers for all.
class StopPoint {
 public:
  virtual ~StopPoint() = default;
  /// Whether step `step` (from 0) runs. Ranks ask in the order of steps, each about every step.
  [[nodiscard]] virtual Result<bool> runs(std::int64_t step) = 0;
};

/// The stop point of ranks that are threads of one process.
class SharedStopPoint final : public StopPoint {
 public:
  /// `requested`: whether the run should end, as Ctrl-C's flag; asked by one rank at a time.
  explicit SharedStopPoint(std::function<bool()> requested) : requested_(std::move(requested)) {}

  [[nodiscard]] Result<bool> runs(std::int64_t step) override {
    const std::scoped_lock lock(mutex_);
    if (step < next_) return true;
    if (!stopped_) stopped_ = requested_();
    if (!stopped_) next_ = step + 1;
    return !stopped_;
  }

 private:
  std::function<bool()> requested_;
  std::mutex mutex_;
  std::int64_t next_ = 0;  ///< all steps before it run
  bool stopped_ = false;
};

}  // namespace mfsdp
