// A training run on the CPU: every rank is a thread of this process.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp {

class CpuRun final : public RankMachine {
 public:
  /// `stop`: whether the run should end; called before each run of a plan. Errors: more ranks or
  /// more memory than this machine has; --fault names an op that the train plan lacks, or a rank
  /// that does not exist.
  [[nodiscard]] static Result<std::unique_ptr<CpuRun>> create(const Job& job,
                                                              const ExecOptions& options,
                                                              const TrainSettings& settings,
                                                              std::function<bool()> stop);

  [[nodiscard]] Result<void> train(TrainInputs inputs, TrainSink* sink,
                                   std::span<const HfExport> exported) override;
  [[nodiscard]] bool reports() const override { return true; }
  [[nodiscard]] bool told_elsewhere() const override { return false; }
  [[nodiscard]] bool stopped() const override { return stop_.stopped(); }
  [[nodiscard]] Bytes allocated() const override;
  [[nodiscard]] const RanRun& measured() const override { return measured_; }
  [[nodiscard]] MachineFacts facts() const override;
  [[nodiscard]] std::vector<std::string> notes() const override { return {}; }

 private:
  CpuRun(const Job& job, MachineSettings settings, std::function<bool()> stop);

  const Job& job_;
  Machine machine_;
  SharedStopPoint stop_;
  SharedHostGather gather_;
  RanRun measured_;
};

/// Seconds without the end of an op after which a run has failed. Long enough for the slowest
/// kernel and collective of the plans on a slow core.
[[nodiscard]] std::chrono::seconds patience_for(std::span<const Program> programs);

}  // namespace mfsdp
