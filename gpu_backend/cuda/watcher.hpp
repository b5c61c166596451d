// A thread that detects failures while a launch or a collective blocks the host thread.
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
  std::chrono::milliseconds deadline{60'000};  ///< of one host call
  /// Errors of the other ranks and of NCCL; called by the thread.
  std::function<Result<void>()> look;
  /// The op that the device executes, for the message of a deadline; called by the thread while the
  /// host is in a call.
  std::function<Error(std::chrono::milliseconds held)> stalled;
  /// Called once before the failure becomes visible: everything that has run by now is valid.
  std::function<void()> before_failure;
  /// Called once, by the thread that finds the first failure: frees the device of operations that
  /// wait for others.
  std::function<void(const Error&)> on_failure;
};

class Watcher {
 public:
  explicit Watcher(WatcherSettings settings);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The host is inside the backend during the lifetime of this object. Calls do not nest.
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
  /// Beginning of the host's call, on the host's clock; 0: the host is in no call.
  std::atomic<std::int64_t> entered_{0};
  std::jthread thread_;  ///< last: it uses the members above
};

}  // namespace mfsdp::cuda
