// The rules of Megatron-Core's DistributedDataParallel and DistributedOptimizer with
// overlap_grad_reduce, overlap_param_gather and average_in_collective, as performance recipes have
// them:
//
//   buffers    all weights in one, bf16; all gradients in another, of --grad-dtype, zeroed when a
//              step begins; cut into buckets (mcore_buffer.hpp)
//   gather     in place; the first bucket's when the host comes to its first module, each other's
//              when it has waited for the one before. In a step's first microbatch alone
//   reduction  of a bucket, in place, as soon as the last microbatch has made all its gradients;
//              all of them are waited for after backward
//   optimizer  has a part of each bucket in fp32; gradients that are bf16 are cast for it. What it
//              writes is copied into the weights' buffer
//
// Both kinds of collectives run in one group, hence on one stream of NCCL: gathers have ended long
// before reductions begin, so that two streams here are the same.
#include "sim/engines/mcore.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/mcore_block.hpp"
#include "sim/engines/mcore_ends.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

/// What is under way of a bucket.
struct BucketState {
  bool gathers = false;
  std::optional<Mark> gathered{};  ///< not waited for yet
  std::size_t ready = 0;           ///< weights whose gradients are there
  std::optional<Mark> reduced{};
};

std::vector<UnitId> layer_units(StepBuilder& step, std::int64_t layers) {
  std::vector<UnitId> units;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    units.push_back(step.add_unit("layers." + std::to_string(layer), UnitKind::block));
  return units;
}

class Mcore {
 public:
  Mcore(EngineKind engine, const PlanConfig& config, const Meta& meta)
      : config_(config),
        ranks_(config.mesh.world_size()),
        gradient_type_(size_of(config.grad_dtype)),
        step_(config, meta),
        root_(step_.add_unit("root", UnitKind::embedding_and_head)),
        units_(layer_units(step_, config.model.layers)),
        hooks_{.use = [this](std::size_t weight) { use(weight); },
               .ready = [this](std::size_t weight) { ready(weight); }},
        modules_(step_, config_, hooks_),
        block_(step_, config_, modules_, hooks_),
        ends_(step_, config_, modules_, hooks_,
              engine == EngineKind::mcore ? VocabularyLoss::fused : VocabularyLoss::not_fused),
        weights_(mcore_weights(config.model, root_, units_)),
        buffer_(parameter_buffer(weights_.all, ranks_)),
        buckets_(buffer_.buckets.size()) {}

  EnginePlan run() {
    set_up();
    const std::int64_t count = config_.microbatches;
    step_.begin_segment("first", 1, 1);
    microbatch(true, count == 1);
    if (count > 2) {
      step_.begin_segment("next", count - 2, 1);
      microbatch(false, false);
    }
    if (count > 1) {
      step_.begin_segment("last", 1, 1);
      microbatch(false, true);
    }
    step_.begin_segment("optimizer", 1, 0);
    optimizer();
    step_.add_padding(buffer_.padding());
    return step_.finish();
  }

 private:
  // ---- Before the first step ---------------------------------------------------------------

  /// Modules make their weights one by one; the buffer then takes them over, last ones first.
  void set_up() {
    std::vector<Tensor> initial;
    for (const BufferedWeight& weight : buffer_.weights) {
      step_.at(weight.unit, Phase::input);
      initial.push_back(step_.once(weight.name + "_initial", weight.elements() * kHalf,
                                   Category::unsharded_weight));
    }
    step_.at(root_, Phase::input);
    step_.keep("weights", buffer_.elements * kHalf, Category::model_weight);
    step_.keep("gradients", buffer_.elements * gradient_type_, Category::main_grad);
    for (std::size_t i = initial.size(); i-- > 0;) step_.free_once(initial[i]);
    for (const std::size_t i : optimizer_order()) {
      const BufferedWeight& weight = buffer_.weights[i];
      const std::int64_t owned = buffer_.owned(i, ranks_);
      step_.at(weight.unit, Phase::input);
      const Tensor copy =
          step_.once(weight.name + "_part", owned * kHalf, Category::unsharded_weight);
      step_.keep(weight.name + "_main", owned * kFull, Category::main_weight);
      step_.free_once(copy);
    }
    step_.at(root_, Phase::input);
    ends_.keep_inputs();
  }

  /// Those that rank 0 has part of: matrices, which decay, before vectors, either from the last.
  [[nodiscard]] std::vector<std::size_t> optimizer_order() const {
    std::vector<std::size_t> order;
    for (const bool vectors : {false, true})
      for (std::size_t i = buffer_.weights.size(); i-- > 0;)
        if (buffer_.weights[i].is_vector() == vectors && buffer_.owned(i, ranks_) > 0)
          order.push_back(i);
    return order;
  }

  // ---- Gathers -----------------------------------------------------------------------------

  void gather(std::size_t bucket) {
    BucketState& of = buckets_[bucket];
    of.gathers = true;
    step_.wait(all_gather, step_.record(compute));
    step_.collective(CollectiveKind::all_gather, "all_gather",
                     buffer_.buckets[bucket].elements() / ranks_, DType::bf16);
    of.gathered = step_.record(all_gather);
  }

