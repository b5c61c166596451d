// Steps of a run as independent samples.
//
// A step's time resembles that of the step before it: clocks and temperature change slowly. Tests
// that take neighbouring steps for independent find differences where there are none. So a sample
// is the mean of a block of steps, and blocks grow until one no longer resembles the next.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace mfsdp {

struct BlockRule {
  std::size_t warm_up = 5;  ///< first steps, left out: kernels are chosen, memory is mapped
  std::size_t steps = 10;   ///< of the shortest block
  std::size_t least = 5;    ///< blocks; below that they do not grow
  std::size_t most = 200;   ///< blocks; they begin longer where a series would give more
};

struct Blocks {
  std::vector<double> means;   ///< of each block, in order
  std::size_t steps = 0;       ///< of a block
  double autocorrelation = 0;  ///< of the means
  bool independent = true;     ///< autocorrelation at most 2 / sqrt(blocks): as random ones have it
};

/// The blocks of a series. Steps that do not fill the last block are left out; a series that is too
/// short gives fewer blocks than `least`, or none.
[[nodiscard]] Blocks blocks_of(std::span<const double> series, const BlockRule& rule = {});

}  // namespace mfsdp
