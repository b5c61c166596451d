// The step of an engine that is not ours, with what its allocator takes of a GPU.
#pragma once

#include <functional>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/engines/engine.hpp"
#include "sim/engines/engine_memory.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {

struct EngineStep {
  EngineKind engine = EngineKind::fsdp2;
  EnginePlan plan;  ///< its pools are as high as what the allocator reserves for their streams
  EngineMemory memory;
  AllocatorSettings settings;  ///< with `room` as their limit
  Bytes outside;               ///< of the device, beside what the allocator reserves
  Bytes room;                  ///< that the allocator may reserve; below 0: not even `outside` fits
  bool fits = true;            ///< under the settings' limit and in what is left of the GPU
  bool certain = true;         ///< the same if it is off by error_of_room()
};

/// How far an engine's need of room may be off, as a fraction of the room: what its reserved memory
/// was off by at worst on that GPU (engine_errors), and 1 % at least.
[[nodiscard]] double error_of_room(EngineKind engine, const PlanConfig& config, const Gpu& gpu);

struct EngineMachine {
  AllocatorSettings settings;
  const Gpu& gpu;
  Bytes reserve;  ///< to be kept free
};

/// `config` is one that engine_config() gave. The allocator may reserve what context, NCCL and
/// `reserve` leave, and gives cached blocks back before it goes beyond that; where not even that
/// ends well, its memory is counted as if there were no limit. A garbage_collection_threshold is a
/// part of the settings' own limit: PyTorch collects for it where a process has one.
[[nodiscard]] Result<EngineStep> engine_step(EngineKind engine, const PlanConfig& config,
                                             const Meta& meta, const EngineMachine& machine);

/// Of the device, with all that the allocator reserves; at least, what it has allocated at once.
[[nodiscard]] Footprint footprint(const EngineStep& step);

/// What the step's host takes to issue an op, on that machine. `step` must outlive it.
[[nodiscard]] std::function<Nanos(const Op&)> host_times(const EngineStep& step, const Gpu& gpu);

/// Puts the allocator's figures in the place of the plan's own.
void complete(PredictedRun& run, const EngineStep& step, const Gpu& gpu);

}  // namespace mfsdp
