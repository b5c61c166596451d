// The machine of a training run: all ranks on this machine's CPU, or one rank on a GPU of this
// process.
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

/// Measurements of one rank.
struct RanRank {
  MeasuredMemory memory;
  std::optional<Bytes> runtime;    ///< memory outside the pools; none if ranks share a process
  std::vector<OpLaunch> launches;  ///< of the last kTimedSteps steps; empty if they are not known
};

/// Measurements of a class of ranks: the most of its ranks, and the step of the slowest one.
struct RanClass {
  CategoryBytes categories{};
  Bytes allocated;  ///< pools on the device
  Bytes host;       ///< pools in the host's memory
  std::optional<Bytes> runtime;
  MeasuredStep step;
};

/// Measurements, up to the end of the run or its failure.
struct RanRun {
  MeasuredMemory memory;          ///< of fullest_rank(), whose memory a prediction has
  MeasuredStep step;              ///< of the rank that the others wait for
  std::vector<RanClass> classes;  ///< of a run that ended well
  /// Launches of the last kTimedSteps steps. Their clock begins with the first of them. They are
  /// those of rank 0 and of as many following ranks as fit into a store.
  std::vector<OpLaunch> launches;
  /// The largest memory of a rank outside the pools; none if ranks share a process.
  std::optional<Bytes> runtime;
};

/// Descriptions of a machine.
struct MachineFacts {
  ClusterSummary cluster;
  std::string ranks;           ///< "2 ranks of the CPU"
  Bytes capacity;              ///< memory that holds the pools of `sharing` ranks
  std::int64_t sharing = 1;    ///< ranks
  std::string runtime_source;  ///< the source of RanRun::runtime, or why there is none
  std::string process;         ///< a line about the process's memory outside the plan; may be empty
  Facts facts;                 ///< of hardware, and of loaded software
};

class RankMachine {
 public:
  virtual ~RankMachine() = default;

  /// After a run has failed and its error is printed: whether the process should end without
  /// destroying the machine. The machine must not be used after that.
  [[nodiscard]] virtual bool abandon() { return false; }

  /// Runs this process's ranks to the end, or to the first error of any rank, which is returned.
  /// `inputs` have no stop and gather: the machine adds its own. `sink` receives the events of the
  /// reporting rank; null if that is in another process. `exported`: where the weights are written
  /// at the end; null for nowhere.
  [[nodiscard]] virtual Result<void> train(TrainInputs inputs, TrainSink* sink,
                                           std::span<const HfExport> exported) = 0;

  /// Whether the reporting rank (core/plan/job.hpp) is in this process: then it prints and stores.
  [[nodiscard]] virtual bool reports() const = 0;
  /// Whether another process reports an error of train().
  [[nodiscard]] virtual bool told_elsewhere() const = 0;
  /// Whether a request to stop ended the run. Call after train().
  [[nodiscard]] virtual bool stopped() const = 0;
  /// Bytes that the fullest rank has allocated on the device; before the end of a run on GPUs, those
  /// of the reporting rank.
  [[nodiscard]] virtual Bytes allocated() const = 0;
  [[nodiscard]] virtual const RanRun& measured() const = 0;
  [[nodiscard]] virtual MachineFacts facts() const = 0;
  /// Warnings.
  [[nodiscard]] virtual std::vector<std::string> notes() const = 0;
};

/// Everything but `runtime` of a run that ended well. `programs`: of a job; `ranks`: all of them.
[[nodiscard]] RanRun ran_run(std::span<const Program> programs, std::vector<RanRank> ranks);

/// The launches of the first ranks, as many ranks as can be stored with every run, on a clock that
/// begins with the first launch.
[[nodiscard]] std::vector<OpLaunch> kept_launches(
    const std::vector<std::vector<OpLaunch>>& by_rank);

/// The first rank of the class with the most bytes in device pools.
[[nodiscard]] std::int64_t fullest_rank(std::span<const Program> programs);

/// The bytes of `pools` that are in device pools.
[[nodiscard]] Bytes on_device(const Program& program, const std::vector<Bytes>& pools);

}  // namespace mfsdp
