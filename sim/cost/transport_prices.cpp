#include "sim/cost/transport_prices.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace mfsdp {
namespace {

// Times beside GEMMs relative to times alone, of one long collective: neighbour_ms / alone_ms of
// the rows one_* in h200_collectives_beside_kernels.csv, mean over all-gather and reduce-scatter in
// bf16 and fp32. A small number of blocks cannot hide the higher memory latency that GEMMs cause.
constexpr std::array<BlocksPoint, 3> kRingDrag{{{4, 1.514}, {8, 1.328}, {24, 1.106}}};
constexpr std::array<BlocksPoint, 2> kSymmetricDrag{{{8, 1.235}, {9, 1.188}}};
constexpr std::array<BlocksPoint, 1> kCopyEngineDrag{{{0, 1.926}}};

// The same beside memory-bound kernels, on two H100, and the share of a copy's bandwidth that
// collectives used alone: collective_ms / alone_ms of the rows "copy" in
// h100_block_beside_collectives.csv, mean for each transport. Copies leave a fixed share of the
// memory, so a collective with lower demand, due to a slower link, is delayed less. The delay by
// GEMMs is the minimum.
constexpr DragByCopies kRingDragByCopies{.most = 2.640, .share = 0.169};
constexpr DragByCopies kSymmetricDragByCopies{.most = 2.831, .share = 0.139};
constexpr DragByCopies kCopyEngineDragByCopies{.most = 1.270, .share = 0.2026};

// Slowdown of other classes of kernels relative to the slowdown of GEMMs, on 2 H100. GEMMs and
// attention: the share that they lose beside a collective, 1 - solo_ms / beside_ms, times
// collective_ms / alone_ms, mean of each transport's rows in h100_block_beside_collectives.csv. The
// second factor refers the loss to the collective's time alone, because a collective that waits for
// SMs costs the kernels nothing. Copies are short and hold no SMs for which it waits: the share
// that they lose, without that factor, over occupancy and draw at the reduced pace of the
// collective. They lose as much in a step: norms 0.19 beside one gather by rings, SwiGLU's gradient
// 0.33 beside a gather and a reduction.
//                   GEMMs      forward   backward   copies
//   nccl              0.3734    0.2335     0.2877   0.1702 / 0.2831
//   symmetric         0.3185    0.1964     0.2015   0.0772 / 0.1600
//   copy engines      0.2273    0.1793     0.2695   0.3182 / 0.1701
constexpr PerKernelClass<double> kRingWeight{{1, 0.625, 0.770, 0.601}};
constexpr PerKernelClass<double> kSymmetricWeight{{1, 0.617, 0.633, 0.483}};
constexpr PerKernelClass<double> kCopyEngineWeight{{1, 0.789, 1.186, 1.870}};

// Blocks that NCCL chooses for its symmetric kernels on an H200.
constexpr double kSymmetricBlocks = 9;

// Times alone relative to NCCL's rings, of collectives of 436 MB (fp32: 872 MB), on two GPUs
// (h100_block_beside_collectives.csv), four (h200_collectives_beside_kernels.csv, mean of runs 1
// and 2) and eight (h200_overlap.csv).
constexpr RingRatio kCopyEngineGather{
    .two = 0.7269 / 0.8631, .four = 3.7275 / 4.5595, .eight = 4.33 / 4.83};
constexpr RingRatio kSymmetricGather{
    .two = 0.9520 / 0.8631, .four = 5.2040 / 4.5595, .eight = 5.34 / 4.83};
constexpr RingRatio kSymmetricScatter{
    .two = 1.1911 / 0.9179, .four = 6.3560 / 4.4175, .eight = 7.22 / 4.67};
constexpr RingRatio kSymmetricScatterFp32{
    .two = 2.1287 / 1.6769, .four = 9.4740 / 8.3295, .eight = 10.36 / 8.93};

// Share of the link that several concurrent collectives inside a domain use: bytes sent by a GPU
// over the link's nominal bandwidth. Kernels of one kind use less than all of it, so some do not
// slow each other down. In steps on two H200, a gather by rings took 1.65 times its time alone
// beside a reduction by rings, and 1.24 to 1.45 times beside a symmetric sum. A symmetric gather
// beside such a sum was not slowed down (docs/lab/2026-11-28-cache-beside-gemms.md).
constexpr double kLinkOfRings = 310 / kTableLink;
constexpr double kLinkOfSymmetric = 420 / kTableLink;

/// In the order of Transport.
constexpr std::array kPrices{
    TransportPrices{.transport = Transport::nccl,
                    .blocks = std::nullopt,
                    .drag = kRingDrag,
                    .drag_by_copies = kRingDragByCopies,
                    .weight = kRingWeight,
                    .link = kLinkOfRings,
                    .gather = {},
                    .scatter = {},
                    .scatter_fp32 = {},
                    .exchange = {}},
    TransportPrices{.transport = Transport::symmetric,
                    .blocks = kSymmetricBlocks,
                    .drag = kSymmetricDrag,
                    .drag_by_copies = kSymmetricDragByCopies,
                    .weight = kSymmetricWeight,
                    .link = kLinkOfSymmetric,
                    .gather = kSymmetricGather,
                    .scatter = kSymmetricScatter,
                    .scatter_fp32 = kSymmetricScatterFp32,
                    .exchange = kSymmetricScatter},
    // On two H100 an all-to-all took as long as a gather: 0.7276 and 0.7269 ms for 436 MB.
    TransportPrices{.transport = Transport::copy_engine,
                    .blocks = 0,
                    .drag = kCopyEngineDrag,
                    .drag_by_copies = kCopyEngineDragByCopies,
                    .weight = kCopyEngineWeight,
                    .link = std::nullopt,
                    .gather = kCopyEngineGather,
                    .scatter = {},
                    .scatter_fp32 = {},
                    .exchange = kCopyEngineGather}};

static_assert([] {
  for (std::size_t i = 0; i < kPrices.size(); ++i)
    if (static_cast<std::size_t>(kPrices[i].transport) != i) return false;
  return kPrices.size() == Names<Transport>::values.size();
}());

/// Linear between the measured numbers of ranks, constant beyond.
double of_ranks(const RingRatio& ratio, double ranks) {
  if (ranks <= 4) return std::lerp(ratio.two, ratio.four, std::max(0.0, (ranks - 2) / 2));
  return std::lerp(ratio.four, ratio.eight, std::min(1.0, (ranks - 4) / 4));
}

}  // namespace

double value_at(std::span<const BlocksPoint> points, double blocks) {
  if (blocks <= points.front().blocks) return points.front().value;
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (blocks > points[i].blocks) continue;
    const BlocksPoint& low = points[i - 1];
    const double part = (blocks - low.blocks) / (points[i].blocks - low.blocks);
    return low.value + part * (points[i].value - low.value);
  }
  return points.back().value;
}

const TransportPrices& prices_of(Transport transport) {
  return kPrices.at(static_cast<std::size_t>(transport));
}

double ratio_to_rings(Transport transport, CollectiveKind kind, DType dtype, double ranks) {
  const TransportPrices& prices = prices_of(transport);
  switch (kind) {
    case CollectiveKind::all_gather: return of_ranks(prices.gather, ranks);
    case CollectiveKind::all_to_all: return of_ranks(prices.exchange, ranks);
    case CollectiveKind::reduce_scatter:
      return of_ranks(dtype == DType::fp32 ? prices.scatter_fp32 : prices.scatter, ranks);
    case CollectiveKind::all_reduce:
    case CollectiveKind::shift:
    case CollectiveKind::send:
    case CollectiveKind::recv: break;
  }
  return 1;
}

}  // namespace mfsdp
