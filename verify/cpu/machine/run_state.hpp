// State shared by all threads of a run: whether it has failed, and whether ops still end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A mutex, and a condition that signals changes of the guarded data.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
};

/// The first failure ends the run: every wait at a gate returns.
class RunState {
 public:
  /// All gates must be added before threads start.
  void add(Gate& gate) { gates_.push_back(&gate); }

  /// Waits under `lock` until `ready()`; false if the run has failed.
  bool await(Gate& gate, std::unique_lock<std::mutex>& lock, auto ready) const {
    gate.changed.wait(lock, [&] { return failed() || ready(); });
    return !failed();
  }

  /// Keeps the first error and wakes all waiting threads.
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

  /// A host that does its own work (it reads data, prints, stores) is not stuck, however long it
  /// takes. A host that waits for the machine may be stuck.
  void host_begins() { hosts_at_work_.fetch_add(1, std::memory_order_relaxed); }
  void host_pauses() { hosts_at_work_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool hosts_work() const {
    return hosts_at_work_.load(std::memory_order_relaxed) > 0;
  }

  // Relaxed, so that ThreadSanitizer infers no order from it.
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

/// The waits of one host, announced only by that host. They nest: a host that waits for hosts of
/// other ranks also waits for its streams meanwhile. The outermost one counts.
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

/// During its lifetime the calling host counts as waiting for the machine.
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
