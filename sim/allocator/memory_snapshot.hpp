// Contents of a PyTorch memory snapshot: torch.cuda.memory._snapshot().
#pragma once

#include <string>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/memory_events.hpp"

namespace mfsdp {

/// An event with the name of its tensor; the name is empty for segments.
struct NamedMemoryEvent {
  MemoryEvent event;
  std::string name{};
};

struct MemorySnapshot {
  std::vector<NamedMemoryEvent> events;
  std::vector<CachingAllocator::Segment> segments;  ///< as they are in the end
  std::string settings;                             ///< PYTORCH_CUDA_ALLOC_CONF
};

}  // namespace mfsdp
