// Settings of one rank of a run on CUDA, and its access to the processes of other ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/injected_fault.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// Exchange between the hosts of ranks before the first step. Every rank calls each function
/// equally often and in the same order. A run of one rank calls none.
struct Peers {
  using Bytes = std::vector<std::byte>;
  /// Every rank's bytes, in rank order.
  std::function<Result<std::vector<Bytes>>(const Bytes& own)> all_gather;
  /// An error if the run has failed on any rank. A thread of the backend calls it ten times a
  /// second; it must not block.
  std::function<Result<void>()> alive;
};

/// Kernels that only take time, launched before ops of the plan: results must not change.
struct Delays {
  std::optional<std::uint64_t> seed;  ///< seed of random ones, before a quarter of the ops
  std::optional<OpId> op;             ///< before this op, in every step
  bool each_in_turn = false;          ///< in step s, before op number s of its plan, from the first
  Nanos duration{500'000};            ///< duration of each; the maximum of random ones
};

/// The kernels that compute attention in bf16.
enum class AttentionKernels {
  library,    ///< cuDNN
  warpgroups  ///< our own kernels, if they support the call (warpgroup_attention.hpp)
};

struct CudaSettings {
  KernelSettings kernels;  ///< its program is the one of the run
  std::int64_t rank = 0;
  /// The class of each rank (class_of_ranks() of core/plan/job.hpp); empty if all are of one.
  std::vector<std::uint32_t> classes = {};
  std::int64_t local_rank = 0;  ///< index of its GPU among the visible ones
  Peers peers;
  GemmSettings gemm;
  AttentionKernels attention = AttentionKernels::warpgroups;
  /// Folder of chosen GEMM algorithms; none: every run chooses again.
  std::optional<std::filesystem::path> gemm_cache;
  /// Limit of a host call into the backend; a call that takes longer has failed.
  std::chrono::milliseconds deadline{60'000};
  /// Called once, when the run fails, before communicators are aborted. The caller is the host
  /// thread, or a thread of the backend if CUDA or NCCL may block the host thread. Must not block.
  std::function<void(const Error&)> on_failure;
  PlanRole timed_plan = PlanRole::train;
  std::optional<std::int64_t> timed_from;  ///< the first step whose ops are timed
  std::int64_t timed_steps = 2;            ///< number of timed steps
  /// Memory begins as NaN of every floating dtype (bytes 0xff) instead of undefined, and is set to
  /// NaN again when a buffer is released.
  bool poison = false;
  Delays delays;
  std::optional<InjectedFault> fault;
};

}  // namespace mfsdp::cuda
