// A training run on one rank, independent of the backend.
//
//   datasets ─┐                      ┌─► sink: steps, evaluations, norms of parameters
//   settings ─┼─► Trainer: writes ───┤
//   program  ─┘   the host's inputs  └─► Interpreter ─► Backend
//
// A process that runs several ranks makes one object for each, on the rank's own host thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "core/runtime/interpreter.hpp"
#include "core/runtime/step_block.hpp"
#include "core/runtime/step_report.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/eval_logits.hpp"
#include "gpu_backend/train/gradient_order.hpp"
#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "gpu_backend/train/learning_rate.hpp"
#include "gpu_backend/train/parameter_places.hpp"
#include "gpu_backend/train/stop_point.hpp"
#include "gpu_backend/train/train_position.hpp"
#include "gpu_backend/train/train_state.hpp"

namespace mfsdp {

struct TrainSettings {
  std::int64_t steps = 0;
  LearningRate learning_rate = {};
  /// The backend's kernels must have the same settings.
  OptimizerSettings optimizer = {};
  std::uint64_t seed = 0;            ///< of the initial weights and of the samples' order
  std::int64_t eval_every = 0;       ///< steps; 0: only after the last one
  std::int64_t eval_samples = 0;     ///< of the evaluation's dataset; 0: all of them
  std::int64_t log_param_norms = 0;  ///< interval in steps, and after the first and the last; 0:
                                     ///< never
  bool check_nan = false;  ///< checks weights before the first step; then loss, gradients and
                           ///< weights
};

/// One training step of all ranks together.
struct StepReport {
  std::int64_t step = 0;         ///< from 1
  double loss = 0;               ///< mean over the tokens with a label; 0 if there are none
  std::int64_t tokens = 0;       ///< with a label, in the global batch
  std::int64_t seen_tokens = 0;  ///< in the run so far, with a label or without
  double grad_norm = 0;          ///< of the mean loss, before clipping
  double clip_factor = 1;        ///< factor by which gradients were multiplied
  double loss_scale = 0;         ///< applied to the step's mean loss; 0: none
  /// The norm is infinite or NaN. If the plan clips or scales the loss, the step has not changed
  /// weights and optimizer states.
  bool non_finite = false;
  double learning_rate = 0;
  Nanos duration;  ///< from the arrival of the last report (or the run's start) to that of this one
};

struct EvalReport {
  std::int64_t after_step = 0;  ///< steps done
  double loss = 0;              ///< mean over all tokens with a label
  std::int64_t tokens = 0;      ///< with a label
  Nanos duration;
};

/// L2 norms over all ranks.
struct ParameterNorm {
  std::string name;
  double weight = 0;               ///< of the weight that the optimizer updates, after the step
  std::optional<double> gradient;  ///< of the mean loss, not clipped; none where frozen
};

/// The state was saved.
struct SaveReport {
  std::int64_t after_step = 0;  ///< steps done
  Bytes written;                ///< by all ranks
  Nanos duration;
};

/// Receives the events of the run on the rank that reads the reports of steps (reporting_rank() of
/// core/plan/job.hpp), on its host thread. An error ends the run.
class TrainSink {
 public:
  virtual ~TrainSink() = default;
  [[nodiscard]] virtual Result<void> step(const StepReport& report) = 0;
  [[nodiscard]] virtual Result<void> evaluation(const EvalReport& report) = 0;
  [[nodiscard]] virtual Result<void> saved(const SaveReport& report) = 0;
  /// After the report of the same step, from 1; in the order of the program's groups.
  [[nodiscard]] virtual Result<void> norms(std::int64_t step,
                                           std::span<const ParameterNorm> norms) = 0;
};

/// Inputs of a run besides program and backend. All of them outlive the trainer, and the ranks of a
/// process share them.
struct TrainInputs {
  TrainSettings settings = {};
  const Dataset* data = nullptr;           ///< never null
  const Dataset* eval_data = nullptr;      ///< null: no evaluation
  const WeightSource* weights = nullptr;   ///< initial weights; null: random, from the seed
  const WeightSource* adapters = nullptr;  ///< initial adapters, likewise
  StopPoint* stop = nullptr;               ///< null: the run goes to its last step
  HostGather* gather = nullptr;         ///< null if log_param_norms, check_nan and keeper are off
  TrainPosition start = {};             ///< progress of earlier runs
  const StateSource* source = nullptr;  ///< weights and optimizer states; null: `weights`
  StateKeeper* keeper = nullptr;        ///< null: the state is not saved
  bool keeps_start = false;             ///< saves the initial state if no step follows
  /// On the reporting rank, for the first microbatch of the first evaluation.
  TakeLogits take_logits = {};
};

/// Whether step `step` (from 1) of `steps` is logged: the first, the last and every `every`-th.
[[nodiscard]] inline bool is_logged(std::int64_t step, std::int64_t every, std::int64_t steps) {
  return step == 1 || step == steps || step % every == 0;
}

class Trainer {
 public:
  /// Allocates, and fills the initial buffers: weights and optimizer states (initial ones, or those
  /// of the source) and the RoPE table. `programs` are those of a job, one for each class of ranks;
  /// the rank runs that of its class, and asks for the groups and ports that the class has. `sink`
  /// is null except on the reporting rank. Errors: those of Interpreter::create; a job without the
  /// buffers of a training run.
  [[nodiscard]] static Result<std::unique_ptr<Trainer>> create(std::span<const Program> programs,
                                                               Backend& backend, std::int64_t rank,
                                                               const TrainInputs& inputs,
                                                               TrainSink* sink);
  /// All ranks run one program.
  [[nodiscard]] static Result<std::unique_ptr<Trainer>> create(const Program& program,
                                                               Backend& backend, std::int64_t rank,
                                                               const TrainInputs& inputs,
                                                               TrainSink* sink) {
    return create(std::span(&program, 1), backend, rank, inputs, sink);
  }

