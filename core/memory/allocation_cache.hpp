// A cache of allocations. Activations repeat among the plans of a sweep: they do not depend on the
// number of GPUs, the strategy or the dtypes of gradients.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "core/memory/allocation.hpp"

namespace mfsdp {

/// Thread-safe.
class AllocationCache {
 public:
  /// As allocate(problem, policy); an equal problem is solved once.
  [[nodiscard]] Allocation allocate(const AllocationProblem& problem, AllocatorPolicy policy);

 private:
  struct Entry {
    AllocationProblem problem;
    AllocatorPolicy policy = AllocatorPolicy::best_fit;
    Allocation allocation;
  };

  std::mutex mutex_;
  std::unordered_multimap<std::size_t, Entry> entries_;  // by hash
};

}  // namespace mfsdp
