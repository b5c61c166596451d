// Rows in the registers of a block: the number of packs of each thread.
#pragma once

#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

/// Packs per thread and threads per block for rows of `cols`; no threads if a row does not fit.
struct RowBlock {
  int vectors = 0;
  int threads = 0;
};

template <class T>
[[nodiscard]] RowBlock row_block(std::int64_t cols, int preferred_threads, int most_threads,
                                 bool aligned) {
  constexpr int N = kPack<T>;
  if (!aligned || cols % N != 0 || cols == 0) return {};
  for (const int vectors : {1, 2, 4}) {
    const std::int64_t threads = ceil_div(ceil_div(cols / N, vectors), kWarp) * kWarp;
    if (threads <= (vectors == 4 ? most_threads : preferred_threads))
      return {.vectors = vectors, .threads = static_cast<int>(threads)};
  }
  return {};
}

/// Calls `run` with the number of packs as a constant.
template <class Run>
void with_vectors(int vectors, const Run& run) {
  if (vectors == 1) run(std::integral_constant<int, 1>{});
  if (vectors == 2) run(std::integral_constant<int, 2>{});
  if (vectors == 4) run(std::integral_constant<int, 4>{});
}

}  // namespace mfsdp::cuda
