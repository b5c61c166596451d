#include "gpu_backend/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/plan/fp8.hpp"
#include "core/plan/job.hpp"
#include "core/runtime/rope_table.hpp"
#include "gpu_backend/train/batches.hpp"
#include "gpu_backend/train/parameter_checks.hpp"

namespace mfsdp {
namespace {

bool is_port(const Buffer& buffer, Port port) { return buffer.holds && buffer.holds->port == port; }

/// NaN without its sign, which has no meaning.
std::string value_text(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

bool is_due(std::int64_t every, std::int64_t steps_done) {
  return every > 0 && steps_done % every == 0;
}

}  // namespace

Trainer::Trainer(std::span<const Program> programs, std::int64_t rank, const TrainInputs& inputs,
                 TrainSink* sink)
    : programs_(programs),
      program_(program_of(programs, rank)),
      rank_(rank),
      reporting_rank_(reporting_rank(programs)),
      inputs_(inputs),
      sink_(sink),
      step_(inputs.start.step),
      kept_(inputs.keeps_start ? -1 : inputs.start.step) {
  TrainSettings& settings = inputs_.settings;
  assert(inputs_.gather != nullptr ||
         (settings.log_param_norms == 0 && !settings.check_nan && inputs_.keeper == nullptr));
  if (inputs_.eval_data == nullptr) return;
  const std::int64_t all = inputs_.eval_data->samples();
  settings.eval_samples = settings.eval_samples == 0 ? all : std::min(settings.eval_samples, all);
}

Result<std::unique_ptr<Trainer>> Trainer::create(std::span<const Program> programs,
                                                 Backend& backend, std::int64_t rank,
                                                 const TrainInputs& inputs, TrainSink* sink) {
  std::unique_ptr<Trainer> made(new Trainer(programs, rank, inputs, sink));
  MFSDP_TRY(made->prepare(backend));
  return made;
}

/// The port of the rank's class. None where another class of the job has it.
Result<std::optional<BufferId>> Trainer::find_port(Port port, std::int64_t bytes) const {
  for (const Buffer& buffer : program_.buffers) {
    if (!is_port(buffer, port)) continue;
    if (buffer.size.value == bytes) return std::optional(buffer.id);
    return fail(fmt::format("plan, port {}, buffer {}", to_string(port), buffer.name),
                fmt::format("expected {} bytes, got {}", bytes, buffer.size.value));
  }
  const auto has_it = [&](const Program& program) {
    return std::ranges::any_of(program.buffers,
                               [&](const Buffer& buffer) { return is_port(buffer, port); });
  };
  if (std::ranges::any_of(programs_, has_it)) return std::optional<BufferId>();
  return fail("plan", fmt::format("expected a buffer that is the port {}", to_string(port)));
}

Result<void> Trainer::prepare(Backend& backend) {
  backend_ = &backend;
  const PlanConfig& config = program_.config;
  const std::int64_t tokens =
      product_of(config.token_rows(), config.tokens_per_microbatch(), size_of(DType::int32));
  MFSDP_SET(tokens_, find_port(Port::tokens, tokens));
  MFSDP_SET(step_block_, find_port(Port::step_block, sizeof(StepBlock)));
  MFSDP_SET(report_, find_port(Port::report, sizeof(LossReport) + sizeof(NormReport)));
  std::vector<std::pair<BufferId, std::vector<float>>> rope_tables;
  const auto add_table = [&](Port port, bool local) -> Result<void> {
    std::vector<float> angles = make_rope_table(config.model, config.seq_len, local);
    MFSDP_LET(found, find_port(port, std::ssize(angles) * size_of(DType::fp32)));
    if (found) rope_tables.emplace_back(*found, std::move(angles));
    return {};
  };
  if (config.model.traits().rotates) MFSDP_TRY(add_table(Port::rope_table, false));
  if (config.model.has_other_rope()) MFSDP_TRY(add_table(Port::local_rope_table, true));

  MFSDP_SET(interpreter_, Interpreter::create(
                              program_, backend, rank_,
                              [this](const BoundOp& op, std::int64_t, std::optional<Nanos> ended) {
                                return host_work(op, ended);
                              }));
  interpreter_->count_from(PlanRole::train, inputs_.start.step);
  const BufferBytes bytes = [this](BufferId id) { return interpreter_->buffer_bytes(id); };
  MFSDP_SET(parameters_, find_parameters(programs_, bytes, rank_));
  if (inputs_.settings.check_nan) writers_ = gradient_writers(program_);
  for (const auto& [table, angles] : rope_tables)
    MFSDP_TRY(backend.upload(std::as_bytes(std::span(angles)), bytes(table).data()));
  MFSDP_TRY(begin_loss_scale());
  MFSDP_TRY(begin_amax_history());
  MFSDP_TRY(clear_state(backend, program_, bytes));
  if (inputs_.source != nullptr)
    return inputs_.source->fill(
        {.program = program_, .backend = backend, .rank = rank_, .parameters = parameters_});
  const RandomWeights random(config.model.layers, inputs_.settings.seed,
                             config.model.zero_centered_norms);
  const WeightsWithAdapters both(inputs_.weights == nullptr ? random : *inputs_.weights,
                                 inputs_.adapters == nullptr ? random : *inputs_.adapters);
  return fill_initial_weights(backend, parameters_, both);
}

/// A dynamic scale continues from the earlier run's; a fixed scale is that of the settings.
Result<void> Trainer::begin_loss_scale() {
  const PlanConfig& config = program_.config;
  if (!config.scales_loss()) return {};
  MFSDP_SET(loss_scale_, find_port(Port::loss_scale, sizeof(LossScaleState)));
  if (!loss_scale_)
    return fail("plan", "expected the port loss_scale in every class of ranks, as all update it");
  LossScaleState state = first_loss_scale(config);
  if (config.loss_scale_window != 0) state = inputs_.start.loss_scale.value_or(state);
  return backend_->upload(std::as_bytes(std::span(&state, 1)),
                          interpreter_->buffer_bytes(*loss_scale_).data());
}

/// An earlier run's numbers; without them 0, so that the first casts have scale 1.
Result<void> Trainer::begin_amax_history() {
  const PlanConfig& config = program_.config;
  if (config.fp8 != Fp8Recipe::delayed) return {};
  const std::int64_t elements = amax_history::elements(config);
  MFSDP_SET(amax_history_, find_port(Port::amax_history, elements * size_of(DType::fp32)));
  if (!amax_history_)
    return fail("plan", "expected the port amax_history in every class of ranks, as all update it");
  std::vector<float> numbers = inputs_.start.amax_history;
  if (numbers.empty()) numbers.resize(static_cast<std::size_t>(elements));
  if (std::ssize(numbers) != elements)
    return fail("--fp8-history",
                fmt::format("expected the save's history: it has {} numbers, and this run {} ({} "
                            "steps of {} tensors)",
                            numbers.size(), elements, amax_history::slots(config),
                            amax_history::tensors(config)));
  return backend_->upload(std::as_bytes(std::span(numbers)),
                          interpreter_->buffer_bytes(*amax_history_).data());
}

// ---- the host's inputs to the plan -------------------------------------------------------------

Result<void> Trainer::host_work(const BoundOp& op, std::optional<Nanos> ended) {
  const auto& copy = std::get<Copy>(op.op->body);
  if (tokens_ == copy.input.buffer) return fill_tokens(op.operands[0]);
  if (report_ == copy.output.buffer) {
    MFSDP_TRY(take_report(ended.value_or(backend_->now())));
    await_report();
    return {};
  }
  if (step_block_ != copy.input.buffer) return {};
  const TrainSettings& settings = inputs_.settings;
  const double rate = learning_rate_at(settings.learning_rate, step_, settings.steps);
  const StepBlock block = make_step_block(step_, rate, settings.optimizer, settings.seed);
  std::memcpy(op.operands[0].data, &block, sizeof block);
  return {};
}

Result<void> Trainer::fill_tokens(const OperandView& tokens) {
  const PlanConfig& config = program_.config;
  const std::span<std::int32_t> ids(reinterpret_cast<std::int32_t*>(tokens.data),
                                    static_cast<std::size_t>(product_of(tokens.shape)));
  const std::int64_t number = microbatch_++;
  if (evaluates_)
    return fill_batch(*inputs_.eval_data,
                      eval_batch(config, rank_, number, inputs_.settings.eval_samples),
                      inputs_.settings.seed, config, ids);
  Batch batch = train_batch(config, rank_, step_ - inputs_.start.step, number);
  batch.first += inputs_.start.samples;
  return fill_batch(*inputs_.data, batch, inputs_.settings.seed, config, ids);
}

// ---- reports of the plan -----------------------------------------------------------------------

Result<void> Trainer::settle() {
  MFSDP_TRY(interpreter_->finish());
  if (!report_) return {};
  MFSDP_LET(ended, interpreter_->copy_ended(*report_));
  return take_report(ended.value_or(backend_->now()));
}

float* Trainer::report_values() const {
  return reinterpret_cast<float*>(interpreter_->buffer_bytes(*report_).data());
}

/// Marks the report as missing, until the next copy overwrites it.
void Trainer::await_report() const { write_report(LossReport{.absent = 1}, report_values()); }

bool Trainer::report_has_come() const {
  return read_report<LossReport>(report_values()).absent == 0;
}

/// Takes the report of the last copy to the host, once.
Result<void> Trainer::take_report(Nanos ended) {
  const Pending pending = std::exchange(pending_, Pending::none);
  if (pending == Pending::step) return report_step(ended);
  if (pending == Pending::evaluation) {
    const auto loss = read_report<LossReport>(report_values());
    eval_loss_ += static_cast<double>(loss.mean_loss) * static_cast<double>(loss.tokens);
    eval_tokens_ += std::llround(loss.tokens);
  }
  return {};
}

Result<void> Trainer::report_step(Nanos ended) {
  loss_ = read_report<LossReport>(report_values());
  norm_ = read_report<NormReport>(report_values() + 4);
  if (sink_ == nullptr) return {};
  const TrainSettings& settings = inputs_.settings;
  const std::int64_t step = pending_step_ + 1;
  return sink_->step(
      {.step = step,
       .loss = loss_.mean_loss,
       .tokens = std::llround(loss_.tokens),
       .seen_tokens = position_after(step).tokens,
       .grad_norm = norm_.norm,
       .clip_factor = norm_.clip_factor,
       .loss_scale = static_cast<double>(norm_.loss_scale) *
                     static_cast<double>(loss_scale_tokens(program_.config)),
       .non_finite = norm_.non_finite != 0,
       .learning_rate = learning_rate_at(settings.learning_rate, pending_step_, settings.steps),
       .duration = lap(ended)});
}

/// The position of the run after `steps` steps, including those of earlier runs.
TrainPosition Trainer::position_after(std::int64_t steps) const {
  const std::int64_t samples = (steps - inputs_.start.step) * program_.config.global_batch();
  return {.step = steps,
          .samples = inputs_.start.samples + samples,
          .tokens = inputs_.start.tokens + samples * program_.config.seq_len};
}

/// Call after settle(), when no step is in flight.
Result<TrainPosition> Trainer::position_now() {
  TrainPosition position = position_after(step_);
  if (amax_history_) {
    position.amax_history.resize(static_cast<std::size_t>(amax_history::elements(program_.config)));
    MFSDP_TRY(backend_->download(interpreter_->buffer_bytes(*amax_history_).data(),
                                 std::as_writable_bytes(std::span(position.amax_history))));
  }
  if (!loss_scale_) return position;
  LossScaleState& state = position.loss_scale.emplace();
  MFSDP_TRY(backend_->download(interpreter_->buffer_bytes(*loss_scale_).data(),
                               std::as_writable_bytes(std::span(&state, 1))));
  return position;
}

Nanos Trainer::lap(Nanos until) { return until - std::exchange(since_, until); }

// ---- between steps -----------------------------------------------------------------------------

/// Ranks whose class has no report get the step's from the reporting rank. A collective.
Result<void> Trainer::share_report() {
  if (programs_.size() == 1) return {};
  std::array<float, 8> values{};
  write_report(loss_, values.data());
  write_report(norm_, values.data() + 4);
  MFSDP_LET(reports, inputs_.gather->all_gather(rank_, {values.begin(), values.end()},
                                                [this] { return interpreter_->finish(); }));
  const std::vector<double>& report = reports.at(static_cast<std::size_t>(reporting_rank_));
  std::ranges::transform(report, values.begin(), [](double v) { return static_cast<float>(v); });
  loss_ = read_report<LossReport>(values.data());
  norm_ = read_report<NormReport>(values.data() + 4);
  return {};
}

/// Norms and checks of the last issued step. All ranks call this after the same steps.
Result<void> Trainer::look_inside() {
  const TrainSettings& settings = inputs_.settings;
  const std::int64_t done = pending_step_ + 1;
  const bool norms =
      settings.log_param_norms > 0 && is_logged(done, settings.log_param_norms, settings.steps);
  if (!norms && !settings.check_nan) return {};
  MFSDP_TRY(settle());
  MFSDP_TRY(share_report());
  if (norms) MFSDP_TRY(report_norms());
  return settings.check_nan ? refuse_non_finite() : Result<void>();
}

Result<void> Trainer::report_norms() {
  MFSDP_LET(own, squared_norms(*backend_, parameters_, loss_.inverse_tokens));
  MFSDP_LET(shares, inputs_.gather->all_gather(rank_, std::move(own),
                                               [this] { return interpreter_->finish(); }));
  if (sink_ == nullptr) return {};
  std::vector<ParameterNorm> norms;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    double weight = 0;
    double gradient = 0;
    for (const std::vector<double>& share : shares) {
      weight += share.at(2 * p);
      gradient += share.at(2 * p + 1);
    }
    ParameterNorm& norm = norms.emplace_back();
    norm.name = parameters_[p].parameter->name;
    norm.weight = std::sqrt(weight);
    if (parameters_[p].group->requires_grad) norm.gradient = std::sqrt(gradient);
  }
  return sink_->norms(pending_step_ + 1, norms);
}

/// Checks in the order of time: the loss of the forward pass, gradients in backward order, their
/// norm, weights after the update. All values before the first finding were finite.
Result<void> Trainer::refuse_non_finite() {
  const std::string step = fmt::format("step {}", pending_step_ + 1);
  if (!std::isfinite(loss_.mean_loss))
    return refuse_first(Finding{.order = 0,
                                .error = {.where = step + ", loss",
                                          .what = fmt::format("is {}, though all weights were "
                                                              "finite: it arose in the forward "
                                                              "pass",
                                                              value_text(loss_.mean_loss)),
                                          .fault = Fault::environment}});
  // If the scale was too large, the gradient is not at fault: the step was skipped.
  const bool overflows = loss_scale_ && norm_.non_finite != 0;
  if (overflows)
    return refuse_weights(pending_step_ + 1,
                          "though its gradient overflowed, and nothing is "
                          "updated then");
  MFSDP_LET(gradient, find_non_finite_gradient(*backend_, parameters_, writers_));
  std::optional<Finding> found;
  if (gradient) {
    const GradientWriter& writer = writers_[gradient->parameter];
    found = {
        .order = writer.position,
        .error = {.where = step + ", " + parameters_[gradient->parameter].parameter->name,
                  .what = fmt::format("its gradient is {} at element {}, the first that is "
                                      "not finite in backward order (op {}); loss and weights "
                                      "were finite",
                                      value_text(gradient->value), gradient->element, writer.op),
                  .fault = Fault::environment}};
  }
  MFSDP_TRY(refuse_first(found));
  if (norm_.non_finite != 0)
    return refuse_first(Finding{.order = 0,
                                .error = {.where = step + ", gradient norm",
                                          .what = fmt::format("is {}, though all gradients are "
                                                              "finite: their squares overflow",
                                                              value_text(norm_.norm)),
                                          .fault = Fault::environment}});
  return refuse_weights(pending_step_ + 1, "after the update, though its gradient was finite");
}

Result<void> Trainer::refuse_weights(std::int64_t step, std::string_view when) {
  MFSDP_LET(weight, find_non_finite_weight(*backend_, parameters_));
  if (!weight) return refuse_first(std::nullopt);
  return refuse_first(Finding{
      .order = static_cast<std::int64_t>(weight->parameter),
      .error = {
          .where = fmt::format("step {}, {}", step, parameters_[weight->parameter].parameter->name),
          .what = fmt::format("its weight is {} at element {} {}", value_text(weight->value),
                              weight->element, when),
          .fault = Fault::environment}});
}

/// The reporting rank delivers the step's report before this collective. So if a rank found something, the run
/// ends with all of its steps reported.
Result<void> Trainer::refuse_first(const std::optional<Finding>& found) {
  constexpr double kNothing = std::numeric_limits<double>::infinity();
  const double own = found ? static_cast<double>(found->order) : kNothing;
  MFSDP_LET(orders,
            inputs_.gather->all_gather(rank_, {own}, [this] { return interpreter_->finish(); }));
  const auto first = std::ranges::min_element(orders);
  if (!found || first - orders.begin() != rank_) return {};
  return tl::unexpected<Error>(found->error);
}

/// Training pauses meanwhile, as in an evaluation.
Result<void> Trainer::keep() {
  MFSDP_TRY(settle());
  if (inputs_.keeper == nullptr || kept_ == step_) return {};
  static_cast<void>(lap(backend_->now()));
  const RestingRank rank{
      .program = program_, .backend = *backend_, .rank = rank_, .parameters = parameters_};
  MFSDP_LET(position, position_now());
  MFSDP_LET(written, inputs_.keeper->keep(rank, position, *inputs_.gather,
                                          [this] { return interpreter_->finish(); }));
  kept_ = step_;
  const Nanos duration = lap(backend_->now());
  if (sink_ == nullptr) return {};
  return sink_->saved({.after_step = step_, .written = written, .duration = duration});
}

Result<bool> Trainer::has_turn() {
  return inputs_.stop == nullptr ? Result<bool>(true) : inputs_.stop->runs(turn_++);
}

/// Gives out the logits that the evaluation's microbatch has just written, once in a run.
Result<void> Trainer::give_logits() {
  const TakeLogits take = std::exchange(inputs_.take_logits, {});
  if (!take || rank_ != reporting_rank_) return {};
  MFSDP_TRY(settle());
  MFSDP_LET(logits, find_eval_logits(program_));
  std::vector<std::byte> values(static_cast<std::size_t>(logits.span_bytes()));
  const std::byte* buffer = interpreter_->buffer_bytes(logits.buffer).data();
  MFSDP_TRY(backend_->download(buffer + logits.offset, values));
  close_rows(logits, values);
  cap_logits(program_.config.model, logits.dtype, values);
  return take({.dtype = logits.dtype, .shape = logits.shape, .values = values});
}

/// Training pauses meanwhile: the host waits for all streams before and after. False if the stop
/// point ends the run: an incomplete evaluation is not reported.
Result<bool> Trainer::evaluate() {
  MFSDP_TRY(settle());
  static_cast<void>(lap(backend_->now()));
  evaluates_ = true;
  microbatch_ = 0;
  eval_loss_ = 0;
  eval_tokens_ = 0;
  const std::int64_t batches = eval_batches(program_.config, inputs_.settings.eval_samples);
  for (std::int64_t i = 0; i < batches; ++i) {
    MFSDP_LET(runs, has_turn());
    if (!runs) return false;
    MFSDP_TRY(interpreter_->run(PlanRole::eval));
    pending_ = Pending::evaluation;
    if (i == 0) MFSDP_TRY(give_logits());
  }
  MFSDP_TRY(settle());
  evaluates_ = false;
  const Nanos duration = lap(backend_->now());
  if (sink_ == nullptr) return true;
  const auto tokens = static_cast<double>(eval_tokens_);
  MFSDP_TRY(sink_->evaluation({.after_step = step_,
                               .loss = eval_tokens_ == 0 ? 0 : eval_loss_ / tokens,
                               .tokens = eval_tokens_,
                               .duration = duration}));
  return true;
}

Result<void> Trainer::run() {
  since_ = backend_->now();
  auto outcome = run_steps();
  if (outcome || pending_ != Pending::step) return outcome;
  // The run failed in a step after one whose report may have arrived but was not taken.
  static_cast<void>(interpreter_->finish());
  if (report_ && report_has_come() && interpreter_->copied_whole(*report_))
    static_cast<void>(take_report(backend_->now()));
  return outcome;
}

Result<void> Trainer::run_steps() {
  const TrainSettings& settings = inputs_.settings;
  if (settings.check_nan && step_ < settings.steps)
    MFSDP_TRY(refuse_weights(step_ + 1, "before the step"));
  // If no step is left, the resumed state is evaluated as it is.
  if (inputs_.eval_data != nullptr && step_ >= settings.steps) MFSDP_TRY(evaluate());
  while (step_ < settings.steps) {
    MFSDP_LET(runs, has_turn());
    if (!runs) break;
    microbatch_ = 0;
    MFSDP_TRY(interpreter_->run(PlanRole::train));
    pending_ = Pending::step;
    pending_step_ = step_++;
    MFSDP_TRY(look_inside());
    if (inputs_.eval_data != nullptr &&
        (is_due(settings.eval_every, step_) || step_ == settings.steps)) {
      MFSDP_LET(whole, evaluate());
      if (!whole) break;
    }
    if (inputs_.keeper != nullptr && inputs_.keeper->is_due(step_)) MFSDP_TRY(keep());
  }
  return keep();
}

}  // namespace mfsdp