  /// Runs all remaining steps, or those before the stop point. When it returns, with or without an
  /// error, the reports of all ended steps have been delivered. The final state is saved. Errors:
  /// those of the backend, the datasets, the keeper and the sink; findings of check_nan, as
  /// Fault::environment, from the rank that holds the value.
  [[nodiscard]] Result<void> run();

  /// Number of steps done, including earlier runs': below the settings' if the stop point ended the
  /// run.
  [[nodiscard]] std::int64_t steps_done() const { return step_; }

  /// The places of this rank's shard of each parameter. Access them only before or after run().
  [[nodiscard]] const std::vector<ParameterPlaces>& parameters() const { return parameters_; }

 private:
  /// Something that is not finite.
  struct Finding {
    std::int64_t order = 0;  ///< smaller is earlier; the same on every rank
    Error error;
  };

  Trainer(std::span<const Program> programs, std::int64_t rank, const TrainInputs& inputs,
          TrainSink* sink);

  [[nodiscard]] Result<void> prepare(Backend& backend);
  [[nodiscard]] Result<void> run_steps();
  [[nodiscard]] Result<void> host_work(const BoundOp& op, std::optional<Nanos> ended);
  [[nodiscard]] Result<void> fill_tokens(const OperandView& tokens);
  [[nodiscard]] Result<void> settle();
  [[nodiscard]] Result<void> take_report(Nanos ended);
  [[nodiscard]] Result<void> report_step(Nanos ended);
  [[nodiscard]] float* report_values() const;
  void await_report() const;
  [[nodiscard]] bool report_has_come() const;
  [[nodiscard]] Result<void> share_report();
  [[nodiscard]] Result<void> look_inside();
  [[nodiscard]] Result<void> report_norms();
  [[nodiscard]] Result<void> refuse_weights(std::int64_t step, std::string_view when);
  [[nodiscard]] Result<void> refuse_non_finite();
  /// The first finding of all ranks ends the run, on the rank that found it. A collective.
  [[nodiscard]] Result<void> refuse_first(const std::optional<Finding>& found);
  [[nodiscard]] Result<void> begin_loss_scale();
  [[nodiscard]] Result<void> begin_amax_history();
  [[nodiscard]] TrainPosition position_after(std::int64_t steps) const;
  [[nodiscard]] Result<TrainPosition> position_now();
  [[nodiscard]] Result<void> keep();
  [[nodiscard]] Result<bool> has_turn();
  [[nodiscard]] Result<bool> evaluate();
  [[nodiscard]] Result<void> give_logits();
  [[nodiscard]] Nanos lap(Nanos until);

  /// The kind of the report that is being copied to the host.
  enum class Pending { none, step, evaluation };

  [[nodiscard]] Result<std::optional<BufferId>> find_port(Port port, std::int64_t bytes) const;

  std::span<const Program> programs_;  ///< of the job
  const Program& program_;             ///< of the rank's class
  std::int64_t rank_;
  std::int64_t reporting_rank_;
  TrainInputs inputs_;
  TrainSink* sink_;
  Backend* backend_ = nullptr;
  std::optional<BufferId> tokens_;  ///< the ports of these names that the class has
  std::optional<BufferId> step_block_;
  std::optional<BufferId> report_;
  std::optional<BufferId> loss_scale_;
  std::optional<BufferId> amax_history_;  ///< of delayed scaling
  std::vector<ParameterPlaces> parameters_;
  std::vector<GradientWriter> writers_;  ///< of their gradients; empty without check_nan

  std::int64_t turn_ = 0;        ///< number of the next run of a plan, of training or evaluation
  std::int64_t step_ = 0;        ///< the step that is being issued, from 0
  std::int64_t kept_ = 0;        ///< steps done at the last save; -1: none
  std::int64_t microbatch_ = 0;  ///< the microbatch whose tokens come next: of the step, or of the
                                 ///< evaluation
  bool evaluates_ = false;
  Pending pending_ = Pending::none;
  std::int64_t pending_step_ = 0;
  LossReport loss_;  ///< of the last reported step
  NormReport norm_;
  double eval_loss_ = 0;  ///< sum over tokens
  std::int64_t eval_tokens_ = 0;
  Nanos since_;  ///< when the last report arrived

  std::unique_ptr<Interpreter> interpreter_;  ///< last: it calls host_work
};

}  // namespace mfsdp
