#include "sim/engines/fsdp2_units.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

namespace mfsdp {
namespace {

// Bytes that one thread block of those kernels copies.
constexpr std::int64_t kCopyOutBlock = 65536;
constexpr std::int64_t kCopyInBlock = 16384;

/// Bytes of an element of a gathered weight.
std::int64_t gathered_element(const Weight& weight) {
  return size_of(weight.in_fp8 ? DType::fp8_e4m3 : DType::bf16);
}

/// The weights of one part of a block.
std::vector<Weight> of_part(const std::vector<Weight>& block, BlockPart part) {
  std::vector<Weight> weights;
  std::ranges::copy_if(block, std::back_inserter(weights),
                       [&](const Weight& weight) { return weight.part == part; });
  return weights;
}

}  // namespace

Fsdp2Units::Fsdp2Units(StepBuilder& step, const PlanConfig& config, const Fsdp2Options& options)
    : step_(step),
      config_(config),
      options_(options),
      ranks_(config.mesh.size(Axis::dp_shard)),
      expert_ranks_(config.is_expert_parallel() ? config.mesh.size(Axis::expt_dp) : ranks_),
      outer_(config.mesh.size(Axis::dp_outer)),
      main_(size_of(config.main_dtype)),
      held_(size_of(config.reduce_dtype)),
      keeps_gathered_(config.strategy == Strategy::optim_grads),
      prefetches_forward_(config.is_expert_parallel()) {}

// ---- Parameters ------------------------------------------------------------------------------

std::int64_t Fsdp2Units::padded_rows(const Weight& weight) const {
  return ceil_div(weight.rows, ranks_of(weight)) * ranks_of(weight);
}

std::int64_t Fsdp2Units::shard_of(const Weight& weight) const {
  return padded_rows(weight) / ranks_of(weight) * weight.columns;
}

void Fsdp2Units::keep_weight(UnitId unit, const Weight& weight) {
  step_.at(unit, Phase::forward);
  step_.keep(weight.name + "_weight", shard_of(weight) * main_, Category::main_weight);
  owned_.push_back({unit, weight.name, shard_of(weight)});
}

/// `weights` are all on the same ranks.
Fsdp2Units::Shards Fsdp2Units::shards_of(UnitId unit, std::vector<Weight> weights, bool reshards) {
  Shards made;
  made.unit = unit;
  made.weights = std::move(weights);
  made.reshards = reshards;
  const bool dealt = made.weights.front().dealt;
  made.ranks = ranks_of(made.weights.front());
  made.among = dealt ? RankGroup::same_experts : RankGroup::all;
  for (const Weight& weight : made.weights) {
    made.shard += shard_of(weight);
    made.shard_bytes += shard_of(weight) * gathered_element(weight);
    made.has_fp8 |= weight.in_fp8;
    step_.add_padding((padded_rows(weight) - weight.rows) * weight.columns);
  }
  made.whole = made.shard * made.ranks;
  return made;
}

void Fsdp2Units::group(UnitId unit, std::vector<Weight> weights, bool reshards) {
  const auto experts = std::ranges::stable_partition(weights, std::logical_not{}, &Weight::dealt);
  std::vector<Weight> dealt(experts.begin(), experts.end());
  weights.erase(experts.begin(), experts.end());
  groups_.push_back(shards_of(unit, std::move(weights), reshards));
  if (!dealt.empty())
    groups_.back().experts = std::make_unique<Shards>(shards_of(unit, std::move(dealt), reshards));
}

void Fsdp2Units::make(const std::vector<std::vector<Weight>>& blocks,
                      const std::vector<Weight>& root) {
  root_ = step_.add_unit("root", UnitKind::embedding_and_head);
  // A tied weight is allocated as the embedding's weight, and again as the head's, which remains.
  std::optional<Tensor> first;
  if (config_.model.tied_embeddings) {
    step_.at(root_, Phase::forward);
    first = step_.once("first_embedding", shard_of(root[0]) * main_, Category::main_weight);
  } else {
    keep_weight(root_, root[0]);
  }
  for (std::int64_t layer = 0; layer < config_.model.layers; ++layer) {
    blocks_.push_back(step_.add_unit("layers." + std::to_string(layer), UnitKind::block));
    std::vector<bool>& dealt = dealt_.emplace_back();
    for (const Weight& weight : blocks[static_cast<std::size_t>(layer)]) {
      keep_weight(blocks_.back(), weight);
      dealt.push_back(weight.dealt);
    }
  }
  for (std::size_t i = 1; i < root.size(); ++i) keep_weight(root_, root[i]);
  if (first) {
    keep_weight(root_, root[0]);
    step_.free_once(*first);
    std::ranges::rotate(owned_, owned_.end() - 1);
  }
  if (options_.units.ends_apart) group(root_, {root[0]}, !keeps_gathered_);
  group_blocks(blocks);
  std::vector<Weight> rest(root.begin() + (options_.units.ends_apart ? 1 : 0), root.end());
  if (options_.units.blocks == 0)
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
      rest.insert(rest.begin() + 1, blocks[layer].begin(), blocks[layer].end());
  group(root_, std::move(rest), options_.reshard_root);
}

void Fsdp2Units::group_blocks(const std::vector<std::vector<Weight>>& blocks) {
  const FsdpUnits& units = options_.units;
  if (units.blocks == 0) return;
  const auto count = static_cast<std::size_t>(units.blocks);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    if (units.parts_of_blocks) {
      first_of_block_.push_back(groups_.size());
      for (const BlockPart part : {BlockPart::attention, BlockPart::mlp, BlockPart::norms})
        group(blocks_[layer], of_part(blocks[layer], part), !keeps_gathered_);
      continue;
    }
    if (layer % count == 0) {
      std::vector<Weight> weights;
      for (std::size_t i = layer; i < std::min(layer + count, blocks_.size()); ++i)
        weights.insert(weights.end(), blocks[i].begin(), blocks[i].end());
      group(blocks_[layer], std::move(weights), !keeps_gathered_);
    }
    first_of_block_.push_back(groups_.size() - 1);
  }
}

