// A sum over a whole grid in a fixed order: the last block adds up the parts of all blocks.
#pragma once

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grid_scratch.hpp"

namespace mfsdp::cuda {

/// Two sums over at most kSumBlocks blocks.
struct TwoSums {
  double first = 0;
  double second = 0;
};

/// `value`: the block's part, in its thread 0. Returns true in the threads of the last block, with
/// the sums over all blocks in `value` of thread 0.
__device__ inline bool grid_sum(TwoSums& value, GridScratch* scratch) {
  __shared__ bool is_last;
  __shared__ double shared[2][kWarp];
  if (threadIdx.x == 0) {
    scratch->parts[blockIdx.x][0] = value.first;
    scratch->parts[blockIdx.x][1] = value.second;
    __threadfence();  // makes the part visible before the arrival
    is_last = atomicAdd(&scratch->arrived, 1U) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  value = {};
  for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
    value.first += __ldcg(&scratch->parts[block][0]);
    value.second += __ldcg(&scratch->parts[block][1]);
  }
  value.first = block_sum(value.first, shared[0]);
  value.second = block_sum(value.second, shared[1]);
  return true;
}

}  // namespace mfsdp::cuda
