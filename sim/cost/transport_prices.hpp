// The measured prices of each transport of collectives inside a node, one row each.
#pragma once

#include <optional>
#include <span>

#include "core/base/vocabulary.hpp"
#include "core/plan/op.hpp"
#include "sim/cost/kernel_class.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// NVLink bandwidth of the H200 on which the tables were measured.
inline constexpr BytesPerNano kTableLink = 450;

/// A value that depends on the number of SMs that a collective holds.
struct BlocksPoint {
  double blocks = 0;
  double value = 0;
};

/// Linear between the points, constant beyond them.
[[nodiscard]] double value_at(std::span<const BlocksPoint> points, double blocks);

/// Times alone relative to NCCL's rings, by the number of ranks.
struct RingRatio {
  double two = 1;
  double four = 1;
  double eight = 1;
};

/// Slowdown of a collective beside memory-bound kernels, and the share of a copy's bandwidth that
/// it used alone in that measurement.
struct DragByCopies {
  double most = 1;
  double share = 1;
};

struct TransportPrices {
  Transport transport = Transport::nccl;
  std::optional<double> blocks;       ///< SMs that it holds; none: those of the GPU's rings
  std::span<const BlocksPoint> drag;  ///< times beside GEMMs over times alone
  DragByCopies drag_by_copies;
  /// The slowdown of each class of kernels over the slowdown of GEMMs.
  PerKernelClass<double> weight;
  /// Share of the link's nominal bandwidth that several concurrent collectives use; none: not
  /// measured.
  std::optional<double> link;
  RingRatio gather;
  RingRatio scatter;
  RingRatio scatter_fp32;
  RingRatio exchange;  ///< all-to-all
};

[[nodiscard]] const TransportPrices& prices_of(Transport transport);

/// The part of a collective's time that grows with bytes, relative to rings. All-reduces were not
/// measured.
[[nodiscard]] double ratio_to_rings(Transport transport, CollectiveKind kind, DType dtype,
                                    double ranks);

}  // namespace mfsdp