std::optional<std::size_t> Fsdp2Units::group_of(UnitPlace place, std::size_t layer) const {
  const FsdpUnits& units = options_.units;
  const std::size_t root = groups_.size() - 1;
  switch (place) {
    case UnitPlace::embedding: return units.ends_apart ? 0 : root;
    case UnitPlace::head: return root;
    case UnitPlace::block: break;
    case UnitPlace::attention:
    case UnitPlace::mlp:
      if (!units.parts_of_blocks) return std::nullopt;
      return first_of_block_[layer] + (place == UnitPlace::mlp ? 1 : 0);
  }
  if (units.blocks == 0) return std::nullopt;
  return first_of_block_[layer] + (units.parts_of_blocks ? 2 : 0);
}

/// Whether the module is the first one of its unit.
bool Fsdp2Units::begins_group(UnitPlace place, std::size_t layer) const {
  if (place == UnitPlace::head) return options_.units.ends_apart;
  return place != UnitPlace::block || options_.units.parts_of_blocks ||
         layer % static_cast<std::size_t>(options_.units.blocks) == 0;
}

/// Whether the module is the last one of its unit.
bool Fsdp2Units::ends_group(UnitPlace place, std::size_t layer) const {
  if (place == UnitPlace::embedding) return options_.units.ends_apart;
  return place != UnitPlace::block || options_.units.parts_of_blocks ||
         (layer + 1) % static_cast<std::size_t>(options_.units.blocks) == 0 ||
         layer + 1 == blocks_.size();
}

// ---- Gathers ---------------------------------------------------------------------------------

