#include "sim/predict/peak_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/cost/peak.hpp"

namespace mfsdp {
namespace {

/// "gemm of m 8192, n 6144, k 4096": the key of a table row.
std::string shape_text(const Kernel& kernel) {
  std::string text(to_string(kernel.kind));
  const char* separator = " of ";
  for (const char* name : {"m", "n", "k", "batch", "seq", "heads", "head_dim"}) {
    const std::int64_t value = kernel.attribute(name);
    if (value == 0) continue;
    text += fmt::format("{}{} {}", separator, name, value);
    separator = ", ";
  }
  return text;
}

}  // namespace

void PeakCheck::note(const Kernel& kernel, Nanos price) {
  if (kernel.flops <= 0) return;
  // 10^12 per second are 1,000 per nanosecond.
  const double tflops =
      static_cast<double>(kernel.flops) / static_cast<double>(price.value + 1) / 1e3;
  const double peak = peak_of(kernel, gpu_);
  of_step_ = std::max(of_step_, peak);
  if (tflops <= peak || tflops <= fastest_) return;
  fastest_ = tflops;
  peak_ = peak;
  name_ = shape_text(kernel);
}

Result<void> PeakCheck::judge(const TimeSummary& time) const {
  const double tflops = fastest_ > 0 ? fastest_ : time.tflops_per_gpu;
  const double peak = fastest_ > 0 ? peak_ : of_step_;
  if (tflops <= peak) return {};
  return fail(gpu_.name,
              fmt::format("{} would run at {:.0f} TFLOP/s, above the GPU's peak of {:.0f} "
                          "(compute.bf16_tflops): its tables, or the anchor, are not of this GPU",
                          fastest_ > 0 ? name_ : std::string("a step"), tflops, peak));
}

}  // namespace mfsdp
