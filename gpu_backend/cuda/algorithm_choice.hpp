// Choice of GEMM algorithms: rank 0 chooses for all ranks, from its cache or by timing, so that all
// compute the same bits in the same time. Classes of a job have different GEMMs: the first rank of
// each class chooses what no class before it has.
//
//   rank 0                load the cache   bind, time   send the choice             write the cache
//   others of its class   receive it       bind
//   first of a class      receive it                    bind, time   send the rest
//   others of the class   receive both                               bind
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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

  /// Call for every plan, before its ops are bound. Before the first plan, ranks that choose fill
  /// the pools with numbers if they will time. Others wait for the choice of their class, those
  /// that choose for the classes before. Errors: a message of another rank is not readable.
  [[nodiscard]] Result<void> before_binding(const PoolMemory& pools, cudaStream_t stream);

  /// Call for every plan, after its ops are bound and while the device is idle.
  [[nodiscard]] Result<void> after_binding();

 private:
  [[nodiscard]] bool times() const { return settings_.gemm.timed_rounds != 0; }
  [[nodiscard]] std::uint32_t class_of(std::size_t rank) const {
    return settings_.classes.empty() ? 0 : settings_.classes[rank];
  }
  /// The first rank of a class; none if there is no such class.
  [[nodiscard]] std::optional<std::int64_t> first_of(std::uint32_t of_class) const;
  [[nodiscard]] bool chooses() const;
  [[nodiscard]] Result<void> begin(const PoolMemory& pools, cudaStream_t stream);
  /// All ranks learn the choice of a class.
  [[nodiscard]] Result<void> share(std::uint32_t of_class);
  void add_known(std::span<const GemmAlgorithm> algorithms);
  void keep();

  const CudaSettings& settings_;
  bool alone_;
  KernelBinder& kernels_;
  std::vector<std::string>& notes_;
  bool begun_ = false;
  std::vector<GemmAlgorithm> cached_;  ///< contents of the cache's file
  std::vector<GemmAlgorithm> known_;   ///< cached, chosen here, or learned
};

}  // namespace mfsdp::cuda