/// Temporary metadata of a kernel over many tensors, which assigns blocks to tensors: about 8
/// bytes for each block, and some for each tensor.
void Fsdp2Units::foreach_scratch(std::string_view name, std::int64_t blocks, std::size_t tensors) {
  constexpr std::int64_t kBlock = 8;
  constexpr std::int64_t kTensor = 56;
  step_.scratch(name, blocks * kBlock + kTensor * static_cast<std::int64_t>(tensors));
}

void Fsdp2Units::unshard(Shards& of) {
  if (of.ranks == 1 || of.output || !of.gathered.empty()) return;
  step_.at(of.unit, phase_);
  step_.host_work(kGatherHook);
  step_.launch_by(Launcher::hook);
  constexpr StreamRole stream = StreamRole::all_gather;
  const std::int64_t own = of.shard_bytes;
  std::vector<Tensor> casts;
  std::optional<Tensor> input;
  if (of.has_fp8) {
    casts = cast_shards(of);
  } else if (main_ != kHalf) {
    input = step_.allocate("gather_input", own, Category::unsharded_weight, stream);
    step_.memory_bound(KernelKind::cast, "gather_cast", of.shard * (main_ + kHalf), stream);
  }
  of.output = step_.allocate("gather_output", own * of.ranks, Category::unsharded_weight, stream);
  step_.memory_bound(KernelKind::cast, "gather_copy_in", 2 * own, stream);
  if (of.has_fp8)
    step_.collective(CollectiveKind::all_gather, "all_gather", own, DType::uint8, of.among);
  else
    step_.collective(CollectiveKind::all_gather, "all_gather", of.shard, DType::bf16, of.among);
  for (const Tensor cast : casts) step_.free(cast);
  if (input) step_.free(*input);
  of.gather = step_.record(stream);
  step_.launch_by(Launcher::operators);
}

/// torchao casts each weight; the others are cast together.
std::vector<Tensor> Fsdp2Units::cast_shards(const Shards& of) {
  constexpr StreamRole stream = StreamRole::all_gather;
  const auto allocate = [&](const std::string& name, std::int64_t bytes) {
    return step_.allocate(name, bytes, Category::unsharded_weight, stream);
  };
  std::vector<Tensor> casts;
  std::int64_t others = 0;
  for (const Weight& weight : of.weights) {
    const std::int64_t elements = shard_of(weight);
    if (!weight.in_fp8) {
      others += elements;
      continue;
    }
    if (!options_.float8.precomputes_scales) {
      const Tensor absolute = allocate(weight.name + "_absolute", elements * main_);
      step_.memory_bound(KernelKind::amax, weight.name + "_amax", 3 * elements * main_, stream);
      step_.all_reduce_between(stream, weight.name + "_amax_of_ranks", 1, DType::fp32);
      step_.free(absolute);
    }
    const Tensor scaled = allocate(weight.name + "_scaled", elements * main_);
    step_.memory_bound(KernelKind::cast_scaled, weight.name + "_scale", 2 * elements * main_,
                       stream);
    const Tensor clamped = allocate(weight.name + "_clamped", elements * main_);
    step_.memory_bound(KernelKind::cast_scaled, weight.name + "_clamp", 2 * elements * main_,
                       stream);
    casts.push_back(allocate(weight.name + "_fp8", elements));
    step_.memory_bound(KernelKind::cast_scaled, weight.name + "_cast", elements * (main_ + 1),
                       stream);
    step_.free({scaled, clamped});
  }
  if (others > 0 && main_ != kHalf) {
    casts.push_back(allocate("gather_input", others * kHalf));
    step_.memory_bound(KernelKind::cast, "gather_cast", others * (main_ + kHalf), stream);
  }
  return casts;
}

/// precompute_float8_dynamic_scale_for_fsdp(), after the optimizer.
void Fsdp2Units::find_largest_of_shards() {
  std::int64_t elements = 0;
  std::int64_t count = 0;
  for (const Shards& of : groups_)
    for (const Weight& weight : of.weights)
      if (weight.in_fp8) {
        elements += shard_of(weight);
        ++count;
      }
  if (count == 0 || ranks_ == 1 || !options_.float8.precomputes_scales) return;
  step_.host_work(count * kOptimizerParameter);
  step_.memory_bound(KernelKind::amax, "amax_of_shards", elements * main_);
  step_.all_reduce_between(StreamRole::compute, "amax_of_ranks", count, DType::fp32);
}

