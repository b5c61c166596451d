// What a training run is on: all ranks on this machine's CPU, or one rank on a GPU of this process.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/plan/op_launch.hpp"
#include "core/runtime/memory_meter.hpp"
#include "gpu_backend/tool/measured_step.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// What was measured, as far as the run came.
struct RanRun {
  MeasuredMemory memory;  ///< of rank 0; every rank has the same plan
  MeasuredStep step;      ///< of the rank that the others wait for
  /// Of the last kTimedSteps steps, on a clock that began with the first of them; of rank 0 and as
  /// many of the following ranks as a store should be asked to keep.
  std::vector<OpLaunch> launches;
  /// Beside the pools of a rank, the largest of all; none where ranks share a process.
  std::optional<Bytes> runtime;
};

/// What is said of a machine.
struct MachineFacts {
  ClusterSummary cluster;
  std::string ranks;           ///< "2 ranks of the CPU"
  Bytes capacity;              ///< that the pools of `sharing` ranks lie in
  std::int64_t sharing = 1;    ///< ranks
  std::string runtime_source;  ///< where RanRun::runtime comes from, or why there is none
  std::string process;         ///< a line of what the process took beside the plan; may be empty
  Facts facts;                 ///< of hardware, and of software that was loaded
};

class RankMachine {
 public:
  virtual ~RankMachine() = default;

  /// Of a run that has failed and said so: whether the process had better end as it is, instead of
  /// taking the machine down. The machine is of no use then.
  [[nodiscard]] virtual bool abandon() { return false; }

  /// Runs this process's ranks to the end or to the first error of any rank, which is returned.
  /// `inputs` are without stop and gather, which are the machine's own. `sink` hears of rank 0:
  /// null where that is another process's. `exported`: where the weights go then; null for nowhere.
  [[nodiscard]] virtual Result<void> train(TrainInputs inputs, TrainSink* sink,
                                           std::span<const HfExport> exported) = 0;

  /// Whether rank 0 is one of this process's: it prints and stores.
  [[nodiscard]] virtual bool has_rank_0() const = 0;
  /// Whether an error of train() is told by another process.
  [[nodiscard]] virtual bool told_elsewhere() const = 0;
  /// Whether a request to stop ended the run. To be asked behind train().
  [[nodiscard]] virtual bool stopped() const = 0;
  /// Bytes that a rank has allocated on the device.
  [[nodiscard]] virtual Bytes allocated() const = 0;
  [[nodiscard]] virtual const RanRun& measured() const = 0;
  [[nodiscard]] virtual MachineFacts facts() const = 0;
  /// Warnings.
  [[nodiscard]] virtual std::vector<std::string> notes() const = 0;
};

/// The launches of whole ranks, few enough to be stored with every run, on a clock that begins with
/// the first of them.
[[nodiscard]] std::vector<OpLaunch> kept_launches(
    const std::vector<std::vector<OpLaunch>>& by_rank);

/// Bytes of device pools out of those of all pools.
[[nodiscard]] Bytes on_device(const Program& program, const std::vector<Bytes>& pools);

}  // namespace mfsdp
