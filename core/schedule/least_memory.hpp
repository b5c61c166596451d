// A lower bound of the memory of a configuration's plan, without building the plan.
//
// A search tries thousands of configurations of which few fit. The bound rejects those that cannot
// fit, however their pools are packed. It is the sum over pools of bytes that the schedule
// certainly has live at once, from the same tables that emit the ops.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

struct LeastMemory {
  Bytes pools;  ///< of the device; at most the sum of the built program's lower bounds
  std::int64_t communicators = 0;  ///< of the program
};

/// Caches its parts: persistent state, gathered weights and gradients do not depend on micro-batch
/// and recomputation, activations do not depend on sharding. Thread-safe.
class LeastMemoryTable {
 public:
  /// The configuration must be valid. Sizes beyond 63 bits throw OverflowError.
  [[nodiscard]] LeastMemory of(const PlanConfig& config);

 private:
  using Part = std::pair<PlanConfig, LeastMemory>;

  LeastMemory remembered(std::vector<Part>& parts, const PlanConfig& key,
                         LeastMemory (*work_out)(const PlanConfig&));

  std::mutex mutex_;
  std::vector<Part> sharded_;
  std::vector<Part> activations_;
};

}  // namespace mfsdp