/// A single rank does not gather; it only casts and copies.
void Fsdp2Units::cast_alone(Shards& of) {
  std::optional<Tensor> before;
  for (const Weight& weight : of.weights) {
    const std::int64_t bytes = shard_of(weight) * gathered_element(weight);
    std::optional<Tensor> cast;
    if (weight.in_fp8 || main_ != kHalf) {
      cast = step_.allocate(weight.name + "_cast", bytes, Category::unsharded_weight);
      step_.memory_bound(weight.in_fp8 ? KernelKind::cast_scaled : KernelKind::cast,
                         weight.name + "_cast", shard_of(weight) * main_ + bytes);
    }
    if (before) step_.free(*before);
    of.gathered.push_back(
        step_.allocate(weight.name + "_gathered", bytes, Category::unsharded_weight));
    step_.memory_bound(KernelKind::cast, weight.name + "_copy", 2 * bytes);
    before = cast;
  }
  if (before) step_.free(*before);
}

void Fsdp2Units::wait_for_unshard(Shards& of) {
  step_.at(of.unit, phase_);
  if (!of.gathered.empty()) return;
  step_.host_work(kUseHook);
  step_.launch_by(Launcher::hook);
  if (of.ranks == 1)
    cast_alone(of);
  else
    copy_out(of);
  step_.launch_by(Launcher::operators);
}

void Fsdp2Units::copy_out(Shards& of) {
  // Kept until its copies are done, so that this gather could run concurrently with them.
  if (phase_ == Phase::forward && copied_out_) {
    step_.wait(StreamRole::all_gather, *copied_out_);
    copied_out_.reset();
  }
  step_.wait(StreamRole::compute, *of.gather);
  for (const Weight& weight : of.weights)
    of.gathered.push_back(step_.allocate(
        weight.name + "_gathered", padded_rows(weight) * weight.columns * gathered_element(weight),
        Category::unsharded_weight));
  const std::int64_t gathered = of.shard_bytes * of.ranks;
  foreach_scratch("copy_out_blocks", gathered / kCopyOutBlock, of.weights.size());
  step_.memory_bound(KernelKind::cast, "gather_copy_out", 2 * gathered);
  const Mark copied = step_.record(StreamRole::compute);
  const Tensor output = *std::exchange(of.output, std::nullopt);
  if (phase_ == Phase::forward) {
    free_last_output();
    last_output_ = output;
    copied_out_ = copied;
  } else {
    step_.wait(StreamRole::all_gather, copied);
    step_.free(output);
  }
}

void Fsdp2Units::free_last_output() {
  if (last_output_) step_.free(*last_output_);
  last_output_.reset();
}

void Fsdp2Units::prefetch(Shards& of) {
  each(of, [this](Shards& one) { unshard(one); });
}

void Fsdp2Units::use(Shards& of) {
  each(of, [this](Shards& one) {
    unshard(one);
    wait_for_unshard(one);
  });
}

void Fsdp2Units::reshard(Shards& of) {
  step_.host_work(kReleaseHook);
  for (const Tensor tensor : of.gathered) step_.free(tensor);
  of.gathered.clear();
}

// ---- A microbatch ----------------------------------------------------------------------------

void Fsdp2Units::begin(Turn turn) { turn_ = turn; }

void Fsdp2Units::begin_forward() {
  phase_ = Phase::forward;
  for (Shards& of : groups_) each(of, [](Shards& one) { one.is_done = false; });
  if (ranks_ > 1) step_.wait(StreamRole::all_gather, step_.record(StreamRole::compute));
}

