// GPU memory of a PyTorch process outside its allocator: context, kernels, libraries, NCCL. Each
// part was measured on its own, with its run; the total was not fitted.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

/// Sizes, in ranks, of the communicators of a run's process groups; the default group's is first. A
/// mesh dimension that has all ranks uses the default group's. Every other dimension has its own,
/// also with one rank (torch.distributed.device_mesh of 2.11, with a device_id).
[[nodiscard]] std::vector<std::int64_t> communicator_sizes(EngineKind engine,
                                                           const PlanConfig& config);

struct CommunicatorMemory {
  std::int64_t ranks = 1;
  Bytes bytes;
};

struct ProcessMemory {
  Bytes context;  ///< with the kernels of PyTorch, cuBLAS and cuDNN that a step loads
  Bytes nccl;     ///< its kernels, loaded once
  std::vector<CommunicatorMemory> communicators;

  [[nodiscard]] Bytes total() const;
};

/// `channels`: of NCCL, in a collective of several ranks.
[[nodiscard]] ProcessMemory pytorch_process(EngineKind engine, const PlanConfig& config,
                                            std::int64_t channels);

}  // namespace mfsdp
