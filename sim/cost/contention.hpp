// What a collective takes from kernels that run beside it, and they from it.
//
// Three effects on products, each from a measurement of its own (scenarios/gpus/tables), and what
// other kernels lose beside that; products of few waves of tiles lose more (gemm.hpp, ragged_loss):
//   occupancy  it holds SMs                        h200_occupied_sms.csv
//   traffic    the bytes that it moves             h200_overlap.csv and
//                                                  h100_block_beside_collectives.csv, rings
//   drag       it runs slower than on an idle GPU  h200_collectives_beside_kernels.csv; beside
//                                                  what is bound by memory the table below
//   weight     of attention and memory-bound       h100_block_beside_collectives.csv
#pragma once

#include <cstdint>

#include "core/base/quantity.hpp"
#include "sim/cost/kernel_class.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Shares and rates are parts of this.
inline constexpr std::int64_t kContentionUnit = 1 << 20;

[[nodiscard]] constexpr double share(std::int64_t parts) {
  return static_cast<double>(parts) / static_cast<double>(kContentionUnit);
}

/// A collective as it is when it runs alone.
struct CollectiveLoad {
  Transport transport = Transport::nccl;
  double blocks = 0;       ///< SMs that it holds
  double bytes = 0;        ///< read from and written to this GPU's memory
  double duration_ns = 0;  ///< above 0
};

struct Contention {
  std::int64_t occupancy = 0;  ///< of their speed kernels lose while it is there
  std::int64_t traffic = 0;    ///< and at its full rate; in proportion to its rate
  /// How much of both kernels of each class lose; both are those of products.
  PerKernelClass<std::int64_t> weight{
      {kContentionUnit, kContentionUnit, kContentionUnit, kContentionUnit}};
  /// How much longer it takes beside kernels of each class, at least 1.
  PerKernelClass<std::int64_t> drag{
      {kContentionUnit, kContentionUnit, kContentionUnit, kContentionUnit}};

  friend bool operator==(const Contention&, const Contention&) = default;
};

/// SMs are counted relative to the GPU's, bytes to what a copy sustains on it.
[[nodiscard]] Contention contention(const Gpu& gpu, const CollectiveLoad& load);

/// Times that, beside products and attention; still at least 1.
void scale_drag(Contention& contention, double factor);

}  // namespace mfsdp