  void use(std::size_t weight) {
    if (!gathers_ || ranks_ == 1) return;
    const std::size_t bucket = buffer_.weights[weight].bucket;
    if (!buckets_[bucket].gathers) gather(bucket);
    if (!buckets_[bucket].gathered) return;
    step_.wait(compute, *std::exchange(buckets_[bucket].gathered, std::nullopt));
    if (bucket > 0 && !buckets_[bucket - 1].gathers) gather(bucket - 1);
  }

  // ---- Reductions --------------------------------------------------------------------------

  void ready(std::size_t weight) {
    if (!reduces_ || ranks_ == 1) return;
    const std::size_t bucket = buffer_.weights[weight].bucket;
    BucketState& of = buckets_[bucket];
    if (++of.ready < buffer_.buckets[bucket].weights) return;
    const Phase before = step_.phase();
    step_.set_phase(Phase::reduce);
    step_.wait(reduce_scatter, step_.record(compute));
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter",
                     buffer_.buckets[bucket].elements() / ranks_, config_.grad_dtype);
    of.reduced = step_.record(reduce_scatter);
    step_.set_phase(before);
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(bool first, bool last) {
    gathers_ = first;
    reduces_ = last;
    step_.at(root_, Phase::forward);
    if (first)
      step_.memory_bound(KernelKind::zero_padding, "zero_gradients",
                         buffer_.elements * gradient_type_);
    std::vector<Tensor> states{ends_.embed(weights_)};
    for (std::size_t layer = 0; layer < units_.size(); ++layer) {
      step_.at(units_[layer], Phase::forward);
      states.push_back(block_.forward(weights_.layers[layer], states.back()));
    }
    step_.at(root_, Phase::forward);
    ends_.forward(weights_);
    gathers_ = false;
    backward(states);
    if (last && ranks_ > 1)
      for (BucketState& bucket : buckets_) step_.wait(compute, *bucket.reduced);
  }

  void backward(const std::vector<Tensor>& states) {
    step_.at(root_, Phase::backward);
    Tensor gradient = ends_.backward(weights_, states.back());
    for (std::size_t layer = units_.size(); layer-- > 0;) {
      step_.at(units_[layer], Phase::backward);
      gradient = block_.backward(weights_.layers[layer], states[layer], gradient);
    }
    step_.at(root_, Phase::backward);
    ends_.embedding_backward(weights_, gradient);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    const std::vector<std::size_t> order = optimizer_order();
    const std::vector<Tensor> casts = cast_gradients(order);
    std::int64_t elements = 0;
    for (const std::size_t i : order) {
      const BufferedWeight& weight = buffer_.weights[i];
      const std::int64_t owned = buffer_.owned(i, ranks_);
      elements += owned;
      step_.at(weight.unit, Phase::optimizer);
      for (const char* moment : {"_exp_avg", "_exp_avg_sq"})
        step_.keep(weight.name + moment, owned * kFull, Category::optimizer_state);
    }
    step_.at(root_, Phase::optimizer);
    update_weights(step_, config_, elements, order.size());
    for (const std::size_t i : order) {
      const BufferedWeight& weight = buffer_.weights[i];
      step_.at(weight.unit, Phase::optimizer);
      step_.memory_bound(KernelKind::cast, weight.name + "_to_buffer",
                         buffer_.owned(i, ranks_) * (kFull + kHalf));
    }
    for (const Tensor cast : casts) step_.free(cast);
  }

  /// They are freed before the next step's first microbatch, between which nothing is allocated.
  [[nodiscard]] std::vector<Tensor> cast_gradients(const std::vector<std::size_t>& order) {
    std::vector<Tensor> casts;
    if (gradient_type_ == kFull) return casts;
    for (const std::size_t i : order) {
      const BufferedWeight& weight = buffer_.weights[i];
      const std::int64_t owned = buffer_.owned(i, ranks_);
      step_.at(weight.unit, Phase::optimizer);
      casts.push_back(
          step_.allocate(weight.name + "_gradient", owned * kFull, Category::main_grad));
      step_.memory_bound(KernelKind::cast, weight.name + "_gradient", owned * (kFull + kHalf));
    }
    return casts;
  }

  PlanConfig config_;
  std::int64_t ranks_;
  std::int64_t gradient_type_;  ///< bytes of an element
  StepBuilder step_;
  UnitId root_;
  std::vector<UnitId> units_;  ///< of layers
  WeightHooks hooks_;
  TeModules modules_;
  McoreBlock block_;
  McoreEnds ends_;
  McoreWeights weights_;
  ParameterBuffer buffer_;
  std::vector<BucketState> buckets_;
  bool gathers_ = false;  ///< forward of a step's first microbatch
  bool reduces_ = false;  ///< backward of its last
};

}  // namespace

EnginePlan mcore_plan(EngineKind engine, const PlanConfig& config, const Meta& meta) {
  return Mcore(engine, config, meta).run();
}

}  // namespace mfsdp
