// How one rank of a run on CUDA runs, and what it needs of the processes of the others.
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

/// What hosts of ranks tell each other before the first step. Every rank calls each equally often,
/// in the same order. A run of one rank calls none.
struct Peers {
  using Bytes = std::vector<std::byte>;
  /// Rank 0's bytes, on every rank.
  std::function<Result<Bytes>(const Bytes& own)> broadcast;
  /// Every rank's bytes, in rank order.
  std::function<Result<std::vector<Bytes>>(const Bytes& own)> all_gather;
  /// An error when the run has failed on any rank. Asked by a thread of the backend's own, ten
  /// times a second; does not wait.
  std::function<Result<void>()> alive;
};

/// Kernels that only take time, put before ops of the plan: no bit may change.
struct Delays {
  std::optional<std::uint64_t> seed;  ///< of random ones, before a quarter of the ops
  std::optional<OpId> op;             ///< before this op, in every step
  bool each_in_turn = false;          ///< in step s before op number s of its plan, from the first
  Nanos duration{500'000};            ///< of one; the longest of random ones
};

/// Who computes attention in bf16.
enum class AttentionKernels {
  library,    ///< cuDNN
  warpgroups  ///< kernels of our own where they take the call (warpgroup_attention.hpp)
};

struct CudaSettings {
  KernelSettings kernels;  ///< its program is the one that is run
  std::int64_t rank = 0;
  std::int64_t local_rank = 0;  ///< its GPU, of those that are visible
  Peers peers;
  GemmSettings gemm;
  AttentionKernels attention = AttentionKernels::warpgroups;
  /// Folder of chosen GEMM algorithms; none: they are chosen anew in each run.
  std::optional<std::filesystem::path> gemm_cache;
  /// A call of the host into the backend that lasts longer has failed.
  std::chrono::milliseconds deadline{60'000};
  /// Called once, when the run fails, before communicators are aborted: by the host's thread, or by
  /// one of the backend's own while the host may be held inside CUDA or NCCL. Must not wait.
  std::function<void(const Error&)> on_failure;
  std::string timed_plan = "train";
  std::optional<std::int64_t> timed_from;  ///< the first step of it whose ops are timed
  std::int64_t timed_steps = 2;            ///< so many are
  /// Memory begins as NaN of every floating dtype (bytes 0xff) instead of undefined, and becomes so
  /// again when a buffer is released.
  bool poison = false;
  Delays delays;
  std::optional<InjectedFault> fault;
};

}  // namespace mfsdp::cuda
