// A lower bound of the memory of a configuration's plan, without building the plan.
//
// A search tries thousands of configurations of which few fit. The bound rejects those that cannot
// fit, however their pools are packed. It is the sum over pools of bytes that the schedule
// certainly has live at once, from the same tables that emit the ops. The bound of a pipeline is
// that of the stage that needs most: its state, the weights and gradients of a unit, and what it
// keeps of the microbatches in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

struct LeastMemory {
  Bytes pools;  ///< of the device; at most the sum of the built program's lower bounds
  std::int64_t communicators = 0;  ///< of the program; of a stage: without those to other stages
};

/// A hash of the fields in which configurations of one search differ.
[[nodiscard]] std::size_t rough_hash(const PlanConfig& config);

/// Caches its parts: persistent state, gathered weights and gradients do not depend on micro-batch
/// and recomputation, activations do not depend on sharding. Thread-safe.
class LeastMemoryTable {
 public:
  /// The configuration must be valid. Sizes beyond 63 bits throw OverflowError.
  [[nodiscard]] LeastMemory of(const PlanConfig& config);

 private:
  /// The parts of each stage in question, by the hash of the configuration. References stay valid.
  using Parts =
      std::unordered_multimap<std::size_t, std::pair<PlanConfig, std::vector<LeastMemory>>>;

  const std::vector<LeastMemory>& remembered(
      Parts& parts, const PlanConfig& key, std::vector<LeastMemory> (*work_out)(const PlanConfig&));

  std::mutex mutex_;
  Parts sharded_;
  Parts activations_;
};

}  // namespace mfsdp
