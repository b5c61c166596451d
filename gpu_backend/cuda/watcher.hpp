// A thread that sees what the host thread cannot: it may be held inside a launch or a collective.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::cuda {

struct WatcherSettings {
  int device = 0;
  std::chrono::milliseconds deadline{60'000};  ///< of one call of the host
  /// Errors of the other ranks, and of NCCL; asked by the thread.
  std::function<Result<void>()> look;
  /// What the device is at, for the message of a deadline; asked by the thread while the host is
  /// held in a call.
  std::function<Error(std::chrono::milliseconds held)> stalled;
  /// Called once before anyone can see the failure: what has run by now has run as it should.
  std::function<void()> before_failure;
  /// Called once, by whoever finds the first failure: frees the device of what waits for others.
  std::function<void(const Error&)> on_failure;
};

class Watcher {
 public:
  explicit Watcher(WatcherSettings settings);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The host is inside the backend for as long as this lives. Calls do not nest.
  class Call {
   public:
    explicit Call(Watcher& watcher);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Watcher& watcher_;
  };

  /// Success, or the first failure.
  [[nodiscard]] Result<void> outcome() const;
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  void fail(const Error& error);

 private:
  void watch(const std::stop_token& stop);

  WatcherSettings settings_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<Error> error_;  ///< guarded by mutex_
  /// When the host's call began, on the host's clock; 0: it is in none.
  std::atomic<std::int64_t> entered_{0};
  std::jthread thread_;  ///< last: it uses the rest
};

}  // namespace mfsdp::cuda
