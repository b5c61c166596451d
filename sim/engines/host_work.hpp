// What an engine's host does to issue a step: Python, autograd, the dispatcher, hooks. It is
// counted in launches, so that one figure of a machine (Gpu::host_launch) says how fast its host
// is.
//
// The figures are ratios, measured on tiny blocks, where the GPU has next to nothing to do
// (gpu_backend/measurements/2026-11-25-engines-2.md): the host of another machine is faster or
// slower in all of them alike, as all of them are the same interpreter on one core.
#pragma once

#include <cstdint>

namespace mfsdp {

/// Thousandths of a launch.
using HostWork = std::int64_t;

/// A kernel that PyTorch's dispatcher launches, and the operator around it.
inline constexpr HostWork kLaunch = 1000;
/// A kernel of a compiled graph.
inline constexpr HostWork kCompiledLaunch = 700;
/// NCCL's call, with the process group's around it.
inline constexpr HostWork kCollectiveCall = 8000;
/// An event's record, or a wait for one.
inline constexpr HostWork kEventCall = 300;

/// Who launches kernels.
enum class Launcher { eager, compiled };

}  // namespace mfsdp
