// Kernels with equal prices. The layers, microbatches and stages of a job launch the same few
// kernels on other buffers, so a price is found once for each of them.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Numbers of the kernels of some plans, which must outlive the object.
class EqualKernels {
 public:
  /// `by_unit`: kernels of different units are different, as rows of routed experts are.
  EqualKernels(std::span<const Plan* const> plans, bool by_unit);

  /// Kernels of one number have equal prices. `op` must be a kernel of the plans.
  [[nodiscard]] std::uint32_t of(const Op& op) const { return numbers_.at(&op); }
  /// Numbers are below this.
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::unordered_map<const Op*, std::uint32_t> numbers_;
  std::size_t count_ = 0;
};

}  // namespace mfsdp