void Fsdp2Units::pre_forward(UnitPlace place, std::size_t layer) {
  const auto group = group_of(place, layer);
  if (!group || !begins_group(place, layer)) return;
  use(groups_[*group]);
  if (prefetches_forward_ && *group + 1 < groups_.size()) prefetch(groups_[*group + 1]);
}

void Fsdp2Units::post_forward(UnitPlace place, std::size_t layer) {
  const auto group = group_of(place, layer);
  if (!group || !ends_group(place, layer) || !groups_[*group].reshards) return;
  each(groups_[*group], [this](Shards& one) { reshard(one); });
}

void Fsdp2Units::end_forward() { free_last_output(); }

void Fsdp2Units::begin_backward() { phase_ = Phase::backward; }

void Fsdp2Units::pre_backward(UnitPlace place, std::size_t layer) {
  const auto group = group_of(place, layer);
  if (!group || !ends_group(place, layer)) return;
  use(groups_[*group]);
  if (*group > 0) prefetch(groups_[*group - 1]);
}

void Fsdp2Units::post_backward(UnitPlace place, std::size_t layer,
                               const std::vector<Tensor>& gradients) {
  // Without a unit of its own, a module is part of the root.
  const std::size_t group = group_of(place, layer).value_or(groups_.size() - 1);
  Shards& of = groups_[group];
  if (of.experts) {
    for (std::size_t i = 0; i < gradients.size(); ++i)
      (dealt_[layer][i] ? *of.experts : of).gradients.push_back(gradients[i]);
  } else {
    of.gradients.insert(of.gradients.begin(), gradients.begin(), gradients.end());
  }
  const bool is_unit = place != UnitPlace::embedding && group_of(place, layer).has_value();
  if (is_unit && begins_group(place, layer)) each(of, [this](Shards& one) { finish(one); });
}

void Fsdp2Units::end_backward() {
  for (Shards& of : groups_)
    each(of, [this](Shards& one) {
      if (!one.is_done) finish(one);
    });
  if (last_reduce_input_) step_.free(*std::exchange(last_reduce_input_, std::nullopt));
  last_reduction_.reset();
  // The host's next work on the compute stream runs after all reductions.
  for (Shards& of : groups_) each(of, [this](Shards& one) { leave(one); });
}

// ---- Reductions ------------------------------------------------------------------------------

bool Fsdp2Units::adds_in_place() const {
  return options_.accumulate_unsharded && !turn_.first && held_ == kHalf;
}

void Fsdp2Units::add_in_place(Tensor gradient) {
  step_.memory_bound(KernelKind::accumulate, "unsharded_add",
                     step_.bytes_of(gradient) / kHalf * (kHalf + 2 * held_));
  step_.free(gradient);
}

/// All gradients of the unit are there.
void Fsdp2Units::finish(Shards& of) {
  of.is_done = true;
  if (!of.accumulated.empty()) accumulate(of);
  reshard(of);
  if (options_.accumulate_unsharded && !turn_.last) {
    if (of.accumulated.empty()) keep_unreduced(of);
    return;
  }
  const std::vector<Tensor> gradients =
      std::exchange(of.accumulated.empty() ? of.gradients : of.accumulated, {});
  reduce(of, gradients);
}

/// Adds to the gradients of earlier microbatches.
void Fsdp2Units::accumulate(Shards& of) {
  step_.at(of.unit, Phase::reduce);
  step_.launch_by(Launcher::hook);
  for (const Tensor gradient : of.gradients) add_in_place(gradient);
  of.gradients.clear();
  step_.launch_by(Launcher::operators);
}

/// Keeps the first microbatch's gradients, in the type of reductions.
void Fsdp2Units::keep_unreduced(Shards& of) {
  std::vector<Tensor> gradients = std::exchange(of.gradients, {});
  if (held_ == kHalf) {
    of.accumulated = std::move(gradients);
    return;
  }
  step_.at(of.unit, Phase::reduce);
  step_.launch_by(Launcher::hook);
  for (const Tensor gradient : gradients) {
    const std::int64_t bytes = step_.bytes_of(gradient);
    of.accumulated.push_back(
        step_.allocate("unsharded_gradient", bytes / kHalf * held_, Category::unsharded_grad));
    step_.memory_bound(KernelKind::cast, "unsharded_cast", bytes / kHalf * (kHalf + held_));
    step_.free(gradient);
  }
  step_.launch_by(Launcher::operators);
}

