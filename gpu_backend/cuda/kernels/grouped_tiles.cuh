// Tiles of grouped GEMMs: the next tile of a block. Blocks are persistent and process tile after
// tile, because only the device knows the number of tiles.
#pragma once

#include <cstdint>

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/grouped.hpp"

namespace mfsdp::cuda {

/// The sizes of an expert's GEMM in terms of c and of the inner dimension.
template <GroupedKind kind>
struct GroupedShape {
  static constexpr bool kWeights = kind == GroupedKind::weight_gradient;
  /// Whether an operand is contiguous along c instead of along the inner dimension.
  static constexpr bool kAcrossA = kWeights;
  static constexpr bool kAcrossB = kind != GroupedKind::forward;

  __device__ static int cols(const kernels::GroupedSizes& s) {
    return static_cast<int>(kind == GroupedKind::forward ? s.n : s.k);
  }
  /// Rows of c for an expert with `expert_rows` rows.
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
  int expert_rows = 0;  ///< number of rows of the expert
  int row = 0;          ///< first row of the tile in the expert's c
  int col = 0;
};

/// In shared memory. Tiles of an expert are grouped in panels that are kPanel tiles high and
/// processed column by column: then most of the data that blocks load concurrently is the same.
template <GroupedKind kind, int TileRows, int TileCols>
struct GroupedTiles {
  static constexpr int kPanel = 16;

  std::int32_t row_ends[kMostExperts];
  std::int32_t tile_ends[kMostExperts];  ///< prefix sums of the experts' rows of tiles

  /// Called by the first warp of a block; a barrier must follow.
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

/// A part of a matrix in row-major memory.
template <class T>
struct MatrixPart {
  const T* data = nullptr;
  std::int64_t pitch = 0;
  int rows = 0;
  int cols = 0;
};

/// An expert's operands in memory.
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
/// The expert's c.
template <GroupedKind kind, class T, class G>
__device__ G* c_of(const GroupedCall<T, G>& call, const GroupedTile& tile) {
  const std::int64_t pitch = GroupedShape<kind>::cols(call.sizes);
  return call.c + (GroupedShape<kind>::kWeights ? tile.expert * call.sizes.n : tile.begin) * pitch;
}

/// As many blocks as are resident on the device at once.
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
