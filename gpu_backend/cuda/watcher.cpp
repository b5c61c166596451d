#include "gpu_backend/cuda/watcher.hpp"

#include <cuda_runtime.h>

#include <condition_variable>
#include <utility>

#include "gpu_backend/cuda/device_clock.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Watcher::Watcher(WatcherSettings settings)
    : settings_(std::move(settings)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

Watcher::~Watcher() = default;  // stops and joins the thread

Watcher::Call::Call(Watcher& watcher) : watcher_(watcher) {
  watcher_.entered_.store(host_now().value, std::memory_order_relaxed);
}

Watcher::Call::~Call() { watcher_.entered_.store(0, std::memory_order_relaxed); }

Result<void> Watcher::outcome() const {
  if (!failed()) return {};
  const std::scoped_lock lock(mutex_);
  return tl::unexpected<Error>(*error_);
}

void Watcher::fail(const Error& error) {
  {
    const std::scoped_lock lock(mutex_);
    if (error_) return;
    settings_.before_failure();
    error_ = error;
    failed_.store(true, std::memory_order_release);
  }
  settings_.on_failure(error);
}

void Watcher::watch(const std::stop_token& stop) {
  cudaSetDevice(settings_.device);  // each thread has its own current device
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested() && !failed()) {
    if (const auto seen = settings_.look(); !seen) fail(seen.error());
    const std::int64_t entered = entered_.load(std::memory_order_relaxed);
    const auto held = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::nanoseconds(host_now().value - entered));
    if (!failed() && entered != 0 && held >= settings_.deadline) fail(settings_.stalled(held));
    stopped.wait_for(lock, stop, kLook, [] { return false; });
  }
}

}  // namespace mfsdp::cuda
