// Attention of a plan on CUDA: in bf16 and fp16 through cuDNN, or by warpgroups if they are chosen
// and support the call; in fp32 by plain kernels. A layout is compiled once; a run only launches.
// Attention of a part of each sequence never goes through cuDNN: warpgroups compute it where they
// support the call, else plain kernels, which are slow.
#pragma once

#include <cuda_runtime.h>
#include <cudnn.h>

#include <map>
#include <memory>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"
#include "gpu_backend/cuda/attention_graphs.hpp"
#include "gpu_backend/cuda/cuda_settings.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// T of all calls: Bf16, Fp16 or float.
class AttentionPlanner {
 public:
  /// For the current device.
  [[nodiscard]] static Result<AttentionPlanner> create(
      AttentionKernels which = AttentionKernels::library);

  /// Returns the launch of the call, and prepares the call if necessary. The launch uses this
  /// object.
  template <class T>
  [[nodiscard]] Result<Launch> bind(const kernels::AttentionForward<T>& k, cudaStream_t stream);
  template <class T>
  [[nodiscard]] Result<Launch> bind(const kernels::AttentionBackward<T>& k, cudaStream_t stream);

  /// Compiles the kernels of a call's layout, in about half a second; no effect if the layout is
  /// prepared. The error names the layout, and the workspace if it is too small.
  template <class T>
  [[nodiscard]] Result<void> prepare(const kernels::AttentionForward<T>& k);
  template <class T>
  [[nodiscard]] Result<void> prepare(const kernels::AttentionBackward<T>& k);

  /// Queues a call whose layout is prepared.
  template <class T>
  [[nodiscard]] Result<void> run(const kernels::AttentionForward<T>& k, cudaStream_t stream);
  template <class T>
  [[nodiscard]] Result<void> run(const kernels::AttentionBackward<T>& k, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cudnnContext* handle) const { cudnnDestroy(handle); }
  };
  AttentionPlanner(cudnnHandle_t handle, AttentionKernels which) : handle_(handle), which_(which) {}
  template <class Call>
  [[nodiscard]] Result<Launch> bind_of(const Call& k, cudaStream_t stream);
  template <class Plan, class Layout, class Call>
  [[nodiscard]] Result<void> prepare_in(std::map<Layout, Plan>& plans, const Call& k);
  template <class Plan, class Layout, class Call>
  [[nodiscard]] Result<void> run_of(const std::map<Layout, Plan>& plans, const Call& k,
                                    cudaStream_t stream);

  std::unique_ptr<cudnnContext, Destroy> handle_;
  AttentionKernels which_;
  std::map<AttentionLayout, AttentionForwardPlan> forward_;
  std::map<AttentionBackwardLayout, AttentionBackwardPlan> backward_;
};

}  // namespace mfsdp::cuda
