// What all threads of a run share: whether it has failed, and whether anything still moves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A mutex and the condition that what it guards has changed.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
};

/// The first failure ends the run: every wait at a gate returns.
class RunState {
 public:
  /// Gates are made known before threads start.
  void add(Gate& gate) { gates_.push_back(&gate); }

  /// Waits under `lock` until `ready()`; false when the run has failed instead.
  template <class Ready>
  bool await(Gate& gate, std::unique_lock<std::mutex>& lock, Ready ready) const {
    gate.changed.wait(lock, [&] { return failed() || ready(); });
    return !failed();
  }

  /// Keeps the first error and wakes everyone who waits.
  void fail(Error error) {
    {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = std::move(error);
    }
    failed_.store(true, std::memory_order_release);
    for (Gate* gate : gates_) {
      {
        const std::scoped_lock lock(gate->mutex);
      }
      gate->changed.notify_all();
    }
  }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Success, or the first error.
  [[nodiscard]] Result<void> outcome() const {
    if (!failed()) return {};
    const std::scoped_lock lock(mutex_);
    return tl::unexpected<Error>(*error_);
  }

  /// A host that works for itself (it reads data, prints, stores) is not stuck, however long it
  /// takes; one that waits for the machine may be.
  void host_begins() { hosts_at_work_.fetch_add(1, std::memory_order_relaxed); }
  void host_pauses() { hosts_at_work_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool hosts_work() const {
    return hosts_at_work_.load(std::memory_order_relaxed) > 0;
  }

  // Counted without ordering anything, so that ThreadSanitizer takes no order from it.
  void count_issued() { issued_.fetch_add(1, std::memory_order_relaxed); }
  void count_ended() { ended_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  std::vector<Gate*> gates_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
  std::atomic<std::int64_t> hosts_at_work_{0};
  std::atomic<std::int64_t> issued_{0};
  std::atomic<std::int64_t> ended_{0};
};

/// The waits of one host, told by that host alone. They nest: a host that waits for others' hosts
/// looks at its streams meanwhile. The outermost counts.
class HostWaits {
 public:
  explicit HostWaits(RunState& run) : run_(run) {}

  void begin() {
    if (depth_++ == 0) run_.host_pauses();
  }
  void end() {
    if (--depth_ == 0) run_.host_begins();
  }

 private:
  RunState& run_;
  int depth_ = 0;
};

/// While it lives, the calling host waits for the machine.
class HostPause {
 public:
  explicit HostPause(HostWaits& waits) : waits_(waits) { waits_.begin(); }
  ~HostPause() { waits_.end(); }
  HostPause(const HostPause&) = delete;
  HostPause& operator=(const HostPause&) = delete;

 private:
  HostWaits& waits_;
};

}  // namespace mfsdp
