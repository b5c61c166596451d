// Checks that no price is faster than the hardware.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/op.hpp"
#include "reports/record/result.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Compares prices with the GPU's dense peak, of bf16 or FP8. A faster price comes from a table or an anchor
/// of another GPU, or from a wrong one, so a prediction with it would be invalid.
class PeakCheck {
 public:
  explicit PeakCheck(const Gpu& gpu) : gpu_(gpu) {}

  /// Records one price. One nanosecond of rounding is tolerated.
  void note(const Kernel& kernel, Nanos price);

  /// An error that names the fastest kernel above the peak, or a step above it. Jitter may put a
  /// step above the peak although all prices are below.
  [[nodiscard]] Result<void> judge(const TimeSummary& time) const;

 private:
  const Gpu& gpu_;
  double fastest_ = 0;          ///< TFLOP/s, of those above the peak
  double peak_ = 0;             ///< of that kernel
  double of_step_ = gpu_.bf16;  ///< the highest peak of a kernel of the step
  std::string name_;
};

}  // namespace mfsdp
