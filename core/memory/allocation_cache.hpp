// Allocations that were worked out before. Activations of a sweep's plans repeat: they do not
// depend on the number of GPUs, the strategy or the dtypes of gradients.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "core/memory/allocation.hpp"

namespace mfsdp {

/// May be used from several threads.
class AllocationCache {
 public:
  /// As allocate(problem, policy); a problem equal to an earlier one is not worked out again.
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
