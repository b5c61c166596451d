// Host work of an engine to issue a step: Python, autograd, the dispatcher, hooks. The unit is a
// launch, the time of one call of cudaLaunchKernel. One figure of a machine (Gpu::host_launch) then
// determines the speed of its host, as all of this work is one interpreter on one core.
//
// The ratios come from steps of 4 and 16 tiny blocks, which barely load the GPU, on two hosts,
// eager and compiled: the difference is twelve blocks. The profiler's traces of the same steps
// divide their time among forward, backward, hooks, graphs and collectives. The profiler's own time
// for each event is subtracted (docs/lab/2026-11-26-engines-host.md has the derivation).
#pragma once

#include <cstdint>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Thousandths of a launch.
using HostLaunches = std::int64_t;
inline constexpr HostLaunches kLaunch = 1000;

/// A kernel launched by an operator of PyTorch: called from Python, where autograd records it, and
/// called from C++, as in autograd, an optimizer or the body of a hook.
inline constexpr HostLaunches kForwardKernel = 7300;
inline constexpr HostLaunches kBackwardKernel = 4200;
/// A kernel of a compiled graph.
inline constexpr HostLaunches kCompiledKernel = 2000;
/// A call of a compiled block, or of a separately compiled function: guards, and the code around
/// the graph's own code.
inline constexpr HostLaunches kGraphCall = 129000;
inline constexpr HostLaunches kFunctionCall = 43000;
/// A collective's call, through the process group to NCCL.
inline constexpr HostLaunches kCollectiveCall = 17000;
/// Recording an event, or waiting for one.
inline constexpr HostLaunches kEventCall = 300;

// FSDP2's hooks of a unit, without the kernels that they launch:
inline constexpr HostLaunches kGatherHook = 44000;
inline constexpr HostLaunches kUseHook = 55000;
inline constexpr HostLaunches kReleaseHook = 11000;
inline constexpr HostLaunches kReduceHook = 107000;
// Megatron-FSDP's hooks:
inline constexpr HostLaunches kMegatronGatherHook = 80000;
inline constexpr HostLaunches kMegatronReleaseHook = 28000;
inline constexpr HostLaunches kMegatronReduceHook = 160000;

// DeepSpeed's (docs/lab/2026-11-30-engines-9.md). Of ZeRO-3, in forward and backward alike: before and
// after each module, also modules without parameters, among them what autograd's functions of its
// hooks take; of a gather, without kernel and call; of a parameter that is waited for, or freed; of
// a gradient; of a parameter in the optimizer's step, before its norm.
inline constexpr HostLaunches kDeepSpeedFetch = 42000;
inline constexpr HostLaunches kDeepSpeedRelease = 18000;
inline constexpr HostLaunches kDeepSpeedGather = 25000;
inline constexpr HostLaunches kDeepSpeedUse = 10000;
inline constexpr HostLaunches kDeepSpeedFree = 13000;
inline constexpr HostLaunches kDeepSpeedGradient = 16000;
inline constexpr HostLaunches kDeepSpeedOptimizerParameter = 6000;
// Of ZeRO-1 and ZeRO-2: after the host has read the flag of overflows, and between the norm and the
// flat gradient.
inline constexpr HostLaunches kDeepSpeedAfterOverflow = 55000;
inline constexpr HostLaunches kDeepSpeedAfterNorm = 110000;

/// Work once per microbatch at the root: inputs, the first hooks, the end of backward.
inline constexpr HostLaunches kRootHooks = 278000;
/// Work per parameter on the lists of the optimizer and of clipping.
inline constexpr HostLaunches kOptimizerParameter = 4400;
inline constexpr HostLaunches kClipParameter = 21000;

/// Origin of kernel launches.
enum class Launcher { operators, hook, compiled };

/// Host work of one kernel launch.
[[nodiscard]] constexpr HostLaunches kernel_work(Launcher launcher, Phase phase) {
  if (launcher == Launcher::compiled) return kCompiledKernel;
  const bool python = phase == Phase::forward || phase == Phase::recompute;
  return launcher == Launcher::operators && python ? kForwardKernel : kBackwardKernel;
}

}  // namespace mfsdp
