#include "sim/cost/power_mix.hpp"

#include <algorithm>
#include <cmath>

namespace mfsdp {
namespace {

// From h100_mixtures.csv: times of GEMMs (P), attention (A) and copies (M) of a block of Llama-3-8B
// in mixtures, relative to the times alone. The clock is 15.757 ms (mean of the first and the last
// row) over a GEMM's time; attention's time times that clock is kAttentionClock:
//   1 P, 1 A   clock 1.032; attention 1.107 and 1.118 -> 1.142, 1.154
//   1 P, 3 A         1.077;           1.055     1.073 -> 1.135, 1.155
//   3 P, 1 A         1.016;           1.125     1.137 -> 1.143, 1.155
//   with 3 copies    1.051;           1.085     1.096 -> 1.140, 1.152
constexpr double kAttentionClock = 1.147;
// Solution of the energy equation for the draw of copies, in the rows with 10, 3 and 12 copies
// beside GEMMs, or beside GEMMs and attention: 0.77, 0.82 and 0.83.
constexpr double kMemoryDraw = 0.81;
// Attention beside ten copies, without GEMMs: 0.886 of its time alone, where the equation gives
// 0.80. This is the highest clock: 1.147 / 0.886.
constexpr double kHighestClock = 1.29;

// Twelve GEMMs of a block in FP8 between the same twelve in bf16 (draw_bench,
// docs/lab/2026-12-01-fp8.md): 0.972 of their time alone, those in bf16 1 / 0.990.
constexpr double kFp8Clock = 0.96;

// An H100 at its highest clock whose process waits draws about 124 W of the tables' 700 W
// (docs/lab/2026-11-27-idle-clock.md).
constexpr double kIdleDraw = 0.18;
// GEMMs of 0.95 ms and more: continuous at the power limit (h200_products_beside_blocks.csv) over
// bursts on a cool GPU (h100_products_beside_blocks.csv), by one program: 1.08 to 1.19.
constexpr double kBurstClock = 1.15;

/// Energy of work at a clock relative to clock 1: c ^ 1.25, by square roots only.
double energy_at(double clock) { return clock * std::sqrt(std::sqrt(clock)); }

}  // namespace

ClassFactors faster(const ClassFactors& mixed, double clock) {
  ClassFactors factors = mixed;
  factors[KernelClass::product] = std::max(mixed[KernelClass::product] / clock, 1 / kHighestClock);
  factors.fp8_product = std::max(mixed.fp8_product / clock, kFp8Clock / kHighestClock);
  for (const KernelClass attention :
       {KernelClass::attention_forward, KernelClass::attention_backward})
    factors[attention] = std::max(mixed[attention] / clock, kAttentionClock / kHighestClock);
  return factors;
}

double idle_clock(double limited, double idle, double limit) {
  if (limited <= 0) return 1;
  const double spared = (1 - kIdleDraw / limit) * idle / limited;
  double low = 1;
  double high = kBurstClock;
  if (energy_at(high) - 1 / high <= spared) return high;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double clock = (low + high) / 2;
    (energy_at(clock) - 1 / clock <= spared ? low : high) = clock;
  }
  return low;
}

// The fourth root of the clock. Measured: reductions of a layer of Llama-3-8B at the end of steps
// of 4096 tokens, relative to steps of 128 tokens, which no limit slows down. On 2 and 4 H100, with
// rings and symmetric kernels, fp32 and bf16: 1.039 to 1.117, mean 1.070; relative to the tables'
// times 1.018 to 1.136, mean 1.057 (docs/lab/2026-11-28-collectives-in-a-step.md). The model puts
// those steps at a clock lower than the highest by a factor of 1.24 to 1.29: 1.055 to 1.066.
double collective_slowdown(const PerKernelClass<double>& mixed) {
  return std::sqrt(std::sqrt(std::max(1.0, kHighestClock * mixed[KernelClass::product])));
}

ClassFactors power_mix(const StepWork& work, double drawn) {
  const PerKernelClass<double>& alone = work.alone;
  const double products = alone[KernelClass::product];
  const double attention =
      alone[KernelClass::attention_forward] + alone[KernelClass::attention_backward];
  ClassFactors factors;
  if (products + attention <= 0) return factors;
  const double spared = (1 - kMemoryDraw) * alone[KernelClass::memory];
  const double limited = products + attention - spared + drawn;
  const double of_products = products - (1 - kFp8Clock) * work.fp8;
  const double least = products > 0 ? of_products / products : 1;
  const double needed = of_products + attention * kAttentionClock;
  const double clock =
      needed >= limited * kHighestClock ? kHighestClock : std::max(least, needed / limited);
  factors[KernelClass::product] = 1 / clock;
  factors.fp8_product = work.fp8 > 0 ? kFp8Clock / clock : 1;
  factors[KernelClass::attention_forward] = kAttentionClock / clock;
  factors[KernelClass::attention_backward] = kAttentionClock / clock;
  return factors;
}

}  // namespace mfsdp
