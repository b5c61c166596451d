// The rules of Megatron-Core's DistributedDataParallel and DistributedOptimizer with
// overlap_grad_reduce, overlap_param_gather and average_in_collective, as in performance recipes:
//
//   buffers    one for all weights, bf16; one for all gradients, of --grad-dtype, zeroed at the
//              beginning of a step; both divided into buckets (mcore_buffer.hpp). Expert-parallel
//              experts have two of their own, for the ranks with the same experts (expt_dp)
//   gather     in place; the first bucket's when the host reaches its first module, the others'
//              after the wait for the previous one. Only in a step's first microbatch
//   reduction  of a bucket, in place, as soon as the last microbatch has computed all its
//              gradients; the wait for all of them follows backward
//              Without overlap_param_gather all buckets are gathered after the optimizer, and without
//              overlap_grad_reduce a buffer is one bucket, reduced after backward
//   tp, cp     buffers have one rank's part of the weights; those that are whole on all ranks of tp are
//              summed over it where rows are cut, at once. Buckets are shared by the ranks of cp, too
//   pipelines  a stage has its chunks' weights, and each chunk buffers of its own; those of later stages
//              and chunks are one bucket each (mcore_stage.hpp, mcore_pipeline.hpp)
//   optimizer  has a shard of each bucket in fp32; bf16 gradients are cast for it. Its results are
//              copied into the weights' buffer
//
// Both kinds of collectives run in one group, hence on one stream of NCCL. Gathers end long before
// reductions begin, so the two streams here are equivalent.
#include "sim/engines/mcore.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/mcore_block.hpp"
#include "sim/engines/mcore_ends.hpp"
#include "sim/engines/mcore_parallel.hpp"
#include "sim/engines/mcore_pipeline.hpp"
#include "sim/engines/mcore_rows.hpp"
#include "sim/engines/rank_model.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

/// State of a bucket's collectives.
struct BucketState {
  bool gathers = false;
  std::optional<Mark> gathered{};  ///< pending wait
  std::size_t ready = 0;           ///< weights with a gradient
  std::optional<Mark> reduced{};
};

/// Weights of a chunk that are on the same ranks share buffers. There are two such sets:
/// expert-parallel experts, and all other weights.
struct Side {
  std::string prefix;  ///< of names
  std::size_t chunk = 0;
  RankGroup group = RankGroup::all;
  std::int64_t ranks = 1;
  ParameterBuffer buffer{};
  std::vector<BucketState> buckets{};
};

/// A weight and the part of it that rank 0's optimizer has.
struct Owned {
  const BufferedWeight& weight;
  std::int64_t elements = 0;
};

/// A weight's location: its buffer, and its index there.
struct Place {
  std::size_t side = 0;
  std::size_t weight = 0;
};

std::vector<UnitId> layer_units(StepBuilder& step, std::int64_t layers) {
  std::vector<UnitId> units;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    units.push_back(step.add_unit("layers." + std::to_string(layer), UnitKind::block));
  return units;
}

/// A stage's model: its ends are not in one place.
PlanConfig config_of_stage(PlanConfig config, const McoreStage& stage) {
  if (stage.is_pipelined()) config.model.tied_embeddings = false;
  return config;
}

class Mcore {
 public:
  Mcore(EngineKind engine, const PlanConfig& config, const Meta& meta, const EngineOptions& options,
        std::int64_t stage)
      : stage_(mcore_stage(engine, config, options, stage)),
        config_(config_of_stage(config_of_rank(config, kMegatronVocabulary), stage_)),
        parallel_(mcore_parallel(engine, config, options)),
        gradient_type_(size_of(config.grad_dtype)),
        ties_ends_(stage_.is_pipelined() && config.model.tied_embeddings),
        step_(config, meta, stage),
        root_(step_.add_unit("root", UnitKind::embedding_and_head)),
        units_(layer_units(step_, config.model.layers)),
        hooks_{.use = [this](std::size_t weight) { use(weight); },
               .ready = [this](std::size_t weight) { ready(weight); }},
        modules_(step_, config_, hooks_),
        rows_(step_, parallel_, llama_sizes(config_)),
        block_(step_, config_, parallel_, modules_, rows_, hooks_),
        ends_(step_, config_, modules_, rows_, hooks_,
              traits_of(engine).fuses_loss ? VocabularyLoss::fused : VocabularyLoss::not_fused),
        weights_(mcore_weights(config_, stage_, root_, units_)) {
    if (parallel_.tp > 1 || parallel_.cp > 1) step_.add_spare_stream("beside_gemms");
    place_weights();
  }

