// Device memory for tests: poisoned before use and followed by poison, so that tests detect reads
// and writes after its end.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/runtime/scalar.hpp"

namespace mfsdp::cuda {

inline void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// `count` elements. Every byte is 0xff until it is written: NaN in all floating types.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t count) { resize(count); }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<std::int64_t>(values.size())) {
    require(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyDefault));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() const { return static_cast<T*>(data_); }
  [[nodiscard]] std::span<std::byte> as_bytes() const {
    return {static_cast<std::byte*>(data_), bytes()};
  }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(count_);
    require(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDefault));
    return values;
  }
  /// All of it poison, before any stream goes on.
  void resize(std::int64_t count) {
    cudaFree(std::exchange(data_, nullptr));
    count_ = static_cast<std::size_t>(count);
    require(cudaMalloc(&data_, bytes() + kMargin));
    require(cudaMemset(data_, 0xff, bytes() + kMargin));
    require(cudaStreamSynchronize(nullptr));
  }
  /// The first elements; the rest stays as it is.
  void upload(const std::vector<T>& values) const {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault));
  }
  void poison() { require(cudaMemset(data_, 0xff, bytes())); }
  /// Whether no byte after the end was written.
  [[nodiscard]] bool margin_is_whole() const {
    std::vector<std::uint8_t> margin(kMargin);
    require(cudaMemcpy(margin.data(), static_cast<std::byte*>(data_) + bytes(), kMargin,
                       cudaMemcpyDefault));
    return std::ranges::all_of(margin, [](std::uint8_t byte) { return byte == 0xff; });
  }

 private:
  static constexpr std::size_t kMargin = std::size_t{64} << 10;
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

  std::size_t count_ = 0;
  void* data_ = nullptr;
};

/// Whether no element from `first` on was written.
template <class T>
[[nodiscard]] bool is_poison_from(const std::vector<T>& values, std::int64_t first) {
  const auto rest = std::as_bytes(std::span(values).subspan(static_cast<std::size_t>(first)));
  return std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0xff}; });
}

/// Normal random numbers, rounded to T.
template <class T>
[[nodiscard]] std::vector<T> random_values(std::int64_t count, std::uint32_t seed,
                                           float deviation = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = narrow<T>(normal(bits));
  return values;
}

template <class T>
[[nodiscard]] std::vector<double> widened(const std::vector<T>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const T& value : values) wide.push_back(widen(value));
  return wide;
}

/// |got - expected| / |expected|, Euclidean; NaN where anything is.
template <class T>
[[nodiscard]] double relative_error(const std::vector<T>& got,
                                    const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(widen(got[i])) - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

/// Largest relative error of results that are stored as T.
template <class T>
inline constexpr double kTolerance = sizeof(T) == 2 ? 1e-2 : 1e-5;

}  // namespace mfsdp::cuda
