// The rules of DeepSpeedZeroOptimizer (deepspeed/runtime/zero/stage_1_and_2.py, 0.19.6) in bf16, with
// contiguous_gradients, reduce_scatter and use_multi_rank_bucket_allreduce, its defaults:
//
//   weights    bf16, whole on every rank, in one flat buffer (deepspeed_parts.hpp). Each rank has an
//              fp32 copy of its part, and the moments of FusedAdam
//   bucket     one buffer of reduce_bucket_size elements; two with overlap_comm. Allocated with the
//              first gradient of a backward, freed after its reductions. A larger gradient is reduced
//              where it is
//   reduction  when the next gradient does not fit: divides the bucket by the ranks and all-reduces
//              it. With elements of several ranks, in a copy, of which a rank copies its own back. Then
//              the rank copies the gradients that its part shares, whole, into another buffer
//   ZeRO-1     gradients stay in bf16 until the last microbatch ended; then they are copied into
//              buckets in the order of modules. A larger one of another rank's part lives until all
//              are reduced
//   ZeRO-2     each gradient is copied into the bucket when it is made, in every microbatch. Later
//              microbatches have a second buffer of the part's gradients, which is added to the first
//   overlap_comm   reductions run on a stream of their own; without it the compute stream waits
//   host       waits for the GPU at the end of each microbatch (its throughput timer), and for the
//              check for overflow
//   optimizer  checks for overflow in fp32 copies, one gradient at a time; the norm in fp64 copies;
//              gradients become one flat bf16 tensor, then fp32. One all-gather of all weights, in
//              place: allgather_bucket_size has no effect where PyTorch has all_gather_into_tensor
#include "sim/engines/deepspeed_states.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/block.hpp"
#include "sim/engines/deepspeed_parts.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/parameter_order.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

struct StateParameter {
  ParameterPlace place;
  Weight weight;
  std::optional<Tensor> gradient{};
};

std::vector<std::int64_t> sizes_of(const std::vector<StateParameter>& parameters) {
  std::vector<std::int64_t> sizes;
  for (const StateParameter& parameter : parameters) sizes.push_back(parameter.weight.elements());
  return sizes;
}

std::vector<StateParameter> parameters_of(const ModelShape& model) {
  std::vector<StateParameter> parameters;
  for (const ParameterPlace place : module_order(model))
    parameters.push_back({.place = place, .weight = weight_at(model, place)});
  return parameters;
}

class DeepSpeedStates {
 public:
  DeepSpeedStates(EngineKind engine, const PlanConfig& config, const Meta& meta,
                  const EngineOptions& options)
      : config_(config),
        shards_gradients_(config.strategy == Strategy::optim_grads),
        bucket_size_(options.number(engine, "reduce_bucket_size")),
        overlaps_(shards_gradients_ && options.is_on(engine, "overlap_comm")),
        step_(config, meta),
        units_(add_units()),
        parameters_(parameters_of(config_.model)),
        parts_(sizes_of(parameters_), config.mesh.size(Axis::dp_shard)),
        rank_((parts_.used() - 1) / parts_.part()),
        block_(eager_block(step_, config_, {.made = [this](Tensor tensor) { made(tensor); }})),
        ends_(step_, config_, eager_functions(step_, config_),
              [this](Tensor tensor) { made(tensor); }) {
    for (const ParameterPlace place : ready_order(config_.model))
      for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (parameters_[i].place == place) ready_.push_back(i);
  }