  EnginePlan run() {
    set_up();
    states_.resize(stage_.chunks.size());
    if (stage_.is_pipelined())
      pipeline();
    else
      microbatches();
    step_.begin_segment("optimizer", 1, 0);
    if (stage_.is_pipelined()) finish_gradients();
    optimizer();
    for (const Side& side : sides_) step_.add_padding(side.buffer.padding());
    return step_.finish();
  }

 private:
  using Variant = McorePipeline::Variant;

  void microbatches() {
    const std::int64_t count = config_.microbatches;
    step_.begin_segment("first", 1, 1);
    microbatch({.first = true, .last = count == 1});
    if (count > 2) {
      step_.begin_segment("next", count - 2, 1);
      microbatch({});
    }
    if (count > 1) {
      step_.begin_segment("last", 1, 1);
      microbatch({.last = true});
    }
  }

  // ---- Before the first step ---------------------------------------------------------------

  void place_weights() {
    const std::size_t kinds = config_.is_expert_parallel() ? 2 : 1;
    const std::int64_t ranks = config_.mesh.world_size() / (parallel_.tp * stage_.shape.stages);
    for (std::size_t chunk = 0; chunk < stage_.chunks.size(); ++chunk) {
      const std::string prefix = chunk == 0 ? "" : "chunk_" + std::to_string(chunk) + "_";
      sides_.push_back({.prefix = prefix, .chunk = chunk, .ranks = ranks});
      if (kinds == 2)
        sides_.push_back({.prefix = prefix + "expert_",
                          .chunk = chunk,
                          .group = RankGroup::same_experts,
                          .ranks = config_.mesh.size(Axis::expt_dp)});
    }
    std::vector<std::vector<BufferedWeight>> split(sides_.size());
    for (const BufferedWeight& weight : weights_.all) {
      const std::size_t side = kinds * weight.chunk + (weight.dealt ? 1 : 0);
      places_.push_back({.side = side, .weight = split[side].size()});
      split[side].push_back(weight);
    }
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      const bool is_one = !parallel_.overlaps_reductions || stage_.stage > 0 || sides_[i].chunk > 0;
      sides_[i].buffer = parameter_buffer(std::move(split[i]), sides_[i].ranks, is_one);
      sides_[i].buckets.resize(sides_[i].buffer.buckets.size());
    }
  }

  void set_up() {
    for (const Side& side : sides_) set_up(side);
    step_.at(root_, Phase::input);
    const auto ends = [&](bool McoreChunk::* has) {
      return std::ranges::any_of(stage_.chunks, has);
    };
    ends_.keep_inputs(ends(&McoreChunk::has_embedding), ends(&McoreChunk::has_head));
  }

  /// Modules allocate their weights one by one; the buffer then replaces them, the last ones first.
  void set_up(const Side& side) {
    std::vector<Tensor> initial;
    for (const BufferedWeight& weight : side.buffer.weights) {
      step_.at(weight.unit, Phase::input);
      initial.push_back(step_.once(weight.name + "_initial", weight.elements() * kHalf,
                                   Category::unsharded_weight));
    }
    step_.at(root_, Phase::input);
    step_.keep(side.prefix + "weights", side.buffer.elements * kHalf, Category::model_weight);
    step_.keep(side.prefix + "gradients", side.buffer.elements * gradient_type_,
               Category::main_grad);
    for (std::size_t i = initial.size(); i-- > 0;) step_.free_once(initial[i]);
    for (const std::size_t i : optimizer_order(side)) {
      const BufferedWeight& weight = side.buffer.weights[i];
      const std::int64_t owned = side.buffer.owned(i, side.ranks);
      step_.at(weight.unit, Phase::input);
      const Tensor copy =
          step_.once(weight.name + "_part", owned * kHalf, Category::unsharded_weight);
      step_.keep(weight.name + "_main", owned * kFull, Category::main_weight);
      step_.free_once(copy);
    }
  }

  /// Weights of which rank 0 has a shard: matrices, which decay, before vectors; both in reverse
  /// order.
  [[nodiscard]] static std::vector<std::size_t> optimizer_order(const Side& side) {
    std::vector<std::size_t> order;
    for (const bool vectors : {false, true})
      for (std::size_t i = side.buffer.weights.size(); i-- > 0;)
        if (side.buffer.weights[i].is_vector() == vectors && side.buffer.owned(i, side.ranks) > 0)
          order.push_back(i);
    return order;
  }

  // ---- Gathers -----------------------------------------------------------------------------

  void gather(Side& side, std::size_t bucket) {
    BucketState& of = side.buckets[bucket];
    of.gathers = true;
    step_.wait(all_gather, step_.record(compute));
    step_.collective(CollectiveKind::all_gather, side.prefix + "all_gather",
                     side.buffer.buckets[bucket].elements() / side.ranks, DType::bf16, side.group);
    of.gathered = step_.record(all_gather);
  }

  void use(std::size_t weight) {
    const auto& [at, index] = places_[weight];
    Side& side = sides_[at];
    if (!gathers_ || side.ranks == 1 || !parallel_.overlaps_gathers) return;
    const std::size_t bucket = side.buffer.weights[index].bucket;
    if (!side.buckets[bucket].gathers) gather(side, bucket);
    if (!side.buckets[bucket].gathered) return;
    step_.wait(compute, *std::exchange(side.buckets[bucket].gathered, std::nullopt));
    if (bucket > 0 && !side.buckets[bucket - 1].gathers) gather(side, bucket - 1);
  }

  // ---- Reductions --------------------------------------------------------------------------

  void ready(std::size_t weight) {
    const auto& [at, index] = places_[weight];
    Side& side = sides_[at];
    if (!reduces_ || side.ranks == 1 || !parallel_.overlaps_reductions) return;
    const std::size_t bucket = side.buffer.weights[index].bucket;
    if (++side.buckets[bucket].ready == side.buffer.buckets[bucket].weights) reduce(side, bucket);
  }

  void reduce(Side& side, std::size_t bucket) {
    BucketState& of = side.buckets[bucket];
    const Phase before = step_.phase();
    step_.set_phase(Phase::reduce);
    step_.wait(reduce_scatter, step_.record(compute));
    step_.collective(CollectiveKind::reduce_scatter, side.prefix + "reduce_scatter",
                     side.buffer.buckets[bucket].elements() / side.ranks, config_.grad_dtype,
                     side.group);
    of.reduced = step_.record(reduce_scatter);
    step_.set_phase(before);
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Variant variant) {
    if (variant.first) zero_gradients();
    McorePipeline::Chunk whole;  // has both ends, and exchanges nothing
    forward(whole, 0, variant);
    backward(whole, 0, variant);
    if (variant.last) finish_gradients();
  }

  void zero_gradients() {
    step_.at(root_, Phase::forward);
    for (const Side& side : sides_)
      step_.memory_bound(KernelKind::zero_padding, side.prefix + "zero_gradients",
                         side.buffer.elements * gradient_type_);
  }

  void pipeline() {
    step_.begin_segment("begin", 1, 0);
    zero_gradients();
    McorePipeline order(step_, stage_, rows_.state() / kHalf);
    order.write(
        [&](std::int64_t chunk, Variant variant) { forward(order.of(chunk), chunk, variant); },
        [&](std::int64_t chunk, Variant variant) { backward(order.of(chunk), chunk, variant); });
  }

  /// Weights of a chunk's layers.
  [[nodiscard]] std::span<const LayerWeights> layers_of(std::int64_t chunk) const {
    std::size_t begin = 0;
    for (std::int64_t c = 0; c < chunk; ++c)
      begin += static_cast<std::size_t>(stage_.chunks[static_cast<std::size_t>(c)].layers);
    const McoreChunk& of = stage_.chunks[static_cast<std::size_t>(chunk)];
    return std::span(weights_.layers).subspan(begin, static_cast<std::size_t>(of.layers));
  }

  [[nodiscard]] UnitId unit_of(const LayerWeights& layer) const {
    return units_[static_cast<std::size_t>(layer.layer)];
  }

  void forward(McorePipeline::Chunk& ends, std::int64_t chunk, Variant variant) {
    const McoreChunk& of = stage_.chunks[static_cast<std::size_t>(chunk)];
    gathers_ = variant.first;
    modules_.begin(variant.first);
    step_.at(root_, Phase::forward);
    std::vector<Tensor>& states = states_[static_cast<std::size_t>(chunk)];
    states.assign(1, of.has_embedding ? ends_.embed(weights_) : ends.input);
    for (const LayerWeights& layer : layers_of(chunk)) {
      step_.at(unit_of(layer), Phase::forward);
      states.push_back(block_.forward(layer, states.back()));
    }
    step_.at(root_, Phase::forward);
    if (of.has_head)
      ends_.forward(weights_);
    else
      ends.output = states.back();
    gathers_ = false;
  }

  void backward(McorePipeline::Chunk& ends, std::int64_t chunk, Variant variant) {
    const McoreChunk& of = stage_.chunks[static_cast<std::size_t>(chunk)];
    const std::vector<Tensor>& states = states_[static_cast<std::size_t>(chunk)];
    const std::span<const LayerWeights> layers = layers_of(chunk);
    reduces_ = variant.last;
    step_.at(root_, Phase::backward);
    Tensor gradient = of.has_head ? ends_.backward(weights_, states.back()) : ends.gradient;
    for (std::size_t i = layers.size(); i-- > 0;) {
      step_.at(unit_of(layers[i]), Phase::backward);
      gradient = block_.backward(layers[i], states[i], gradient);
    }
    step_.at(root_, Phase::backward);
    if (of.has_embedding)
      ends_.embedding_backward(weights_, gradient);
    else
      ends.input_gradient = gradient;
  }

  /// The first and the last stage add their gradients of a tied embedding.
  void sum_tied_ends() {
    const bool is_first = stage_.stage == 0;
    if (!ties_ends_ || (!is_first && stage_.stage + 1 < stage_.shape.stages)) return;
    const BufferedWeight& weight = weights_.all[is_first ? weights_.embedding : weights_.head];
    const std::int64_t bytes = weight.elements() * gradient_type_;
    step_.at(root_, Phase::reduce);
    const EventId ended = step_.add_event("tied_gradient");
    const Tensor other = step_.allocate("tied_gradient", bytes, Category::unsharded_grad);
    // The first stage is the last one's next.
    const StageMessage sent{.sends = true, .of_gradients = is_first, .elements = bytes / kHalf};
    const StageMessage received{
        .sends = false, .of_gradients = !is_first, .elements = bytes / kHalf};
    if (stage_.shape.chunks == 1) {
      step_.exchange_messages({sent, received}, ended);
    } else {
      const EventId also = step_.add_event("tied_gradient_sent");
      step_.exchange_messages({sent}, also);
      step_.exchange_messages({received}, ended);
      step_.wait_for(also);
    }
    step_.wait_for(ended);
    step_.memory_bound(KernelKind::accumulate, "tied_gradient", 3 * bytes);
    step_.free(other);
  }

  void finish_gradients() {
    if (!parallel_.overlaps_reductions)
      for (Side& side : sides_)
        for (std::size_t i = 0; side.ranks > 1 && i < side.buckets.size(); ++i) reduce(side, i);
    for (const Side& side : sides_)
      for (const BucketState& bucket : side.buckets)
        if (bucket.reduced) step_.wait(compute, *bucket.reduced);
    sum_tied_ends();
    sum_whole_weights();
  }

  /// Over tp, of weights that are whole on its ranks and see a part of the rows, or of the heads.
  void sum_whole_weights() {
    if (parallel_.tp == 1) return;
    std::int64_t elements = 0;
    for (const BufferedWeight& weight : weights_.all)
      if (weight.whole && (rows_.cuts() || weight.of_heads)) elements += weight.elements();
    if (elements == 0) return;
    const std::int64_t bytes = elements * gradient_type_;
    step_.set_phase(Phase::reduce);
    const Tensor joined = step_.allocate("whole_gradients", bytes, Category::unsharded_grad);
    step_.memory_bound(KernelKind::cast, "join_whole_gradients",
                       {2 * bytes, AccessPattern::pieces});
    rows_.sum("whole_gradients", elements, config_.grad_dtype);
    step_.memory_bound(KernelKind::cast, "part_whole_gradients",
                       {2 * bytes, AccessPattern::pieces});
    step_.free(joined);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    optimizer(RankGroup::all);
    if (config_.is_expert_parallel()) optimizer(RankGroup::same_experts);
    if (parallel_.overlaps_gathers) return;
    for (Side& side : sides_) {
      for (std::size_t i = 0; side.ranks > 1 && i < side.buckets.size(); ++i) gather(side, i);
      for (BucketState& bucket : side.buckets)
        if (bucket.gathered) step_.wait(compute, *std::exchange(bucket.gathered, std::nullopt));
    }
  }

  /// The squares of all ranks' shards.
  void sum_norm() {
    if (stage_.is_pipelined())
      step_.collective_on(compute, CollectiveKind::all_reduce, "gradient_norm_of_all", 1,
                          DType::fp32, RankGroup::model);
    else if (parallel_.tp > 1)
      rows_.sum("gradient_norm_of_all", 1, DType::fp32);
  }

  /// Updates the weights of all chunks whose buffers the ranks of the group share.
  void optimizer(RankGroup group) {
    std::vector<Tensor> casts;
    std::vector<Owned> all;
    for (const Side& side : sides_)
      if (side.group == group)
        for (const std::size_t i : optimizer_order(side))
          all.push_back(
              {.weight = side.buffer.weights[i], .elements = side.buffer.owned(i, side.ranks)});
    if (gradient_type_ != kFull) casts = cast_gradients(all);
    std::int64_t elements = 0;
    for (const auto& [weight, owned] : all) {
      elements += owned;
      step_.at(weight.unit, Phase::optimizer);
      for (const char* moment : {"_exp_avg", "_exp_avg_sq"})
        step_.keep(weight.name + moment, owned * kFull, Category::optimizer_state);
    }
    step_.at(root_, Phase::optimizer);
    update_weights(step_, config_, elements, all.size(), kFull, [this] { sum_norm(); });
    for (const auto& [weight, owned] : all) {
      step_.at(weight.unit, Phase::optimizer);
      step_.memory_bound(KernelKind::cast, weight.name + "_to_buffer", owned * (kFull + kHalf));
    }
    for (const Tensor cast : casts) step_.free(cast);
  }

  /// Freed before the next step's first microbatch; nothing is allocated in between.
  [[nodiscard]] std::vector<Tensor> cast_gradients(const std::vector<Owned>& all) {
    std::vector<Tensor> casts;
    for (const auto& [weight, owned] : all) {
      step_.at(weight.unit, Phase::optimizer);
      casts.push_back(
          step_.allocate(weight.name + "_gradient", owned * kFull, Category::main_grad));
      step_.memory_bound(KernelKind::cast, weight.name + "_gradient", owned * (kFull + kHalf));
    }
    return casts;
  }

  McoreStage stage_;
  PlanConfig config_;  ///< with the model of one rank
  McoreParallel parallel_;
  std::int64_t gradient_type_;  ///< bytes of an element
  bool ties_ends_;              ///< over the first and the last stage
  StepBuilder step_;
  UnitId root_;
  std::vector<UnitId> units_;  ///< of layers
  WeightHooks hooks_;
  TeModules modules_;
  McoreRows rows_;
  McoreBlock block_;
  McoreEnds ends_;
  McoreWeights weights_;
  std::vector<Side> sides_{};
  std::vector<Place> places_{};                ///< of all weights
  std::vector<std::vector<Tensor>> states_{};  ///< of each chunk: inputs of layers
  bool gathers_ = false;                       ///< forward of a step's first microbatch
  bool reduces_ = false;                       ///< backward of its last
};

}  // namespace

EnginePlan mcore_plan(EngineKind engine, const PlanConfig& config, const Meta& meta,
                      const EngineOptions& options, std::int64_t stage) {
  return Mcore(engine, config, meta, options, stage).run();
}

}  // namespace mfsdp
