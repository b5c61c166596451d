// Nothing is faster than the hardware.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/op.hpp"
#include "reports/record/result.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Compares prices with the GPU's dense bf16 peak. A price above it comes from a table or an anchor
/// of another GPU, or from a wrong one: what rests on it is no prediction.
class PeakCheck {
 public:
  explicit PeakCheck(const Gpu& gpu) : gpu_(gpu) {}

  /// Takes note of one price. A nanosecond of rounding counts for nothing.
  void note(const Kernel& kernel, Nanos price);

  /// An error that names the fastest of the kernels that were above the peak, or a step above it:
  /// prices may keep to it while jitter does not.
  [[nodiscard]] Result<void> judge(const TimeSummary& time) const;

 private:
  const Gpu& gpu_;
  double fastest_ = 0;  ///< TFLOP/s, of those above the peak
  std::string name_;
};

}  // namespace mfsdp