/// `gradients` in the order of the weights.
void Fsdp2Units::reduce(Shards& of, const std::vector<Tensor>& gradients) {
  step_.at(of.unit, Phase::reduce);
  step_.host_work(kReduceHook);
  const std::int64_t wire = held_;
  const bool was_held = options_.accumulate_unsharded && !turn_.first;
  if (last_reduction_) step_.wait(StreamRole::compute, *last_reduction_);
  if (last_reduce_input_) step_.free(*last_reduce_input_);
  const Tensor input = step_.allocate("reduce_input", of.whole * wire, Category::unsharded_grad);
  foreach_scratch("copy_in_blocks", of.whole * wire / kCopyInBlock, of.weights.size());
  step_.memory_bound(KernelKind::cast, "reduce_copy_in",
                     {of.whole * ((was_held ? held_ : kHalf) + wire), AccessPattern::strided});
  // A variable still holds the list's last gradient; the others are freed as the list is emptied.
  const std::size_t held = of.ranks > 1 ? 1 : 0;
  for (std::size_t i = gradients.size() - held; i > 0; --i) step_.free(gradients[i - 1]);
  constexpr StreamRole stream = StreamRole::reduce_scatter;
  step_.wait(stream, step_.record(StreamRole::compute));
  Tensor output = step_.allocate("reduce_output", of.shard * wire, Category::main_grad, stream);
  if (of.ranks > 1)
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.shard,
                     config_.reduce_dtype, of.among);
  else
    step_.memory_bound(KernelKind::cast, "reduce_copy", 2 * of.shard * wire, stream);
  last_reduction_ = step_.record(stream);
  const StreamRole last = outer_ > 1 ? sum_along_outer(of) : stream;
  if (config_.reduce_dtype != config_.main_dtype) {
    const Tensor cast = step_.allocate("gradient", of.shard * main_, Category::main_grad, last);
    step_.memory_bound(KernelKind::cast, "gradient_cast", of.shard * (wire + main_), last);
    if (outer_ > 1)
      of.summed = output;
    else
      step_.free(output);
    output = cast;
  }
  if (turn_.first || options_.accumulate_unsharded) {
    of.gradient = output;
  } else {
    step_.memory_bound(KernelKind::accumulate, "accumulate", 3 * of.shard * main_, last);
    if (outer_ > 1 && !of.summed)
      of.summed = output;
    else
      step_.free(output);
  }
  if (held > 0) step_.free(gradients.back());
  last_reduce_input_ = input;
  of.reduced = step_.record(last);
}

StreamRole Fsdp2Units::sum_along_outer(const Shards& of) {
  constexpr StreamRole stream = StreamRole::outer;
  step_.wait(stream, *last_reduction_);
  step_.reduce_outer("outer_reduce", of.shard, config_.reduce_dtype, stream);
  return stream;
}

void Fsdp2Units::leave(Shards& of) {
  if (!of.reduced) return;
  step_.wait(StreamRole::compute, *std::exchange(of.reduced, std::nullopt));
  if (of.summed) step_.free(*std::exchange(of.summed, std::nullopt));
}

// ---- Optimizer -------------------------------------------------------------------------------

void Fsdp2Units::optimizer() {
  std::int64_t elements = 0;
  for (const OwnedWeight& weight : owned_) {
    elements += weight.elements;
    keep_adamw_state(step_, weight, main_);
  }
  step_.at(root_, Phase::optimizer);
  update_weights(step_, config_, elements, owned_.size(), main_);
  find_largest_of_shards();
  for (Shards& of : groups_) each(of, [this](Shards& one) { step_.free(*one.gradient); });
}

}  // namespace mfsdp
