#include "gpu_backend/cuda/device_clock.hpp"

#include <chrono>
#include <cmath>
#include <utility>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

constexpr Nanos kFollowAfter{1'000'000'000};
constexpr int kRounds = 20;  ///< of align(); the shortest one is used

}  // namespace

Nanos host_now() {
  return Nanos(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

Result<DeviceClock> DeviceClock::create(cudaStream_t stream) {
  DeviceClock made;
  for (OwnedEvent* event : {&made.base_, &made.next_}) {
    MFSDP_LET(owned, make_event(true));
    *event = std::move(owned);
  }
  MFSDP_TRY(made.align(stream));
  return made;
}

Result<Nanos> DeviceClock::time_of(cudaEvent_t event) const {
  float milliseconds = 0;
  MFSDP_TRY(check(cudaEventElapsedTime(&milliseconds, base_.get(), event), "cudaEventElapsedTime"));
  return base_at_ + Nanos(std::llround(static_cast<double>(milliseconds) * 1e6));
}

Result<void> DeviceClock::follow(cudaStream_t stream) {
  if (!next_recorded_) {
    if (host_now() - base_at_ < kFollowAfter) return {};
    MFSDP_TRY(check(cudaEventRecord(next_.get(), stream), "cudaEventRecord"));
    next_recorded_ = true;
    return {};
  }
  const cudaError_t status = query_event(next_.get());
  if (status == cudaErrorNotReady) return {};
  MFSDP_TRY(check(status, "cudaEventQuery"));
  MFSDP_LET(at, time_of(next_.get()));
  base_at_ = at;
  std::swap(base_, next_);
  next_recorded_ = false;
  return {};
}

/// The event runs between the two readings of the clock. Their midpoint is wrong by at most half of
/// their distance.
Result<void> DeviceClock::align(cudaStream_t stream) {
  Nanos least;
  for (int round = 0; round < kRounds; ++round) {
    const Nanos before = host_now();
    MFSDP_TRY(check(cudaEventRecord(next_.get(), stream), "cudaEventRecord"));
    MFSDP_TRY(check(cudaEventSynchronize(next_.get()), "cudaEventSynchronize"));
    const Nanos took = host_now() - before;
    if (round > 0 && took >= least) continue;
    least = took;
    base_at_ = before + Nanos(took.value / 2);
    std::swap(base_, next_);
  }
  next_recorded_ = false;
  return {};
}

}  // namespace mfsdp::cuda
