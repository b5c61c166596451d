#include "sim/cost/contention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace mfsdp {
namespace {

struct Point {
  double blocks = 0;
  double value = 0;
};

constexpr double kTableSms = 132;  // of the H200 that the tables were measured on

// Speed that large products lose to blocks which only spin: 1 - solo_ms / beside_ms, mean of the
// runs in h200_occupied_sms.csv. It grows in steps: products spread over fewer SMs leave a ragged
// last wave, and 4 blocks cost as much as 8.
constexpr std::array<Point, 12> kOccupancy{{{0, 0},
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

// Times beside products over times alone, of one long collective: neighbour_ms / alone_ms of the
// rows one_* in h200_collectives_beside_kernels.csv, mean over all-gather and reduce-scatter in
// bf16 and fp32. Few blocks cannot hide the longer way to memory that products make.
constexpr std::array<Point, 3> kRingDrag{{{4, 1.514}, {8, 1.328}, {24, 1.106}}};
constexpr std::array<Point, 2> kSymmetricDrag{{{8, 1.235}, {9, 1.188}}};
constexpr double kCopyEngineDrag = 1.926;

// The same beside kernels that are bound by memory, on two H100, and what share of a copy's
// bandwidth collectives took alone: collective_ms / alone_ms of the rows "copy" in
// h100_block_beside_collectives.csv, mean of each transport's. Copies leave the same to a
// collective that needs less of the memory, as its link is slower: it is held up less, down to what
// products do to it.
struct DragByCopies {
  double most = 1;
  double share = 1;
};
constexpr DragByCopies kRingDragByCopies{.most = 2.640, .share = 0.169};
constexpr DragByCopies kSymmetricDragByCopies{.most = 2.831, .share = 0.139};
constexpr DragByCopies kCopyEngineDragByCopies{.most = 1.270, .share = 0.2026};

// The one number fitted on GEMMs beside collectives. On 8 H200 twelve products take 33.15 ms alone
// and 35.33 ms beside four all-gathers of 436.2 MB that take 4.83 ms alone (ag_default). Of the
// 2.18 ms lost, occupancy explains 0.2138 * 1.106 * 4.83 = 1.142. The gathers read and write
// 4 * 2 * 7/8 * 436.2 MB = 3.053 GB, 0.7204 ms of what a copy sustains (4238 GB/s);
// 1.038 / 0.7204 = 1.441. Not a share of memory bandwidth: at the power limit, at which all of
// these ran, every byte moved costs energy that products no longer get. Likewise of reduce-scatters
// there, bf16 and fp32: 1.66 and 0.87; and on 2 H100 (a copy: 2957 GB/s), where a collective costs
// products what they lose while it is there times its time there: 0.87, 0.98 and 0.57. This is the
// mean of the six. In steps products beside a collective lose what its SMs make them lose, no more
// (docs/lab/2026-11-28-kernels-beside-collectives.md).
constexpr double kDraw = 1.065;

// What a collective costs kernels of other classes over what it costs products, on 2 H100. Of
// products and attention: the share that they lose beside it, 1 - solo_ms / beside_ms, times
// collective_ms / alone_ms, mean of each transport's rows in h100_block_beside_collectives.csv:
// meanwhile it waits for their SMs, which costs them nothing. Copies are short and hold none that
// it waits for: the share that they lose, alone, over the occupancy and the draw at the pace that
// copies leave it. So they lose in a step, too: norms 0.19 beside one gather by
// rings, SwiGLU's gradient 0.33 beside a gather and a reduction.
//                   products   forward   backward   copies
//   nccl              0.3734    0.2335     0.2877   0.1702 / 0.2831
//   symmetric         0.3185    0.1964     0.2015   0.0772 / 0.1600
//   copy engines      0.2273    0.1793     0.2695   0.3182 / 0.1701
constexpr PerKernelClass<double> kRingWeight{{1, 0.625, 0.770, 0.601}};
constexpr PerKernelClass<double> kSymmetricWeight{{1, 0.617, 0.633, 0.483}};
constexpr PerKernelClass<double> kCopyEngineWeight{{1, 0.789, 1.186, 1.870}};

/// Linear between the points, constant beyond them.
double at(std::span<const Point> points, double blocks) {
  if (blocks <= points.front().blocks) return points.front().value;
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (blocks > points[i].blocks) continue;
    const Point& low = points[i - 1];
    const double part = (blocks - low.blocks) / (points[i].blocks - low.blocks);
    return low.value + part * (points[i].value - low.value);
  }
  return points.back().value;
}

/// `memory`: the share of a copy's bandwidth that it takes alone.
PerKernelClass<double> drag_of(Transport transport, double blocks, double memory) {
  const auto of = [memory](double others, const DragByCopies& copies) {
    const double by_copies =
        std::max(copies.most * std::min(1.0, memory / copies.share), std::min(others, copies.most));
    return PerKernelClass<double>{{others, others, others, by_copies}};
  };
  switch (transport) {
    case Transport::nccl: return of(at(kRingDrag, blocks), kRingDragByCopies);
    case Transport::symmetric: return of(at(kSymmetricDrag, blocks), kSymmetricDragByCopies);
    case Transport::copy_engine: break;
  }
  return of(kCopyEngineDrag, kCopyEngineDragByCopies);
}

const PerKernelClass<double>& weight_of(Transport transport) {
  switch (transport) {
    case Transport::nccl: return kRingWeight;
    case Transport::symmetric: return kSymmetricWeight;
    case Transport::copy_engine: break;
  }
  return kCopyEngineWeight;
}

std::int64_t parts(double share) {
  return std::llround(share * static_cast<double>(kContentionUnit));
}

}  // namespace

Contention contention(const Gpu& gpu, const CollectiveLoad& load) {
  const double blocks = load.blocks * kTableSms / static_cast<double>(gpu.sms);
  const double memory = load.bytes / load.duration_ns / gpu.copy_bandwidth();
  const double draw = std::min(1.0, kDraw * memory);
  Contention contention{.occupancy = parts(at(kOccupancy, blocks)), .draw = parts(draw)};
  const PerKernelClass<double>& weight = weight_of(load.transport);
  contention.traffic[KernelClass::memory] = parts(weight[KernelClass::memory] * draw);
  const PerKernelClass<double> drag = drag_of(load.transport, blocks, memory);
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
