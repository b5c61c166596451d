// What a process of PyTorch takes of a GPU beside what its allocator reserves: context, kernels,
// libraries, NCCL. Sums of what was measured part by part, each with its run, never of a whole.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

/// Sizes of the communicators that the process groups of a run have, in ranks: the default group's
/// first. A dimension of a mesh that is the whole world takes the default group's; every other one
/// has its own, those of one rank, too (torch.distributed.device_mesh of 2.11, with a device_id).
[[nodiscard]] std::vector<std::int64_t> communicator_sizes(EngineKind engine,
                                                           const PlanConfig& config);

struct CommunicatorMemory {
  std::int64_t ranks = 1;
  Bytes bytes;
};

struct ProcessMemory {
  Bytes context;  ///< with the kernels of PyTorch, cuBLAS and cuDNN that a step loads
  Bytes nccl;     ///< its kernels, once
  std::vector<CommunicatorMemory> communicators;

  [[nodiscard]] Bytes total() const;
};

/// `channels`: of NCCL, in a collective of several ranks.
[[nodiscard]] ProcessMemory pytorch_process(EngineKind engine, const PlanConfig& config,
                                            std::int64_t channels);

}  // namespace mfsdp
