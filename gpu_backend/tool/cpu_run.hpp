// A training run on the CPU's machine: every rank a thread of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exec_options.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/memory_meter.hpp"
#include "gpu_backend/tool/measured_step.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp {

/// What was measured, as far as the run came.
struct RanRun {
  MeasuredMemory memory;  ///< of rank 0; every rank has the same plan
  MeasuredStep step;      ///< of rank 0
  /// Of the last two steps, on a clock that began with the first of them; of rank 0 and as many of
  /// the following ranks as a store should be asked to keep.
  std::vector<OpLaunch> launches;
};

class CpuRun {
 public:
  /// Errors: more ranks or more memory than this machine has room for; --fault names an op that the
  /// train plan lacks, or a rank that there is not.
  [[nodiscard]] static Result<std::unique_ptr<CpuRun>> create(const Program& program,
                                                              const ExecOptions& options,
                                                              const TrainSettings& settings);

  /// Runs all ranks to the end or to the first error, which is returned. `exported`: where the
  /// weights go then; null for nowhere.
  [[nodiscard]] Result<void> train(const TrainInputs& inputs, TrainSink& sink,
                                   const HfExport* exported);

  /// Bytes that rank 0 has allocated on the device.
  [[nodiscard]] Bytes allocated() const;
  [[nodiscard]] const RanRun& measured() const { return measured_; }

 private:
  CpuRun(const Program& program, MachineSettings settings);

  const Program& program_;
  Machine machine_;
  RanRun measured_;
};

/// Seconds without the end of an op after which a run has failed: long enough for the slowest
/// kernel and collective of the plan on a slow core.
[[nodiscard]] std::chrono::seconds patience_for(const Program& program);

}  // namespace mfsdp
