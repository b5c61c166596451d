#include "sim/cost/contention.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/cost/transport_prices.hpp"

namespace mfsdp {
namespace {

constexpr double kTableSms = 132;  // of the H200 that the tables were measured on

// Speed that large GEMMs lose to blocks that only spin: 1 - solo_ms / beside_ms, mean of the runs
// in h200_occupied_sms.csv. It grows in steps, because tiles on fewer SMs leave an incomplete last
// wave: 4 blocks cost as much as 8.
constexpr std::array<BlocksPoint, 12> kOccupancy{{{0, 0},
                                                  {1, 0.0294},
                                                  {2, 0.0631},
                                                  {4, 0.0835},
                                                  {8, 0.0851},
                                                  {9, 0.1057},
                                                  {12, 0.1458},
                                                  {16, 0.2087},
                                                  {20, 0.2146},
                                                  {24, 0.2138},
                                                  {32, 0.3210},
                                                  {48, 0.3931}}};

// The only constant that was fitted to GEMMs beside collectives. On 8 H200, twelve GEMMs take 33.15
// ms alone, and 35.33 ms beside four all-gathers of 436.2 MB that take 4.83 ms alone (ag_default).
// Of the 2.18 ms lost, occupancy explains 0.2138 * 1.106 * 4.83 = 1.142; 1.038 remain. The gathers
// read and write 4 * 2 * 7/8 * 436.2 MB = 3.053 GB, which a copy moves in 0.7204 ms (4238 GB/s);
// 1.038 / 0.7204 = 1.441. This is not a share of memory bandwidth: at the power limit, at which all
// of these ran, every byte moved costs energy that GEMMs lack. Likewise for reduce-scatters there,
// bf16 and fp32: 1.66 and 0.87. On 2 H100 (a copy: 2957 GB/s) collectives cost GEMMs their loss
// during the collective times its duration there: 0.87, 0.98 and 0.57. The constant is the mean of
// the six. In steps, GEMMs beside a collective lose only the speed that its SMs cost
// (docs/lab/2026-11-28-kernels-beside-collectives.md).
constexpr double kDraw = 1.065;

/// `memory`: the share of a copy's bandwidth that the collective uses when alone.
PerKernelClass<double> drag_of(const TransportPrices& prices, double blocks, double memory) {
  const double others = value_at(prices.drag, blocks);
  const DragByCopies& copies = prices.drag_by_copies;
  const double by_copies =
      std::max(copies.most * std::min(1.0, memory / copies.share), std::min(others, copies.most));
  return {{others, others, others, by_copies}};
}

std::int64_t parts(double share) {
  return std::llround(share * static_cast<double>(kContentionUnit));
}

}  // namespace

Contention contention(const Gpu& gpu, const CollectiveLoad& load) {
  const double blocks = load.blocks * kTableSms / static_cast<double>(gpu.sms);
  const double memory = load.bytes / load.duration_ns / gpu.copy_bandwidth();
  const double draw = std::min(1.0, kDraw * memory);
  Contention contention{.occupancy = parts(value_at(kOccupancy, blocks)), .draw = parts(draw)};
  const TransportPrices& prices = prices_of(load.transport);
  const PerKernelClass<double>& weight = prices.weight;
  contention.traffic[KernelClass::memory] = parts(weight[KernelClass::memory] * draw);
  const PerKernelClass<double> drag = drag_of(prices, blocks, memory);
  for (std::size_t kind = 0; kind < kKernelClasses; ++kind) {
    contention.weight.values[kind] = parts(weight.values[kind]);
    contention.drag.values[kind] = parts(drag.values[kind]);
  }
  return contention;
}

void slow_bytes(Contention& contention, double factor) {
  contention.draw = parts(share(contention.draw) / factor);
  for (std::int64_t& lost : contention.traffic.values) lost = parts(share(lost) / factor);
}

void scale_drag(Contention& contention, double factor) {
  for (const KernelClass which :
       {KernelClass::product, KernelClass::attention_forward, KernelClass::attention_backward}) {
    std::int64_t& drag = contention.drag[which];
    drag = std::max(kContentionUnit, parts(share(drag) * factor));
  }
}

}  // namespace mfsdp
