// The step of an engine other than mfsdp's, with the GPU memory that its allocator takes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/engine_options.hpp"
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
  AllocatorSettings settings;          ///< their limit is `room`
  Bytes outside;                       ///< device memory outside the allocator
  Bytes room;                          ///< limit of the allocator; below 0: `outside` does not fit
  bool fits = true;                    ///< within the settings' limit and the GPU
  bool certain = true;                 ///< also with an error of error_of_room()
  std::optional<MemoryErrors> errors;  ///< of runs of the same kind
};

/// Possible error of an engine's predicted memory, as a fraction of the available memory: the worst
/// error of reserved memory, and at least 1 %.
[[nodiscard]] double error_of_room(const std::optional<MemoryErrors>& errors);

struct EngineMachine {
  EngineOptions options = {};
  AllocatorSettings settings;
  const Gpu& gpu;
  Bytes reserve;                            ///< to be kept free
  std::optional<MemoryErrors> errors = {};  ///< none: not known
};

/// The steps of one rank of each pipeline stage. `config` must come from engine_config(). The allocator may reserve the memory that context, NCCL
/// and `reserve` leave free; it releases cached blocks before it exceeds that limit. If the step
/// does not fit even then, its memory is counted without a limit. garbage_collection_threshold is a
/// fraction of the settings' own limit: PyTorch collects only in a process that has a limit.
[[nodiscard]] Result<std::vector<EngineStep>> engine_steps(EngineKind engine,
                                                           const PlanConfig& config,
                                                           const Meta& meta,
                                                           const EngineMachine& machine);

/// The position of the stage that needs most memory.
[[nodiscard]] std::size_t fullest_stage(const std::vector<EngineStep>& stages);

/// The same step, whose allocator returns memory that other streams use when they have passed it.
/// `moments`: of step.plan.
[[nodiscard]] EngineStep with_moments(EngineStep step, std::vector<OpMoment> moments,
                                      const EngineMachine& machine);

/// Device memory of the step: with everything that the allocator reserves, and, as the lower bound,
/// with its peak of allocated memory.
[[nodiscard]] Footprint footprint(const EngineStep& step);

/// Host time to issue an op on that machine. `step` must outlive the function.
[[nodiscard]] IssueTime host_time(const EngineStep& step, const Gpu& gpu);
[[nodiscard]] std::vector<Issuing> issuing_of(const std::vector<EngineStep>& stages,
                                              const Gpu& gpu);

/// Replaces the plan's memory figures by those of the allocator, of the fullest stage.
void complete(PredictedRun& run, const std::vector<EngineStep>& stages, const Gpu& gpu);

}  // namespace mfsdp
