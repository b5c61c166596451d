// From a plan's kernel op to what launches it: operands read, types told apart, algorithms chosen
// and graphs compiled once, before the first step.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/calls/update.hpp"
#include "core/runtime/operand_view.hpp"
#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// Element types that the kernels of this folder are made for.
using CudaTypes = ElementTypes<Bf16, float>;

/// The launch that `make(TypeTag<T>)` makes for the type of an operand.
template <class Make>
[[nodiscard]] Result<Launch> bind_by_type(const KernelCall& call, std::string_view role,
                                          const Make& make) {
  Launch launch;
  MFSDP_TRY(with_type_of(CudaTypes{}, call, role, [&](auto type) -> Result<void> {
    MFSDP_LET(made, make(type));
    launch = std::move(made);
    return {};
  }));
  return launch;
}

class KernelBinder {
 public:
  /// No CUDA call before bind().
  KernelBinder(const KernelSettings& settings, const GemmSettings& gemm)
      : settings_(settings), gemm_settings_(gemm) {}
  KernelBinder(const KernelBinder&) = delete;
  KernelBinder& operator=(const KernelBinder&) = delete;
  KernelBinder(KernelBinder&&) = delete;
  KernelBinder& operator=(KernelBinder&&) = delete;
  ~KernelBinder() = default;

  /// For the current device. Choosing a GEMM's algorithm may overwrite its operands. The launch
  /// uses the memory of this object. Errors name the kernel, the operand and what was expected; or
  /// the workspace that is needed and the one that the plan has.
  [[nodiscard]] Result<Launch> bind(const KernelCall& call, cudaStream_t stream);

  /// GEMM algorithms chosen elsewhere or before, and those in use here.
  [[nodiscard]] Result<void> offer(std::span<const GemmAlgorithm> algorithms);
  [[nodiscard]] std::vector<GemmAlgorithm> chosen() const;

  /// What kernels under --exact-sums have found, of launches that have run.
  [[nodiscard]] Result<void> exact_outcome() const;

 private:
  // One for each kind or kinds that share a form; see run_kernel() of verify/cpu/kernels.
  [[nodiscard]] Result<Launch> bind_gemm(const KernelCall& call, ExactOutlier* outlier,
                                         cudaStream_t stream);
  [[nodiscard]] Result<Launch> bind_attention_forward(const KernelCall& call, cudaStream_t stream);
  [[nodiscard]] Result<Launch> bind_attention_backward(const KernelCall& call, cudaStream_t stream);
  [[nodiscard]] Result<Launch> bind_cross_entropy(const KernelCall& call, cudaStream_t stream);
  [[nodiscard]] Result<Launch> bind_update(const KernelCall& call, cudaStream_t stream);

  [[nodiscard]] Result<GemmPlanner*> gemm();
  [[nodiscard]] Result<AttentionPlanner*> attention();
  [[nodiscard]] Result<std::span<const kernels::DecayRun>> on_device(
      std::span<const kernels::DecayRun> runs);

  /// Null for a kernel without the attributes of --exact-sums.
  [[nodiscard]] Result<ExactOutlier*> outlier(const Kernel& kernel);

  KernelSettings settings_;
  GemmSettings gemm_settings_;
  std::optional<GemmPlanner> gemm_;
  std::optional<AttentionPlanner> attention_;
  std::vector<DeviceMemory> decay_runs_;
  DeviceMemory outlier_;  ///< an ExactOutlier
};

// Kinds that need nothing but their operands and what is the same for all kernels of a run.
// `outlier`: null without --exact-sums.
[[nodiscard]] Result<Launch> bind_rms_norm_forward(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_rms_norm_backward(const KernelCall& call, ExactOutlier* outlier,
                                                    cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_norm_weight_grad(const KernelCall& call, ExactOutlier* outlier,
                                                   cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_bias_grad(const KernelCall& call, ExactOutlier* outlier,
                                            cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_rope(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_qk_norm_rope_forward(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_qk_norm_rope_backward(const KernelCall& call,
                                                        ExactOutlier* outlier, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_swiglu_forward(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_swiglu_backward(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_token_copy(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_embedding_forward(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_embedding_backward(const KernelCall& call, ExactOutlier* outlier,
                                                     cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_accumulate(const KernelCall& call, ExactOutlier* outlier,
                                             cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_zero_padding(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_loss_finish(const KernelCall& call, cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_norm_partial(const KernelCall& call, ExactOutlier* outlier,
                                               cudaStream_t stream);
[[nodiscard]] Result<Launch> bind_norm_finish(const KernelCall& call, ExactOutlier* outlier,
                                              cudaStream_t stream);

}  // namespace mfsdp::cuda
