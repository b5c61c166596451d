// What an engine's host does to issue a step: Python, autograd, the dispatcher, hooks. It is
// counted in launches, a launch being a call of cudaLaunchKernel, so that one figure of a machine
// (Gpu::host_launch) says how fast its host is: all of this is one interpreter on one core.
//
// The ratios come from steps of 4 and 16 tiny blocks, whose GPU has next to nothing to do, on two
// hosts, eager and compiled: the difference is twelve blocks. How their time parts into forward,
// backward, hooks, graphs and collectives is from the profiler's traces of the same steps, less
// what the profiler adds to each event that it writes
// (docs/lab/2026-11-26-engines-host.md has the derivation).
#pragma once

#include <cstdint>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Thousandths of a launch.
using HostLaunches = std::int64_t;
inline constexpr HostLaunches kLaunch = 1000;

/// A kernel that an operator of PyTorch launches: called from Python, with what autograd notes
/// down; and called from C++, which is autograd, an optimizer or the body of a hook.
inline constexpr HostLaunches kForwardKernel = 7300;
inline constexpr HostLaunches kBackwardKernel = 4200;
/// A kernel of a compiled graph.
inline constexpr HostLaunches kCompiledKernel = 2000;
/// A call of a compiled block, or of a function that was compiled alone: guards, and what stands
/// around the graph's own code.
inline constexpr HostLaunches kGraphCall = 129000;
inline constexpr HostLaunches kFunctionCall = 43000;
/// A collective's call, through the process group to NCCL.
inline constexpr HostLaunches kCollectiveCall = 17000;
/// An event's record, or a wait for one.
inline constexpr HostLaunches kEventCall = 300;

// Beside the kernels that they launch, FSDP2's hooks of a unit:
inline constexpr HostLaunches kGatherHook = 44000;
inline constexpr HostLaunches kUseHook = 55000;
inline constexpr HostLaunches kReleaseHook = 11000;
inline constexpr HostLaunches kReduceHook = 107000;
// Megatron-FSDP's:
inline constexpr HostLaunches kMegatronGatherHook = 80000;
inline constexpr HostLaunches kMegatronReleaseHook = 28000;
inline constexpr HostLaunches kMegatronReduceHook = 160000;

/// What a microbatch's root does once: inputs, the first hooks, the end of backward.
inline constexpr HostLaunches kRootHooks = 278000;
/// The optimizer's lists, and clipping's, for each of the parameters.
inline constexpr HostLaunches kOptimizerParameter = 4400;
inline constexpr HostLaunches kClipParameter = 21000;

/// Who launches kernels.
enum class Launcher { operators, hook, compiled };

/// What the host takes for one of its kernels.
[[nodiscard]] constexpr HostLaunches kernel_work(Launcher launcher, Phase phase) {
  if (launcher == Launcher::compiled) return kCompiledKernel;
  const bool python = phase == Phase::forward || phase == Phase::recompute;
  return launcher == Launcher::operators && python ? kForwardKernel : kBackwardKernel;
}

}  // namespace mfsdp
