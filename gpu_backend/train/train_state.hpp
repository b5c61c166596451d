// The source of a run's state, and its keeper between steps.
#pragma once

#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/parameter_places.hpp"
#include "gpu_backend/train/train_position.hpp"

namespace mfsdp {

/// An idle rank: all issued ops have run.
struct RestingRank {
  const Program& program;
  Backend& backend;
  std::int64_t rank = 0;
  const std::vector<ParameterPlaces>& parameters;
};

/// Provides initial weights and optimizer states. Several ranks call it concurrently.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// All state is zero before the call.
  [[nodiscard]] virtual Result<void> fill(const RestingRank& rank) const = 0;
};

/// Keeps the state between steps. One object serves the ranks of a process.
class StateKeeper {
 public:
  virtual ~StateKeeper() = default;
  /// Whether the state is to be saved after `steps_done` steps, before the end of the run.
  [[nodiscard]] virtual bool is_due(std::int64_t steps_done) const = 0;
  /// A collective of all ranks: `gather` and `alive` as in HostGather. Returns the bytes that all
  /// ranks wrote.
  [[nodiscard]] virtual Result<Bytes> keep(const RestingRank& rank, const TrainPosition& position,
                                           HostGather& gather, const HostGather::Alive& alive) = 0;
};

}  // namespace mfsdp
