// What an engine's host does to issue a step: Python, autograd, the dispatcher, hooks. It is
// counted in launches, a launch being a call of cudaLaunchKernel, so that one figure of a machine
// (Gpu::host_launch) says how fast its host is: all of this is one interpreter on one core.
//
// The ratios come from steps of 4 and 16 tiny blocks, whose GPU has next to nothing to do, on a
// host whose launch takes 9.0 us (gpu_backend/measurements/2026-11-25-engines-2.md); how a block's
// time parts into hooks, operators and compiled graphs from the profiler's traces of the same
// steps.
#pragma once

#include <cstdint>

namespace mfsdp {

/// Thousandths of a launch.
using HostLaunches = std::int64_t;
inline constexpr HostLaunches kLaunch = 1000;

/// A kernel that an operator of PyTorch launches, its share of autograd's work among it.
inline constexpr HostLaunches kOperatorKernel = 5900;
/// A kernel of a compiled graph.
inline constexpr HostLaunches kCompiledKernel = 2000;
/// A call of a compiled block, or of a function that was compiled alone: guards, and what stands
/// around the graph's own code.
inline constexpr HostLaunches kGraphCall = 140000;
inline constexpr HostLaunches kFunctionCall = 45000;
/// A collective's call, through the process group to NCCL.
inline constexpr HostLaunches kCollectiveCall = 8000;
/// An event's record, or a wait for one.
inline constexpr HostLaunches kEventCall = 300;

// Beside the kernels that they launch, FSDP2's hooks of a unit:
inline constexpr HostLaunches kGatherHook = 59000;
inline constexpr HostLaunches kUseHook = 39000;
inline constexpr HostLaunches kReleaseHook = 8000;
inline constexpr HostLaunches kReduceHook = 76000;
// Megatron-FSDP's:
inline constexpr HostLaunches kMegatronGatherHook = 70000;
inline constexpr HostLaunches kMegatronReleaseHook = 25000;
inline constexpr HostLaunches kMegatronReduceHook = 140000;

/// What a microbatch's root does once: inputs, the first hooks, the end of backward.
inline constexpr HostLaunches kRootHooks = 278000;
/// The optimizer's lists, and clipping's, for each of the parameters.
inline constexpr HostLaunches kOptimizerParameter = 4400;
inline constexpr HostLaunches kClipParameter = 21000;

/// Who launches kernels.
enum class Launcher { eager, compiled };

}  // namespace mfsdp
