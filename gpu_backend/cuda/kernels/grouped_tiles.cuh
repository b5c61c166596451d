// Tiles of grouped products: which one a block takes next. Blocks stay and go from tile to tile;
// how many tiles there are only the device knows.
#pragma once

#include <cstdint>

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/grouped.hpp"

namespace mfsdp::cuda {

/// The sizes of an expert's product as those of c and of what is summed over.
template <GroupedKind kind>
struct GroupedShape {
  static constexpr bool kWeights = kind == GroupedKind::weight_gradient;
  /// Whether an operand's contiguous direction is that of c, not the one that is summed over.
  static constexpr bool kAcrossA = kWeights;
  static constexpr bool kAcrossB = kind != GroupedKind::forward;

  __device__ static int cols(const kernels::GroupedSizes& s) {
    return static_cast<int>(kind == GroupedKind::forward ? s.n : s.k);
  }
  /// Of the rows of an expert.
  __device__ static int rows(const kernels::GroupedSizes& s, int expert_rows) {
    return kWeights ? static_cast<int>(s.n) : expert_rows;
  }
  __device__ static int inner(const kernels::GroupedSizes& s, int expert_rows) {
    if constexpr (kWeights) return expert_rows;
    return static_cast<int>(kind == GroupedKind::forward ? s.k : s.n);
  }
};

/// A tile of c, and the rows of its expert.
struct GroupedTile {
  int expert = 0;
  int begin = 0;        ///< first row of the expert
  int expert_rows = 0;  ///< so many
  int row = 0;          ///< where the tile begins in the expert's c
  int col = 0;
};

/// In shared memory. Tiles of neighbours in an expert stand in panels of kPanel tiles high, which
/// are gone through column by column: what blocks load at the same time is then mostly the same.
template <GroupedKind kind, int TileRows, int TileCols>
struct GroupedTiles {
  static constexpr int kPanel = 16;

  std::int32_t row_ends[kMostExperts];
  std::int32_t tile_ends[kMostExperts];  ///< of rows of tiles

  /// By the first warp of a block; a barrier follows.
  __device__ void fill(const kernels::GroupedSizes& sizes, const std::int32_t* ends) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const auto experts = static_cast<int>(sizes.experts);
    int tiles_before = 0;
    for (int first = 0; first < experts; first += kWarp) {
      const int e = first + lane;
      const int end = e < experts ? ends[e] : 0;
      const int begin = e > 0 && e < experts ? ends[e - 1] : 0;
      int tiles = 0;
      if (e < experts)
        tiles = (GroupedShape<kind>::rows(sizes, end - begin) + TileRows - 1) / TileRows;
#pragma unroll
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const int other = __shfl_up_sync(~0U, tiles, offset);
        if (lane >= offset) tiles += other;
      }
      tiles += tiles_before;
      if (e < experts) {
        row_ends[e] = end;
        tile_ends[e] = tiles;
      }
      tiles_before = __shfl_sync(~0U, tiles, kWarp - 1);
    }
  }

  __device__ static int across(const kernels::GroupedSizes& sizes) {
    return (GroupedShape<kind>::cols(sizes) + TileCols - 1) / TileCols;
  }
  __device__ int count(const kernels::GroupedSizes& sizes) const {
    return tile_ends[sizes.experts - 1] * across(sizes);
  }

  /// tile < count().
  __device__ GroupedTile at(const kernels::GroupedSizes& sizes, int tile) const {
    const int wide = across(sizes);
    int low = 0;
    int high = static_cast<int>(sizes.experts) - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (tile < tile_ends[middle] * wide)
        high = middle;
      else
        low = middle + 1;
    }
    const int before = low == 0 ? 0 : tile_ends[low - 1];
    const int high_tiles = tile_ends[low] - before;
    const int local = tile - before * wide;
    const int panel = local / (kPanel * wide);
    const int in_panel = local - panel * kPanel * wide;
    const int panel_rows = min(kPanel, high_tiles - panel * kPanel);
    const int begin = low == 0 ? 0 : row_ends[low - 1];
    return {.expert = low,
            .begin = begin,
            .expert_rows = row_ends[low] - begin,
            .row = (panel * kPanel + in_panel % panel_rows) * TileRows,
            .col = in_panel / panel_rows * TileCols};
  }
};

/// A part of a matrix in memory, row by row.
template <class T>
struct MatrixPart {
  const T* data = nullptr;
  std::int64_t pitch = 0;
  int rows = 0;
  int cols = 0;
};

/// An expert's operands, as they lie.
template <GroupedKind kind, class T, class G>
__device__ MatrixPart<T> a_of(const GroupedCall<T, G>& call, const GroupedTile& tile) {
  const std::int64_t pitch = kind == GroupedKind::forward ? call.sizes.k : call.sizes.n;
  return {call.a + tile.begin * pitch, pitch, tile.expert_rows, static_cast<int>(pitch)};
}
template <GroupedKind kind, class T, class G>
__device__ MatrixPart<T> b_of(const GroupedCall<T, G>& call, const GroupedTile& tile) {
  const std::int64_t pitch = call.sizes.k;
  if constexpr (GroupedShape<kind>::kWeights)
    return {call.b + tile.begin * pitch, pitch, tile.expert_rows, static_cast<int>(pitch)};
  else
    return {call.b + tile.expert * call.sizes.n * pitch, pitch, static_cast<int>(call.sizes.n),
            static_cast<int>(pitch)};
}
/// Its c.
template <GroupedKind kind, class T, class G>
__device__ G* c_of(const GroupedCall<T, G>& call, const GroupedTile& tile) {
  const std::int64_t pitch = GroupedShape<kind>::cols(call.sizes);
  return call.c + (GroupedShape<kind>::kWeights ? tile.expert * call.sizes.n : tile.begin) * pitch;
}

/// So many blocks as stay on the device at once.
template <class Kernel>
[[nodiscard]] Result<dim3> staying_grid(Kernel kernel, int threads, std::size_t shared) {
  int device = 0;
  int processors = 0;
  int blocks = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  MFSDP_TRY(check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                  "cudaDeviceGetAttribute"));
  MFSDP_TRY(check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared)),
                  "cudaFuncSetAttribute"));
  MFSDP_TRY(check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared),
                  "cudaOccupancyMaxActiveBlocksPerMultiprocessor"));
  if (blocks == 0)
    return fail("a kernel whose blocks stay",
                "expected a GPU with room for one block of it on a multiprocessor");
  return grid_of(std::int64_t{processors} * blocks);
}

}  // namespace mfsdp::cuda
