// The plan of a stored run. A store keeps what a plan was built from and its hash, not the plan.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/memory/allocation_cache.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Builds plans of runs again. Those of one hash are built once.
class KnownPlans {
 public:
  /// Null where the configuration does not give the run's plan hash: the plan was edited, built by
  /// another version, or is of another engine.
  [[nodiscard]] std::shared_ptr<const Program> of(const RunHead& run);

 private:
  AllocationCache cache_;
  std::map<std::string, std::shared_ptr<const Program>> programs_;  ///< by hash
};

}  // namespace mfsdp
