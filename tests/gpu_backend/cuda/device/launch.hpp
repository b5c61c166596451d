// Runs a launcher to its end.
#pragma once

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {

/// The launch and what it launched went well.
inline void expect_runs(const Result<void>& launch) {
  ASSERT_TRUE(launch) << launch.error().message();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// Equal bits, NaN or not.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace mfsdp::cuda
