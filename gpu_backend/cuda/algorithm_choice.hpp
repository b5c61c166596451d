// Who chooses the algorithms of matrix products: rank 0 does for all ranks, from its cache or by
// timing, so that all compute the same bits in the same time.
//
//   rank 0     load the cache   bind the ops, which times   tell the others, write the cache
//   others     hear rank 0      bind the ops as told
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"
#include "gpu_backend/cuda/gemm_cache.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/pool_memory.hpp"

namespace mfsdp::cuda {

class AlgorithmChoice {
 public:
  /// `alone`: there is one rank, which tells nobody. `notes` gains what a user may want to hear of
  /// the cache. All arguments outlive this.
  AlgorithmChoice(const CudaSettings& settings, bool alone, KernelBinder& kernels,
                  std::vector<std::string>& notes)
      : settings_(settings), alone_(alone), kernels_(kernels), notes_(notes) {}

  /// Before the ops of a plan are bound, for every plan. Before the first, rank 0 fills the pools
  /// with numbers if it will time. Waits for rank 0. Errors: what rank 0 says is not readable.
  [[nodiscard]] Result<void> before_binding(const PoolMemory& pools, cudaStream_t stream);

  /// When they are bound and the device is idle, for every plan.
  [[nodiscard]] Result<void> after_binding();

 private:
  [[nodiscard]] bool times() const { return settings_.gemm.timed_rounds != 0; }
  [[nodiscard]] Result<void> begin(const PoolMemory& pools, cudaStream_t stream);
  [[nodiscard]] Result<void> learn();
  void keep(const GemmMachine& machine, std::span<const GemmAlgorithm> chosen);

  const CudaSettings& settings_;
  bool alone_;
  KernelBinder& kernels_;
  std::vector<std::string>& notes_;
  bool begun_ = false;
  std::vector<GemmAlgorithm> cached_;  ///< what the cache's file holds
};

}  // namespace mfsdp::cuda
