// Variation of kernel times: the duration of each kernel of each rank relative to its price.
#pragma once

#include <cstdint>

namespace mfsdp {

/// One execution of a kernel in a run.
struct KernelInstance {
  std::int64_t step = 0;
  std::uint32_t segment = 0;
  std::int64_t instance = 0;  ///< of the segment
  std::uint32_t op = 0;       ///< position in the segment
};

/// Approximately normal with mean 0 and standard deviation 1, in units of 2^-16; within 6 of 0. An
/// integer function of its arguments only: equal on every machine and in any order of calls.
[[nodiscard]] std::int64_t standard_deviate(std::uint64_t seed, std::int64_t rank,
                                            const KernelInstance& kernel);

/// The kernels of one rank.
struct KernelTimes {
  std::int64_t rank = 0;
  std::int64_t factor = 0;  ///< of all kernels of the rank; kOne is 1
  std::int64_t jitter = 0;  ///< standard deviation; kOne is 1
  std::uint64_t seed = 0;

  /// factor * (1 + jitter * z), in units of 1 / kOne; at least 0.
  [[nodiscard]] std::int64_t of(const KernelInstance& kernel) const {
    return jitter == 0 ? factor : jittered(kernel);
  }

 private:
  [[nodiscard]] std::int64_t jittered(const KernelInstance& kernel) const;
};

}  // namespace mfsdp