  EnginePlan run() {
    set_up();
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { optimizer(); },
                         !shards_gradients_);
    step_.add_padding(parts_.padded() - parts_.used());
    return step_.finish();
  }

 private:
  // ---- Before the first step ---------------------------------------------------------------

  std::vector<UnitId> add_units() {
    std::vector<UnitId> units{step_.add_unit("root", UnitKind::embedding_and_head)};
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
      units.push_back(step_.add_unit("layers." + std::to_string(layer), UnitKind::block));
    return units;
  }

  void at_root(Phase phase) { step_.at(units_.front(), phase); }

  void set_up() {
    std::vector<Tensor> initial;
    for (const StateParameter& parameter : parameters_) {
      step_.at(units_[parameter.place.unit], Phase::input);
      initial.push_back(step_.once(parameter.weight.name + "_initial",
                                   parameter.weight.elements() * kHalf,
                                   Category::unsharded_weight));
    }
    at_root(Phase::input);
    step_.keep("weights", parts_.padded() * kHalf, Category::model_weight);
    for (const Tensor tensor : initial) step_.free_once(tensor);
    const Tensor copy = step_.once("part", parts_.part() * kHalf, Category::unsharded_weight);
    step_.keep("main_weights", parts_.part() * kFull, Category::main_weight);
    step_.free_once(copy);
    step_.free_once(step_.once("zero_gradients", parts_.part() * kFull, Category::main_grad));
    ends_.keep_inputs();
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Turn turn) {
    turn_ = turn;
    at_root(Phase::forward);
    std::vector<Tensor> states{ends_.embed()};
    for (std::size_t layer = 0; layer + 1 < units_.size(); ++layer) {
      step_.at(units_[layer + 1], Phase::forward);
      states.push_back(block_->forward(layer, states.back()));
    }
    at_root(Phase::forward);
    ends_.forward();
    backward(states);
    if (shards_gradients_)
      end_reductions();
    else if (turn.last)
      reduce_all();
    if (!turn.last) step_.host_wait(step_.record(compute));
  }

  void backward(const std::vector<Tensor>& states) {
    next_ready_ = 0;
    at_root(Phase::backward);
    ends_.begin_backward();
    const LlamaEnds::Gradients head = ends_.backward(states.back());
    Tensor gradient = head.state;
    for (std::size_t layer = units_.size() - 1; layer-- > 0;) {
      step_.at(units_[layer + 1], Phase::backward);
      gradient = block_->backward(layer, states[layer], gradient).input;
    }
    at_root(Phase::backward);
    const std::vector<Tensor> gradients = ends_.embedding_backward(gradient, head);
    if (config_.model.tied_embeddings) made(gradients.front());
    ends_.finish();
  }

  // ---- Gradients ---------------------------------------------------------------------------

  /// The hook of the next parameter.
  void made(Tensor gradient) {
    // A tied head's gradient is a part of the embedding's, which is made later.
    if (config_.model.tied_embeddings && next_ready_ == 0 && !skipped_head_) {
      skipped_head_ = true;
      return;
    }
    const std::size_t index = ready_[next_ready_++];
    if (next_ready_ == ready_.size()) skipped_head_ = false;
    step_.host_work(kReleaseHook);
    StateParameter& parameter = parameters_[index];
    begin_bucket();
    if (shards_gradients_) {
      parameter.gradient = gradient;
      add_to_bucket(index);
    } else if (turn_.first) {
      parameter.gradient = gradient;
    } else {
      step_.memory_bound(KernelKind::accumulate, parameter.weight.name + "_accumulate",
                         3 * parameter.weight.elements() * kHalf);
      step_.free(gradient);
    }
  }

  void begin_bucket() {
    if (!buffers_.empty()) return;
    const std::size_t count = overlaps_ ? 2 : 1;
    while (buffers_.size() < count)
      buffers_.push_back(
          step_.allocate("reduce_bucket", bucket_size_ * kHalf, Category::unsharded_grad));
  }

  void add_to_bucket(std::size_t index) {
    StateParameter& parameter = parameters_[index];
    const std::int64_t elements = parameter.weight.elements();
    if (filled_ + elements > bucket_size_) reduce_bucket();
    if (elements <= bucket_size_) {
      step_.memory_bound(KernelKind::cast, parameter.weight.name + "_to_bucket",
                         2 * elements * kHalf);
      step_.free(*std::exchange(parameter.gradient, std::nullopt));
    }
    filled_ += elements;
    bucket_.push_back(index);
  }

  /// The stream on which reductions and their copies run.
  [[nodiscard]] StreamRole reducing() const { return overlaps_ ? reduce_scatter : compute; }

  void reduce_bucket() {
    if (bucket_.empty()) return;
    const Phase before = step_.phase();
    step_.set_phase(Phase::reduce);
    step_.host_work(kReduceHook);
    if (overlaps_) {
      step_.wait(reduce_scatter, step_.record(compute));
      if (reduced_) step_.wait(compute, *reduced_);
    }
    step_.memory_bound(KernelKind::accumulate, "divide", 2 * filled_ * kHalf, reducing());
    std::vector<DeepSpeedParts::Slice> sent;
    std::int64_t elements = 0;
    for (const DeepSpeedParts::Slice& slice : parts_.slices(bucket_)) {
      sent.push_back(slice);
      elements += slice.elements;
      if (elements <= bucket_size_) continue;
      all_reduce(std::exchange(sent, {}), std::exchange(elements, 0));
    }
    if (!sent.empty()) all_reduce(sent, elements);
    for (const std::size_t index : bucket_) take_own(index);
    bucket_.clear();
    filled_ = 0;
    if (overlaps_) reduced_ = step_.record(reduce_scatter);
    step_.set_phase(before);
  }

  void all_reduce(const std::vector<DeepSpeedParts::Slice>& slices, std::int64_t elements) {
    std::optional<Tensor> joined;
    if (slices.size() > 1) {
      joined =
          step_.allocate("joined_slices", elements * kHalf, Category::unsharded_grad, reducing());
      step_.memory_bound(KernelKind::cast, "join_slices", 2 * elements * kHalf, reducing());
    }
    if (!overlaps_) step_.wait(reduce_scatter, step_.record(compute));
    step_.collective(CollectiveKind::all_reduce, "all_reduce", elements, DType::bf16);
    if (!overlaps_) step_.wait(compute, step_.record(reduce_scatter));
    if (!joined) return;
    for (const DeepSpeedParts::Slice& slice : slices)
      if (slice.rank == rank_)
        step_.memory_bound(KernelKind::cast, "copy_own_slice", 2 * slice.elements * kHalf,
                           reducing());
    step_.free(*joined);
  }

  /// Copies the reduced gradient of a parameter that the rank's part shares. A gradient that was too
  /// large for the bucket is freed.
  void take_own(std::size_t index) {
    StateParameter& parameter = parameters_[index];
    if (parts_.has(rank_, index)) {
      if (!own_)
        own_ = step_.allocate("own_gradients", own_elements() * kHalf, Category::main_grad,
                              reducing());
      step_.memory_bound(KernelKind::cast, parameter.weight.name + "_own",
                         2 * parameter.weight.elements() * kHalf, reducing());
    }
    if (!parameter.gradient) return;
    const Tensor gradient = *std::exchange(parameter.gradient, std::nullopt);
    if (parts_.has(rank_, index) || shards_gradients_)
      step_.free(gradient);
    else
      of_others_.push_back(gradient);
  }

  [[nodiscard]] std::int64_t own_elements() const {
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parts_.has(rank_, i)) elements += parameters_[i].weight.elements();
    return elements;
  }

  /// ZeRO-1, after the last backward.
  void reduce_all() {
    at_root(Phase::reduce);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      step_.host_work(kReleaseHook);
      add_to_bucket(i);
    }
    end_reductions();
  }

  void end_reductions() {
    at_root(Phase::reduce);
    reduce_bucket();
    if (overlaps_) {
      step_.host_wait(*reduced_);
      step_.wait(compute, *std::exchange(reduced_, std::nullopt));
    }
    for (const Tensor buffer : buffers_) step_.free(buffer);
    buffers_.clear();
    for (const Tensor gradient : of_others_) step_.free(gradient);
    of_others_.clear();
    const Tensor own = *std::exchange(own_, std::nullopt);
    if (!shards_gradients_ || turn_.first) {
      gradients_ = own;
      return;
    }
    step_.memory_bound(KernelKind::accumulate, "accumulate", 3 * own_elements() * kHalf);
    step_.free(own);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    at_root(Phase::optimizer);
    step_.launch_by(Launcher::hook);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (const std::int64_t elements = parts_.shared(rank_, i); elements > 0)
        check_overflow(elements);
    step_.all_reduce_between(compute, "overflow", 1, DType::uint8);
    step_.host_wait(step_.record(compute));  // the host reads the flag
    step_.host_work(kDeepSpeedAfterOverflow);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (const std::int64_t elements = parts_.shared(rank_, i); elements > 0) norm(elements);
    step_.all_reduce_between(compute, "norm", 1, DType::fp32);
    step_.host_work(kDeepSpeedAfterNorm);
    const std::int64_t part = parts_.part();
    const Tensor flat = step_.allocate("flat_gradients", part * kHalf, Category::main_grad);
    step_.memory_bound(KernelKind::cast, "flatten", 2 * part * kHalf);
    const Tensor wide = step_.allocate("gradients_fp32", part * kFull, Category::main_grad);
    step_.memory_bound(KernelKind::cast, "widen", part * (kHalf + kFull));
    step_.free({flat, gradients_});
    step_.memory_bound(KernelKind::accumulate, "unscale", 2 * part * kFull);
    for (const char* moment : {"exp_avg", "exp_avg_sq"})
      step_.keep(moment, part * kFull, Category::optimizer_state);
    constexpr std::int64_t kUpdate = 7 * kFull;  // reads all four, writes all but the gradient
    step_.memory_bound(KernelKind::update, "adam",
                       Traffic::at_share(part * kUpdate, kShareOfUpdate));
    step_.free(wide);
    step_.memory_bound(KernelKind::cast, "to_weights", part * (kFull + kHalf));
    step_.wait(all_gather, step_.record(compute));
    step_.collective(CollectiveKind::all_gather, "all_gather", part, DType::bf16);
    step_.wait(compute, step_.record(all_gather));
    step_.launch_by(Launcher::operators);
  }

  /// x.float(), isnan(), isinf(), logical_or(), float(), max().
  void check_overflow(std::int64_t elements) {
    const auto allocate = [&](std::string_view name, std::int64_t element) {
      return step_.allocate(name, elements * element, Category::workspace);
    };
    const Tensor wide = allocate("overflow_fp32", kFull);
    step_.memory_bound(KernelKind::cast, "overflow_fp32", elements * (kHalf + kFull));
    const Tensor nan = allocate("is_nan", 1);
    step_.memory_bound(KernelKind::accumulate, "is_nan", elements * (kFull + 1));
    const Tensor absolute = allocate("absolute", kFull);
    step_.memory_bound(KernelKind::accumulate, "absolute", elements * 2 * kFull);
    const Tensor infinite = allocate("is_inf", 1);
    step_.memory_bound(KernelKind::accumulate, "is_inf", elements * (kFull + 1));
    step_.free(absolute);
    const Tensor either = allocate("is_either", 1);
    step_.memory_bound(KernelKind::accumulate, "is_either", elements * 3);
    const Tensor flags = allocate("either_fp32", kFull);
    step_.memory_bound(KernelKind::cast, "either_fp32", elements * (kFull + 1));
    step_.memory_bound(KernelKind::norm_partial, "overflow_max", elements * kFull);
    step_.free({flags, wide, nan, infinite, either});
  }

  /// vector_norm(gradient.double()).
  void norm(std::int64_t elements) {
    const Tensor wide =
        step_.allocate("gradient_fp64", elements * kNormElement, Category::workspace);
    step_.memory_bound(KernelKind::cast, "gradient_fp64",
                       Traffic::at_share(elements * (kHalf + kNormElement), kShareOfWideCasts));
    step_.memory_bound(KernelKind::norm_partial, "gradient_norm", elements * kNormElement);
    step_.free(wide);
  }

  PlanConfig config_;
  bool shards_gradients_;
  std::int64_t bucket_size_;  ///< elements
  bool overlaps_;
  StepBuilder step_;
  std::vector<UnitId> units_;               ///< root and blocks
  std::vector<StateParameter> parameters_;  ///< in the order of modules
  DeepSpeedParts parts_;
  std::int64_t rank_;  ///< the last one with parameters
  std::unique_ptr<LlamaBlock> block_;
  LlamaEnds ends_;
  std::vector<std::size_t> ready_{};  ///< positions of parameters, as backward makes gradients
  std::size_t next_ready_ = 0;
  bool skipped_head_ = false;
  Turn turn_{};
  std::vector<Tensor> buffers_{};
  std::vector<std::size_t> bucket_{};
  std::int64_t filled_ = 0;  ///< elements of the bucket
  std::optional<Mark> reduced_{};
  std::optional<Tensor> own_{};      ///< reduced gradients of the rank's part, of this microbatch
  Tensor gradients_{};               ///< of the step
  std::vector<Tensor> of_others_{};  ///< ZeRO-1: gradients of other ranks' parts, too large for it
};

}  // namespace

EnginePlan deepspeed_states_plan(EngineKind engine, const PlanConfig& config, const Meta& meta,
                                 const EngineOptions& options) {
  return DeepSpeedStates(engine, config, meta, options).run();
}

}  // namespace mfsdp
