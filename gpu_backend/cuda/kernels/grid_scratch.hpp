// Device memory through which a whole grid computes a sum.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

/// Blocks that each write a part of a sum. The number depends only on the work, so that equal calls
/// add in the same order on every GPU.
inline constexpr int kSumBlocks = 1024;

/// Contents of the workspace of a kernel that computes one number. `arrived` must be 0 before it.
struct GridScratch {
  double parts[kSumBlocks][2];
  unsigned arrived;
};

/// The scratch in a kernel's workspace, which may have any contents before: it is initialized on
/// the stream. Errors: the workspace is too small, or does not begin on a multiple of 8.
[[nodiscard]] inline Result<GridScratch*> grid_scratch(std::span<std::byte> workspace,
                                                       const char* kernel, cudaStream_t stream) {
  if (workspace.size() < sizeof(GridScratch) ||
      reinterpret_cast<std::uintptr_t>(workspace.data()) % alignof(GridScratch) != 0)
    return fail(kernel, "expected a workspace of " + std::to_string(sizeof(GridScratch)) +
                            " bytes on a multiple of " + std::to_string(alignof(GridScratch)) +
                            ", got " + std::to_string(workspace.size()));
  auto* scratch = reinterpret_cast<GridScratch*>(workspace.data());
  MFSDP_TRY(check(cudaMemsetAsync(&scratch->arrived, 0, sizeof scratch->arrived, stream),
                  "cudaMemsetAsync", kernel));
  return scratch;
}

}  // namespace mfsdp::cuda
