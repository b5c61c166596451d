// Memory that no plan of a configuration goes below, without building one.
//
// Searches look at thousands of configurations of which few fit: this says which cannot, however
// their pools are packed. It is the sum of what the schedule surely has live at one time in each
// pool, from the same tables that emit the ops.
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
  std::int64_t communicators = 0;  ///< as many as the program has
};

/// Remembers its parts: persistent state, gathered weights and gradients do not depend on the
/// micro-batch and on what is recomputed, activations do not depend on how the model is sharded.
/// May be used from several threads.
class LeastMemoryTable {
 public:
  /// Of a valid configuration. Sizes beyond 63 bits throw OverflowError.
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
