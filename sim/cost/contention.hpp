// Mutual slowdown of collectives and concurrent kernels.
//
// Each effect has its own measurement (scenarios/gpus/tables). GEMMs with few waves of tiles lose
// more (gemm.hpp, ragged_loss):
//   occupancy  it holds SMs                        h200_occupied_sms.csv
//   draw       the energy of the bytes it moves,   h200_overlap.csv and
//              which all kernels of a step pay     h100_block_beside_collectives.csv, rings
//              for (power_mix.hpp)
//   traffic    those bytes, which slow             the table below
//              memory-bound kernels down
//   drag       it runs slower than on an idle GPU  h200_collectives_beside_kernels.csv; beside
//                                                  memory-bound kernels the table below
//   weight     of attention and memory-bound       h100_block_beside_collectives.csv
//              kernels
#pragma once

#include <cstdint>

#include "core/base/quantity.hpp"
#include "sim/cost/kernel_class.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Shares and rates are fractions of this unit.
inline constexpr std::int64_t kContentionUnit = 1 << 20;

[[nodiscard]] constexpr double share(std::int64_t parts) {
  return static_cast<double>(parts) / static_cast<double>(kContentionUnit);
}

/// A collective when it runs alone.
struct CollectiveLoad {
  Transport transport = Transport::nccl;
  double blocks = 0;       ///< SMs that it holds
  double bytes = 0;        ///< read from and written to this GPU's memory
  double duration_ns = 0;  ///< above 0
};

struct Contention {
  std::int64_t occupancy = 0;  ///< speed that GEMMs lose while it is resident
  /// Fraction of `occupancy` that kernels of each class lose.
  PerKernelClass<std::int64_t> weight{
      {kContentionUnit, kContentionUnit, kContentionUnit, kContentionUnit}};
  /// Additional loss of kernels of each class at the collective's full rate; proportional to its
  /// rate.
  PerKernelClass<std::int64_t> traffic{};
  std::int64_t draw = 0;  ///< fraction of the power limit, at full rate
  /// Slowdown of the collective beside kernels of each class, at least 1.
  PerKernelClass<std::int64_t> drag{
      {kContentionUnit, kContentionUnit, kContentionUnit, kContentionUnit}};

  friend bool operator==(const Contention&, const Contention&) = default;
};

/// SMs count relative to the GPU's SMs, bytes relative to its copy bandwidth.
[[nodiscard]] Contention contention(const Gpu& gpu, const CollectiveLoad& load);

/// For a collective that takes `factor` times as long, so its bytes move more slowly.
void slow_bytes(Contention& contention, double factor);

/// Multiplies the drag beside GEMMs and attention by `factor`; the result is at least 1.
void scale_drag(Contention& contention, double factor);

}  // namespace mfsdp
