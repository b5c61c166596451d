// The result of a run, which is printed and stored.
//
//   RunFigures             figures of every run, with equal definitions: names, memory, time
//   |- PredictedRun        adds figures that only a simulation has
//   |- MeasuredRun         adds figures that only a measurement has
//   `- RunResult           one of the two, for code that prints, stores or compares either
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/vocabulary.hpp"
#include "core/plan/config.hpp"
#include "core/plan/op_launch.hpp"
#include "reports/record/facts.hpp"
#include "reports/record/figures.hpp"

namespace mfsdp {

struct ClusterSummary {
  std::string gpu;  ///< catalogue name
  std::int64_t gpus = 0;
  std::int64_t nodes = 0;
  std::int64_t gpus_per_node = 0;
  std::string network;  ///< one line: what was assumed between and inside nodes
};

struct PoolSummary {
  std::string name;
  Bytes height;
  Bytes lower_bound;
};

struct PlanSummary {
  std::int64_t units = 0;
  std::int64_t groups = 0;
  std::int64_t ops = 0;  ///< of the train plan, each segment counted once
  std::int64_t events = 0;
  std::int64_t waits = 0;
  std::int64_t buffers = 0;
  std::int64_t collectives = 0;  ///< per step, repeats counted
  std::int64_t segments = 0;
  std::int64_t max_live_full_weights = 0;
  std::int64_t max_live_full_gradients = 0;
  AllocatorPolicy allocator = AllocatorPolicy::best_fit;
  std::vector<PoolSummary> pools;
  Bytes padding;  ///< of the flat layouts, per full copy of the compute weights
  /// Of one step on one rank, as MFU counts them (reports/record/rates.hpp); 0: not known, as of
  /// runs that were stored before version 7.
  double model_flops = 0;
};

/// How far the numbers of a predicted memory may be off, as fractions of them.
struct MemoryErrors {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  std::string source;  ///< where these are from

  friend bool operator==(const MemoryErrors&, const MemoryErrors&) = default;
};

/// Memory of an engine with PyTorch's caching allocator.
struct CachedMemory {
  Bytes reserved;  ///< of segments: torch.cuda.max_memory_reserved()
  /// Reserved + runtime: what nvidia-smi shows; decides `fits`. Not known of imported runs.
  std::optional<Bytes> device = {};
  /// Allocations that succeeded after all cached blocks were freed. Unknown for imported runs.
  std::optional<std::int64_t> retries = {};
  /// Whether the verdict is the same if the prediction is off by its error; of one that fits, that
  /// it fits without retries even then.
  bool certain = true;
  /// It fits, and `certain`. None where no run has shown how far the engine's predictions are off.
  std::optional<bool> fits_certain = {};
  std::optional<MemoryErrors> errors = {};  ///< of predictions

  friend bool operator==(const CachedMemory&, const CachedMemory&) = default;
};

struct MemorySummary {
  Bytes capacity;
  /// Pool heights + runtime, which decides `fits`. For engines with a caching allocator, the value
  /// of torch.cuda.max_memory_allocated().
  Bytes allocated;
  std::optional<CachedMemory> cached = {};
  /// Every pool where it is fullest (core/plan/peak_memory.hpp), and the runtime. Pools need not be
  /// fullest together: at no time is more live, however fast anything is.
  Bytes peak;
  bool fits = false;
  Bytes reserve;  ///< to be kept free
  /// Capacity - reserve - what decides `fits`; negative when it does not fit. Under a limit of what
  /// the allocator reserves (fact kMemoryLimit) what is left of the limit, where that is less.
  Bytes headroom;
  std::array<Bytes, Names<Category>::values.size()> categories{};  ///< of the peak; sum to it
  std::string runtime_source;  ///< where the figure for `runtime` comes from

  /// Fits, but not if the prediction is off by its error.
  [[nodiscard]] bool barely_fits() const { return fits && cached && cached->fits_certain == false; }

  /// The number that decides `fits`.
  [[nodiscard]] Bytes deciding() const {
    return cached ? cached->device.value_or(cached->reserved) : allocated;
  }
};

/// Times of an engine whose host issues the ops one by one while the GPU runs them.
struct HostTime {
  Nanos issue;  ///< that the host needs to issue a step
  Nanos bound;  ///< of the step: nothing computes, as the host has not come to the next op

