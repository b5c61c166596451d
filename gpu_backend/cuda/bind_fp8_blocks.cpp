// Kernels with scales of blocks of 128 values: casts, and GEMMs through cuBLASLt. Those of other blocks are
// Blackwell's, and not bound.
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/gemm_fp8.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {
namespace {

constexpr const char* kRecipes = "is run on GPUs with --fp8 current, delayed or blockwise";
constexpr std::size_t kWorkspaceGrain = 256;

/// Takes room for a weight's scales in cuBLASLt's layout from the end of a workspace.
Result<float*> take_scales(std::int64_t blocks, std::int64_t lines,
                           std::span<std::byte>& workspace) {
  const auto bytes = static_cast<std::size_t>(padded_scales(blocks) * lines) * sizeof(float);
  const std::size_t padded = (bytes + kWorkspaceGrain - 1) / kWorkspaceGrain * kWorkspaceGrain;
  if (workspace.size() / kWorkspaceGrain * kWorkspaceGrain < padded)
    return fail("kernel gemm_blocks", "expected a workspace of " + std::to_string(padded) +
                                          " bytes or more, got " +
                                          std::to_string(workspace.size()));
  workspace = workspace.first(workspace.size() / kWorkspaceGrain * kWorkspaceGrain - padded);
  return reinterpret_cast<float*>(workspace.data() + workspace.size());
}

}  // namespace

template <>
Result<Launch> bind_kind(const KernelBinding<K::cast_blocks>& to) {
  return to.bind([&]<class T>(const kernels::CastBlocks<T>& k) -> Result<Launch> {
    if constexpr (std::is_same_v<T, Bf16>) {
      if (k.block != kScaleBlock) return fail("kernel cast_blocks", kRecipes);
      return to.launch_of(
          k, [](const auto& call, cudaStream_t stream) { return cast_blocks(call, stream); });
    } else {
      return fail("kernel cast_blocks", "expected bf16");
    }
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::gemm_blocks>& to) {
  Launch launch;
  const auto bind = [&]<class C>(const kernels::BlockGemm<C>& k) -> Result<void> {
    if (k.block != kScaleBlock || k.a_scale.dtype != DType::fp32)
      return fail("kernel gemm_blocks", kRecipes);
    MFSDP_LET(planner, to.binder.gemm());
    const GemmShape shape = block_shape_of(k);
    GemmMemory memory = block_memory_of(k);
    const float* const scales = memory.b_scale;
    float* laid_out = nullptr;
    if (shape.b_scale_rows == kScaleBlock) {
      MFSDP_LET(room, take_scales(k.blocks, k.b_lines, memory.workspace));
      memory.b_scale = laid_out = room;
      // Timed runs of prepare() read them.
      MFSDP_TRY(lay_out_scales(k.blocks, k.b_lines, scales, laid_out, to.stream));
    }
    MFSDP_TRY(planner->prepare(shape, memory, to.stream));
    launch = [planner, shape, memory, scales, laid_out, blocks = k.blocks, lines = k.b_lines,
              stream = to.stream]() -> Result<void> {
      if (laid_out != nullptr) MFSDP_TRY(lay_out_scales(blocks, lines, scales, laid_out, stream));
      return planner->run(shape, memory, stream);
    };
    return {};
  };
  MFSDP_TRY(with_block_gemm<CudaCallTypes>(to.call, bind));
  return launch;
}

}  // namespace mfsdp::cuda
