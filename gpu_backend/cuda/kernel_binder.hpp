// Converts a plan's kernel op to its launch: operands are read, types distinguished, algorithms
// chosen and graphs compiled once, before the first step.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/update.hpp"
#include "core/runtime/operand_view.hpp"
#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

class KernelBinder {
 public:
  /// No CUDA call before bind().
  KernelBinder(const KernelSettings& settings, const GemmSettings& gemm,
               AttentionKernels attention = AttentionKernels::library)
      : settings_(settings), gemm_settings_(gemm), attention_kernels_(attention) {}
  KernelBinder(const KernelBinder&) = delete;
  KernelBinder& operator=(const KernelBinder&) = delete;
  KernelBinder(KernelBinder&&) = delete;
  KernelBinder& operator=(KernelBinder&&) = delete;
  ~KernelBinder() = default;

  /// For the current device. Choosing a GEMM's algorithm may overwrite its operands. The launch
  /// uses memory of this object. Errors name the kernel, the operand and the expectation, or the
  /// required and the planned workspace.
  [[nodiscard]] Result<Launch> bind(const KernelCall& call, cudaStream_t stream);

  /// GEMM algorithms from another rank or an earlier run, and those in use here.
  [[nodiscard]] Result<void> offer(std::span<const GemmAlgorithm> algorithms);
  [[nodiscard]] std::vector<GemmAlgorithm> chosen() const;

  /// The result of kernels under --exact-sums whose launches have run.
  [[nodiscard]] Result<void> exact_outcome() const;

  // Interface for bind_kind. Planners are created on first use.
  [[nodiscard]] const KernelSettings& settings() const { return settings_; }
  [[nodiscard]] Result<GemmPlanner*> gemm();
  [[nodiscard]] Result<AttentionPlanner*> attention();
  /// A copy with the lifetime of this object.
  [[nodiscard]] Result<std::span<const kernels::DecayRun>> on_device(
      std::span<const kernels::DecayRun> runs);

 private:
  /// Null for a kernel without attributes of --exact-sums.
  [[nodiscard]] Result<ExactOutlier*> outlier(const Kernel& kernel);

  KernelSettings settings_;
  GemmSettings gemm_settings_;
  AttentionKernels attention_kernels_;
  std::optional<GemmPlanner> gemm_;
  std::optional<AttentionPlanner> attention_;
  std::vector<DeviceMemory> decay_runs_;
  DeviceMemory outlier_;  ///< an ExactOutlier
};

}  // namespace mfsdp::cuda