  friend bool operator==(const HostTime&, const HostTime&) = default;
};

/// `step` is compute + exposed_communication + idle of the one step whose op times are stored, of a
/// measured run the last one. The rates follow from `median_step`.
struct TimeSummary {
  Nanos step;
  Nanos compute;        ///< union of compute-stream kernels, contention included
  Nanos communication;  ///< union of collectives
  Nanos exposed_communication;
  Nanos idle;
  Nanos contention;  ///< kernel slow-down beside collectives, inside compute
  std::optional<HostTime> host = {};
  double overlap_fraction = 0;  ///< 1 - exposed / communication; 1 without communication
  /// Of all steps of a measured run (reports/record/step_figures.hpp); of a simulated one `step`.
  Nanos median_step;
  double tokens_per_second_per_gpu = 0;
  double tflops_per_gpu = 0;
  double mfu = 0;
};

struct TrafficSummary {
  Bytes all_gather;      ///< sent per rank and step; all_to_all without a sum included
  Bytes reduce_scatter;  ///< all_to_all of gradients included
  Bytes all_reduce;
  Bytes sends{};  ///< to peers, as between the stages of a pipeline
};

/// When one instance of an op ran, relative to the step's start.
struct OpTime {
  OpId op;
  std::string name;
  std::string stream;
  std::string kind;  ///< kernel, collective or copy kind
  std::string segment;
  std::int64_t instance = 0;  ///< of the segment in this step
  Nanos start;
  Nanos end;
};

/// Instances of a segment that a timeline leaves out, as the step is too long to keep whole. They
/// follow the last instance that is kept, and take about as long.
struct OmittedInstances {
  std::string segment;
  std::int64_t first = 0;  ///< number of the first one that is left out
  std::int64_t count = 0;
  Nanos begin;   ///< of the first one, about
  Nanos period;  ///< from one to the next, on average

  friend bool operator==(const OmittedInstances&, const OmittedInstances&) = default;
};

/// Live bytes by category from `at` until the next point.
struct MemoryPoint {
  Nanos at;
  std::array<Bytes, Names<Category>::values.size()> categories{};
};

/// The data of the collective for which compute waited.
enum class Awaited {
  weights,
  gradients,
  gradient_norm,
  expert_rows,
  heads,
  keys,
  rows,
  sends,
  others
};

constexpr auto value_names(Awaited) {
  return name_array("weights", "gradients", "gradient_norm", "expert_rows", "heads", "keys", "rows",
                    "sends", "others");
}

/// Communication that compute waited for, by unit.
struct ExposedUnit {
  std::string unit;
  Nanos exposed;
  /// The cause of most of the wait. It is not stored, so a run from a store has none.
  std::optional<Awaited> mostly = {};
};

struct StepResult {
  std::int64_t step = 0;
  Nanos duration;                      ///< 0 where it is not `timed`
  std::optional<double> loss;          ///< mean over the step's tokens that have a label
  std::optional<double> grad_norm;     ///< before clipping
  std::optional<std::int64_t> tokens;  ///< with a label, over all ranks
  std::optional<double> learning_rate;
  std::optional<double> loss_scale = {};  ///< of the mean loss, where it is scaled
  bool skipped = false;                   ///< the gradient was not finite: nothing was updated
  bool timed = true;                      ///< false: its duration is unknown
};

/// A pass over evaluation data between two steps.
struct EvaluationResult {
  std::int64_t step = 0;    ///< after which it was
  double loss = 0;          ///< mean over tokens that have a label
  std::int64_t tokens = 0;  ///< that have one; 0: unknown
};

/// Results of a running run since the last query.
struct RunProgress {
  std::vector<StepResult> steps;
  std::vector<EvaluationResult> evaluations;
};

/// The state of a run. One that was killed stays `running`.
enum class RunStatus { complete, running, interrupted, failed };

constexpr auto value_names(RunStatus) {
  return name_array("complete", "running", "interrupted", "failed");
}

/// Duration of training on a number of tokens at the run's speed.
struct TrainingEstimate {
  std::int64_t tokens = 0;
  double seconds = 0;
  double gpu_hours = 0;
  std::optional<double> cost;  ///< in the currency of the price; none where none was given
};

/// Settings with which a run that does not fit would.
struct WouldFit {
  std::string flags;  ///< "--recompute full"
  Bytes memory;       ///< that decides
  Nanos step;
  std::int64_t tokens = 0;  ///< of a step, over all ranks

