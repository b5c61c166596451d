// Times of memory-bound kernels as a Markdown table: bytes that a kernel must move, time, and the
// share of what a copy reaches.
//
// Operands are taken from one arena, anew for each launch, so that no launch finds what it reads in
// the L2 cache. A figure is the median of seven runs of at least 20 launches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {

inline constexpr std::int64_t kArenaBytes = std::int64_t{16} << 30;
inline constexpr int kRuns = 7;
inline constexpr int kSkipped = 77;  ///< the exit code without a GPU

/// The GPU and versions of its software; empty without a GPU, which is then stated.
inline std::string device_line() {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::puts("no CUDA device: skipped");
    return {};
  }
  int driver = 0;
  int runtime = 0;
  require(cudaDriverGetVersion(&driver));
  require(cudaRuntimeGetVersion(&runtime));
  return std::string(device.name) + ", CUDA driver " + std::to_string(driver) + ", runtime " +
         std::to_string(runtime);
}

inline void require_runs(const Result<void>& launch) {
  if (launch) return;
  std::fprintf(stderr, "benchmark: %s\n", launch.error().message().c_str());
  std::exit(3);
}

/// A benchmark ends with the error of a result that it needs.
template <class T>
T required(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "benchmark: %s\n", result.error().message().c_str());
  std::exit(3);
}

/// Device memory full of random numbers, handed out piece by piece, round and round.
class Arena {
 public:
  Arena()
      : bytes_(kArenaBytes), numbers_([] {
          auto values = random_values<Bf16>(1 << 24, 7);
          for (Bf16& value : values) value.bits &= 0x7fff;  // second moments are positive
          return values;
        }()) {}

  /// `count` elements that no recent launch has touched.
  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t size = (count * static_cast<std::int64_t>(sizeof(T)) + 511) / 512 * 512;
    if (next_ + size > kArenaBytes) next_ = 0;
    T* const taken = reinterpret_cast<T*>(bytes_.data() + next_);
    next_ += size;
    return taken;
  }

  void refill() {
    const auto from = numbers_.as_bytes();
    for (std::int64_t at = 0; at < kArenaBytes; at += static_cast<std::int64_t>(from.size()))
      require(
          cudaMemcpyAsync(bytes_.data() + at, from.data(), from.size(), cudaMemcpyDeviceToDevice));
  }

 private:
  DeviceArray<std::byte> bytes_;
  DeviceArray<Bf16> numbers_;
  std::int64_t next_ = 0;
};

/// Microseconds of one launch.
inline double time_launches(Arena& arena, const std::function<Result<void>()>& launch) {
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) require(cudaEventCreate(&event));
  const auto run = [&](int launches) {
    require(cudaEventRecord(events[0]));
    for (int i = 0; i < launches; ++i) require_runs(launch());
    require(cudaEventRecord(events[1]));
    require(cudaEventSynchronize(events[1]));
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, events[0], events[1]));
    return static_cast<double>(milliseconds) * 1e3 / launches;
  };
  arena.refill();
  const double first = run(5);
  const int launches = std::clamp(static_cast<int>(4000 / first), 20, 500);
  std::array<double, kRuns> times{};
  for (double& time : times) time = run(launches);
  std::ranges::sort(times);
  for (cudaEvent_t event : events) require(cudaEventDestroy(event));
  return times[kRuns / 2];
}

class Table {
 public:
  explicit Table(std::string only) : only_(std::move(only)) {
    const std::int64_t bytes = std::int64_t{1} << 30;
    copy_ = 2 * static_cast<double>(bytes) / time_launches(arena, [&] {
              auto* const from = arena.take<std::byte>(bytes);
              require(cudaMemcpyAsync(arena.take<std::byte>(bytes), from,
                                      static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice));
              return Result<void>{};
            });
    std::printf("copy of 1 GiB, read and written: %.0f GB/s\n\n", copy_ / 1e3);
    std::printf("| kernel | shape | MB | us | GB/s | of copy |\n|---|---|---:|---:|---:|---:|\n");
  }

  void row(const std::string& name, const std::string& shape, std::int64_t bytes,
           const std::function<Result<void>()>& launch) {
    if (name.find(only_) == std::string::npos) return;
    const double time = time_launches(arena, launch);
    const double rate = static_cast<double>(bytes) / time;
    std::printf("| %s | %s | %.1f | %.1f | %.0f | %.0f %% |\n", name.c_str(), shape.c_str(),
                static_cast<double>(bytes) / 1e6, time, rate / 1e3, 100 * rate / copy_);
    std::fflush(stdout);
  }

  Arena arena;

 private:
  std::string only_;
  double copy_ = 0;  ///< bytes per microsecond
};

}  // namespace mfsdp::cuda
