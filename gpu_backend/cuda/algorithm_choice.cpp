#include "gpu_backend/cuda/algorithm_choice.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

Result<void> AlgorithmChoice::before_binding(const PoolMemory& pools, cudaStream_t stream) {
  if (!std::exchange(begun_, true)) MFSDP_TRY(begin(pools, stream));
  return learn();
}

Result<void> AlgorithmChoice::begin(const PoolMemory& pools, cudaStream_t stream) {
  if (settings_.rank != 0 || !times()) return {};
  MFSDP_TRY(pools.fill_with_numbers(stream));
  MFSDP_TRY(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  if (!settings_.gemm_cache) return {};
  MFSDP_LET(machine, this_machine());
  const GemmCache cache =
      load_gemm_cache(gemm_cache_path(*settings_.gemm_cache, machine, settings_.gemm), machine);
  if (!cache.note.empty()) notes_.push_back(cache.note);
  cached_ = cache.algorithms;
  return kernels_.offer(cache.algorithms);
}

Result<void> AlgorithmChoice::learn() {
  if (alone_ || settings_.rank == 0) return {};
  MFSDP_LET(bytes, settings_.peers.broadcast({}));
  std::string text(bytes.size(), '\0');
  std::memcpy(text.data(), bytes.data(), bytes.size());
  MFSDP_LET(machine, this_machine());
  MFSDP_LET(algorithms, read_gemm_algorithms(text, machine, "rank 0's GEMM algorithms"));
  return kernels_.offer(algorithms);
}

Result<void> AlgorithmChoice::after_binding() {
  if (settings_.rank != 0) return {};
  const std::vector<GemmAlgorithm> chosen = kernels_.chosen();
  MFSDP_LET(machine, this_machine());
  if (!alone_) {
    const std::string text = write_gemm_algorithms(machine, chosen);
    Peers::Bytes bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    MFSDP_TRY(settings_.peers.broadcast(bytes));
  }
  keep(machine, chosen);
  return {};
}

/// Keeps the file's algorithms of other shapes. A failed write only costs the next run its time for
/// the search.
void AlgorithmChoice::keep(const GemmMachine& machine, std::span<const GemmAlgorithm> chosen) {
  if (!settings_.gemm_cache || !times()) return;
  std::vector<GemmAlgorithm> all = cached_;
  for (const GemmAlgorithm& algorithm : chosen) {
    const auto same = std::ranges::find(all, algorithm.shape, &GemmAlgorithm::shape);
    if (same == all.end())
      all.push_back(algorithm);
    else
      *same = algorithm;
  }
  if (all == cached_) return;
  const auto path = gemm_cache_path(*settings_.gemm_cache, machine, settings_.gemm);
  if (const auto saved = save_gemm_cache(path, machine, all); !saved)
    notes_.push_back(saved.error().message());
  cached_ = std::move(all);
}

}  // namespace mfsdp::cuda