  friend bool operator==(const WouldFit&, const WouldFit&) = default;
};

/// How far the predicted step can be trusted.
struct TrustSummary {
  std::string
      trust_level;  ///< "datasheet only", "calibrated by micro-benchmarks", ...; empty: unknown
  std::optional<double> step_error = {};  ///< expected, a fraction of the step; none: not known
  std::string text;                       ///< tier, error and where it is from
};

/// Ranks that differ from each other.
struct RankReport {
  std::int64_t ranks = 0;
  std::int64_t simulated = 0;  ///< one of each class of ranks that behave alike
  std::int64_t slowest = 0;
  Nanos compute_mean;     ///< of a rank's kernels alone
  Nanos compute_most;     ///< the slowest rank's
  Nanos waiting_mean;     ///< exposed: for other ranks
  std::string variation;  ///< how they differ: "jitter 0.02, seed 1, rank 3 x 1.1"
};

/// One class of the ranks of a job, such as a stage of a pipeline.
struct ClassReport {
  std::string role;
  std::int64_t ranks = 0;
  Bytes allocated;  ///< as MemorySummary has it
  Bytes peak;       ///< likewise
  Bytes host{};     ///< of a rank's pools in the host's memory
  Nanos step;
  Nanos compute;
  Nanos exposed_communication;
  Nanos idle;            ///< a pipeline's bubble is part of it
  Bytes sends;           ///< as TrafficSummary has it
  bool fullest = false;  ///< the class whose memory the run reports
  bool busiest = false;  ///< the class whose times the run reports: the one that idles least, or of
                         ///< a measured run the one whose kernels take longest

  friend bool operator==(const ClassReport&, const ClassReport&) = default;
};

/// Capacity for rows from one rank to another, with expert-parallel ranks, and the rows that a
/// routing needs.
struct RoutingRoom {
  std::int64_t rows = 0;    ///< that there is room for
  std::int64_t needed = 0;  ///< the most that a rank has for another in a micro-batch
  bool holds = false;       ///< else a run ends with an error
  Rational least_factor;    ///< the least --capacity-factor that holds
  Bytes least_allocated;    ///< memory with that factor
  bool least_fits = false;

  friend bool operator==(const RoutingRoom&, const RoutingRoom&) = default;
};

/// How tokens are spread over experts, and what the slowest rank has of them.
struct RoutingReport {
  std::string routing;                             ///< "zipf:1.2", a file's name
  std::int64_t slowest_rank = 0;                   ///< along ep
  std::optional<std::int64_t> slowest_block = {};  ///< where blocks differ
  std::int64_t rows = 0;        ///< of that rank's experts there, in a micro-batch
  std::int64_t mean_rows = 0;   ///< of all ranks'
  std::int64_t tiled_rows = 0;  ///< each expert's in whole tiles
  double imbalance = 1;         ///< rows / mean_rows
  std::int64_t busiest_expert = 0;
  double expert_imbalance = 1;           ///< its rows over those of the mean expert
  std::optional<RoutingRoom> room = {};  ///< for expert-parallel ranks

  friend bool operator==(const RoutingReport&, const RoutingReport&) = default;
};

/// Where a run went on from.
struct ResumedFrom {
  std::int64_t step = 0;  ///< steps done before
  std::string run_id;     ///< of the run that saved

