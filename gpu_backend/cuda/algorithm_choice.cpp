#include "gpu_backend/cuda/algorithm_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

std::optional<std::int64_t> AlgorithmChoice::first_of(std::uint32_t of_class) const {
  if (settings_.classes.empty() && of_class == 0) return 0;
  const auto found = std::ranges::find(settings_.classes, of_class);
  if (found == settings_.classes.end()) return std::nullopt;
  return found - settings_.classes.begin();
}

bool AlgorithmChoice::chooses() const {
  return first_of(class_of(static_cast<std::size_t>(settings_.rank))) == settings_.rank;
}

Result<void> AlgorithmChoice::before_binding(const PoolMemory& pools, cudaStream_t stream) {
  if (!std::exchange(begun_, true)) MFSDP_TRY(begin(pools, stream));
  const std::uint32_t own = class_of(static_cast<std::size_t>(settings_.rank));
  const std::uint32_t needed = chooses() ? own : own + 1;
  for (std::uint32_t c = 0; c < needed; ++c) MFSDP_TRY(share(c));
  return known_.empty() ? Result<void>() : kernels_.offer(known_);
}

/// The cache is that of rank 0, which sends it on.
Result<void> AlgorithmChoice::begin(const PoolMemory& pools, cudaStream_t stream) {
  if (!chooses() || !times()) return {};
  MFSDP_TRY(pools.fill_with_numbers(stream));
  MFSDP_TRY(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  if (!settings_.gemm_cache || settings_.rank != 0) return {};
  MFSDP_LET(machine, this_machine());
  const GemmCache cache =
      load_gemm_cache(gemm_cache_path(*settings_.gemm_cache, machine, settings_.gemm), machine);
  if (!cache.note.empty()) notes_.push_back(cache.note);
  cached_ = cache.algorithms;
  known_ = cached_;
  return {};
}

Result<void> AlgorithmChoice::share(std::uint32_t of_class) {
  if (alone_) return {};
  MFSDP_LET(machine, this_machine());
  const std::int64_t first = *first_of(of_class);
  Peers::Bytes own;
  if (settings_.rank == first) {
    const bool alone_chooses = settings_.classes.empty();
    const std::string text =
        write_gemm_algorithms(machine, alone_chooses ? kernels_.chosen() : known_);
    own.resize(text.size());
    std::memcpy(own.data(), text.data(), text.size());
  }
  MFSDP_LET(all, settings_.peers.all_gather(own));
  if (settings_.rank == first) return {};
  const Peers::Bytes& bytes = all.at(static_cast<std::size_t>(first));
  std::string text(bytes.size(), '\0');
  std::memcpy(text.data(), bytes.data(), bytes.size());
  MFSDP_LET(algorithms,
            read_gemm_algorithms(text, machine, fmt::format("rank {}'s GEMM algorithms", first)));
  add_known(algorithms);
  return {};
}

Result<void> AlgorithmChoice::after_binding() {
  const std::uint32_t own = class_of(static_cast<std::size_t>(settings_.rank));
  if (chooses()) add_known(kernels_.chosen());
  for (std::uint32_t c = chooses() ? own : own + 1; first_of(c); ++c) MFSDP_TRY(share(c));
  if (settings_.rank == 0) keep();
  return {};
}

void AlgorithmChoice::add_known(std::span<const GemmAlgorithm> algorithms) {
  for (const GemmAlgorithm& algorithm : algorithms) {
    const auto same = std::ranges::find(known_, algorithm.shape, &GemmAlgorithm::shape);
    if (same == known_.end())
      known_.push_back(algorithm);
    else
      *same = algorithm;
  }
}

/// Keeps the file's algorithms of other shapes. A failed write only costs the next run its time for
/// the search.
void AlgorithmChoice::keep() {
  if (!settings_.gemm_cache || !times() || known_ == cached_) return;
  const auto saved = [&]() -> Result<void> {
    MFSDP_LET(machine, this_machine());
    return save_gemm_cache(gemm_cache_path(*settings_.gemm_cache, machine, settings_.gemm), machine,
                           known_);
  }();
  if (!saved) notes_.push_back(saved.error().message());
  cached_ = known_;
}

}  // namespace mfsdp::cuda
