// Choice of GEMM algorithms: rank 0 chooses for all ranks, from its cache or by timing, so that all
// compute the same bits in the same time.
//
//   rank 0     load the cache   bind the ops and time   send the choice, write the cache
//   others     receive it       bind the ops with it
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
  /// `alone`: there is only one rank, so nothing is sent. `notes` receives notes for the user about
  /// the cache. All arguments outlive this object.
  AlgorithmChoice(const CudaSettings& settings, bool alone, KernelBinder& kernels,
                  std::vector<std::string>& notes)
      : settings_(settings), alone_(alone), kernels_(kernels), notes_(notes) {}

  /// Call for every plan, before its ops are bound. Before the first plan, rank 0 fills the pools
  /// with numbers if it will time. Other ranks wait for rank 0. Errors: rank 0's message is not
  /// readable.
  [[nodiscard]] Result<void> before_binding(const PoolMemory& pools, cudaStream_t stream);

  /// Call for every plan, after its ops are bound and while the device is idle.
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
  std::vector<GemmAlgorithm> cached_;  ///< contents of the cache's file
};

}  // namespace mfsdp::cuda