  friend bool operator==(const ResumedFrom&, const ResumedFrom&) = default;
};

/// Who ran what, where and under which name.
struct RunHead {
  std::string tool;
  std::string version;
  std::string run_id;
  std::string name;
  std::int64_t created_unix_ns = 0;
  std::string plan_hash;
  std::string model_name;
  std::int64_t parameters = 0;
  PlanConfig config;
  ClusterSummary cluster;
  std::string engine = "mfsdp";  ///< whose kernels and allocator this describes
  RunStatus status = RunStatus::complete;
  std::string commit;  ///< of mfsdp, as git names it; empty: not known
  Facts facts;         ///< what else shaped the run
};

/// Data of every run, simulated or measured.
struct RunFigures : RunHead {
  PlanSummary plan;
  MemorySummary memory;
  TimeSummary time;
  TrafficSummary traffic;
  std::vector<OpTime> timeline;                ///< of one step, every microbatch, by start
  std::vector<OmittedInstances> omitted = {};  ///< of the timeline
  FigureSet absent = {};                       ///< unknown figures of the run
};

/// The op at which most memory is in use, placed in the step.
struct PeakPlace {
  Phase phase = Phase::forward;
  std::string unit;  ///< "layers.31"; empty: of no unit

  friend bool operator==(const PeakPlace&, const PeakPlace&) = default;
};

/// The same job under another engine, or why it cannot be predicted.
struct OtherEngine {
  std::string engine;  ///< as --engine names it
  std::string reason;  ///< why there is no prediction, one line; empty: there is one
  bool fits = false;
  bool certain = true;  ///< the verdict is the same with 1 % less memory and with 1 % more
  Bytes memory;         ///< that decides: of the device
  Bytes capacity;
  Nanos step;
  Recompute recompute = Recompute::none;  ///< as that engine has it

  friend bool operator==(const OtherEngine&, const OtherEngine&) = default;
};

/// Data that only a simulation has.
struct Predicted {
  std::string calibration;  ///< "measured", "datasheet" or "anchored"
  std::string cost_model_version;
  TrustSummary trust;
  std::optional<RankReport> ranks;            ///< where ranks of a class differ
  std::vector<ClassReport> classes{};         ///< where there are several
  std::optional<RoutingReport> routing = {};  ///< of experts, where it was asked for
  std::optional<TrainingEstimate> training;   ///< where it was asked for
  std::vector<WouldFit> would_fit;            ///< where it does not fit; not stored
  /// The most that is live at one simulated time, runtime included: the largest total of the memory
  /// timeline.
  std::optional<Bytes> live_peak;
  std::string peak_op;                     ///< what compute does at that time, or does next
  std::optional<PeakPlace> peak_place{};   ///< of peak_op; not stored
  std::vector<ExposedUnit> exposed_units;  ///< largest first
  std::vector<MemoryPoint> memory_timeline;
  std::vector<OtherEngine> other_engines{};  ///< where they were asked for; not stored
};

/// Data that only a measurement has.
struct Measured {
  std::optional<ResumedFrom> resumed;
  std::vector<StepResult> steps;
  std::vector<EvaluationResult> evaluations;
  std::vector<OpLaunch> launches;      ///< of the last steps, rank by rank
  std::vector<ClassReport> classes{};  ///< where there are several
};

struct PredictedRun : RunFigures, Predicted {};
struct MeasuredRun : RunFigures, Measured {};

/// A run of either kind.
class RunResult : public RunFigures {
 public:
  RunResult() = default;
  RunResult(PredictedRun run);  // NOLINT(google-explicit-constructor): is one
  RunResult(MeasuredRun run);   // NOLINT(google-explicit-constructor): is one
  RunResult(RunFigures figures, std::variant<Predicted, Measured> part);

  /// The part that only such a run has; null where it is of the other kind.
  [[nodiscard]] const Predicted* predicted() const { return std::get_if<Predicted>(&part_); }
  [[nodiscard]] const Measured* measured() const { return std::get_if<Measured>(&part_); }
  /// The part of either kind; empty where all ranks are of one class.
  [[nodiscard]] const std::vector<ClassReport>& classes() const;
  /// "simulated" or "measured".
  [[nodiscard]] std::string_view source() const;

 private:
  std::variant<Predicted, Measured> part_;
};

/// JSON of schema mfsdp.result/1 on several lines, keys in the schema's order; timelines and
/// launches are not part of it. Numbers that are not finite become null, bytes that are not UTF-8
/// the replacement character. See reports/record/result_json.hpp for one line and for reading back.
[[nodiscard]] std::string to_json(const RunResult& result);

}  // namespace mfsdp
