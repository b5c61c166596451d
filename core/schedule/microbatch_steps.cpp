// The tables of a microbatch, computed once per plan: uses, kernels, tensor lifetimes.
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <set>
#include <string>
#include <utility>

#include "core/plan/fp8_blocks.hpp"
#include "core/schedule/microbatch.hpp"

namespace mfsdp::schedule {
namespace {

// Owners are the places in forward order: embedding, blocks 1..layers, head. With tied weights the
// first and the last are one unit, but still two owners of activations.
constexpr std::size_t kEmbedding = 0;
constexpr std::size_t kLowestBlock = 1;

constexpr std::size_t kEmbeddingRecipe = 0;
constexpr std::size_t kHeadRecipe = 1;

std::string owner_name(std::size_t owner, const PlanConfig& config) {
  if (owner == kEmbedding) return "embedding";
  if (owner == static_cast<std::size_t>(config.model.layers) + 1) return "head";
  return "layers." + std::to_string(owner - 1);
}

/// The name of a tensor's buffer; `owner` is the place of the kernel that names the tensor.
std::string tensor_key(Source source, std::size_t owner, const std::string& name,
                       const PlanConfig& config) {
  if (source == Source::microbatch) return name;
  return owner_name(source == Source::previous ? owner - 1 : owner, config) + "." + name;
}

/// Elements of a tensor on one rank: an equal part along each axis that shards it.
std::int64_t elements_of(const RecipeTensor& tensor, const Mesh& mesh) {
  std::int64_t elements = tensor.elements;
  for (const AxisPlacement& on : tensor.placement)
    if (on.kind == PlacementKind::shard || on.kind == PlacementKind::flat)
      elements /= mesh.size(on.axis);
  return elements;
}

Recompute recompute_of(std::size_t block, const RecomputePolicy& policy) {
  if (policy.kind != Recompute::full || policy.full_blocks == 0) return policy.kind;
  return static_cast<std::int64_t>(block) < policy.full_blocks ? Recompute::full
                                                               : Recompute::selective;
}

bool is_tensor(const RecipeOperand& operand) {
  return operand.source == Source::tensor || operand.source == Source::previous ||
         operand.source == Source::microbatch;
}

std::vector<const RecipeOp*> pointers(std::initializer_list<const std::vector<RecipeOp>*> lists) {
  std::vector<const RecipeOp*> ops;
  for (const auto* list : lists)
    for (const RecipeOp& op : *list) ops.push_back(&op);
  return ops;
}

/// Whether casts of the gradient and the weight that the down projection's input gradient reads would
/// be the most that a step needs: with full recomputation each block before has one input less.
bool parts_d_product(const PlanConfig& config, std::int64_t block) {
  constexpr std::int64_t kRows = 32;  // two parts of FP8 GEMMs
  const ModelShape& model = config.model;
  const std::int64_t tokens = config.tokens_per_microbatch();
  const std::int64_t casts =
      checked_mul(model.hidden, checked_add(tokens, model.intermediate));  // a byte each
  const std::int64_t input = product_of(2, tokens, model.hidden);
  return tokens % kRows == 0 && checked_mul(model.layers - 1 - block, input) < casts;
}

}  // namespace

MicrobatchSchedule::MicrobatchSchedule(Emitter& emitter, const State& state,
                                       const FamilyRecipe& family, bool train, std::size_t chunk)
    : e_(emitter),
      state_(state),
      config_(emitter.config()),
      train_(train),
      span_(state.stage.chunks[chunk]),
      chunk_(chunk) {
  carry_.weights.resize(state_.units.size());
  carry_.casts.resize(state_.units.size());
  gradients_.resize(state_.units.size());
  make_recipes(family);
  make_communicators();
  make_uses();
  if (backward_uses_ == 0) backward_uses_ = uses_.size();
  find_exchanges();
}

void MicrobatchSchedule::make_recipes(const FamilyRecipe& family) {
  recipes_ = {family.embedding(config_), family.head(config_)};
  std::vector<std::pair<BlockKind, std::size_t>> made;
  for (std::int64_t block = 0; block < config_.model.layers; ++block) {
    const Recompute recompute = recompute_of(static_cast<std::size_t>(block), config_.recompute);
    // Backward of the last block has the most activations beside its own; with full recomputation
    // all blocks have nearly as many.
    const bool is_peak = recompute == Recompute::full ||
                         (recompute == Recompute::selective && block + 1 == config_.model.layers);
    const bool casts_at_peak =
        is_peak && config_.has_fp8(block) && config_.fp8 == Fp8Recipe::current;
    const BlockKind kind{.first = block == 0,
                         .recompute = recompute,
                         .slides = config_.model.slides(block),
                         .other_rope = config_.model.has_other_rope(block),
                         .experts = config_.model.has_experts(block),
                         .fp8 = config_.has_fp8(block),
                         .amax_below = block > 0 && takes_amaxes(config_, block - 1),
                         .transposes_d_output = casts_at_peak,
                         .parts_d_product = casts_at_peak && parts_d_product(config_, block)};
    auto found = std::ranges::find_if(made, [&](const auto& entry) { return entry.first == kind; });
    if (found == made.end()) {
      made.emplace_back(kind, recipes_.size());
      recipes_.push_back(family.block(config_, kind));
      found = made.end() - 1;
    }
    block_recipe_.push_back(found->second);
  }
}

/// Adds a communicator for every axis over which a recipe communicates.
void MicrobatchSchedule::make_communicators() {
  for (const UnitRecipe& recipe : recipes_)
    for (const auto* list : {&recipe.forward, &recipe.backward, &recipe.eval})
      for (const RecipeOp& op : *list)
        if (const auto* collective = std::get_if<RecipeCollective>(&op.body))
          e_.make_communicator({collective->axis}, activations_over(collective->axis));
}

std::size_t MicrobatchSchedule::unit_of(std::size_t owner) const {
  const auto head = static_cast<std::size_t>(config_.model.layers) + 1;
  return owner == head && config_.model.tied_embeddings ? 0 : owner;
}

const UnitRecipe& MicrobatchSchedule::recipe_of(std::size_t owner) const {
  if (owner == kEmbedding) return recipes_[kEmbeddingRecipe];
  if (owner == static_cast<std::size_t>(config_.model.layers) + 1) return recipes_[kHeadRecipe];
  return recipes_[block_recipe_[owner - 1]];
}

bool MicrobatchSchedule::is_frozen(std::size_t unit, ParameterRole role) const {
  return !state_.find(unit, role).group->group->requires_grad;
}

std::size_t MicrobatchSchedule::lowest_trainable_owner() const {
  std::size_t owner = 0;
  while (!trains(unit_of(owner))) ++owner;
  if (!span_.has(kEmbedding)) return owner;
  // A tied unit that trains only its final norm has no gradients in the embedding.
  const std::size_t unit = unit_of(kEmbedding);
  const bool looks_up_positions = !config_.model.traits().rotates;
  if (owner == kEmbedding && is_frozen(unit, ParameterRole::embedding) &&
      !(looks_up_positions && !is_frozen(unit, ParameterRole::position_embedding))) {
    ++owner;
    while (!trains(unit_of(owner))) ++owner;
  }
  return owner;
}

/// On any stage.
bool MicrobatchSchedule::trains(std::size_t unit) const {
  return std::ranges::any_of(state_.all_groups(), [&](const Group& group) {
    return group.unit.value == unit && group.requires_grad;
  });
}

/// Weight gradients of the lowest block that no other op waits for. They run after the embedding's
/// backward to hide its reduction, as no other compute is left then. Their inputs must not change
/// until then, and the embedding needs a second slot.
std::vector<const RecipeOp*> MicrobatchSchedule::late_gradients() const {
  const auto reduces = [&](std::size_t owner) {
    const auto groups = state_.trainable_of(unit_of(owner));
    return std::ranges::any_of(groups, [](const auto* g) { return !g->route.reduces.empty(); });
  };
  if (!reduces(kEmbedding) || !reduces(kLowestBlock) || config_.grad_slots < 2) return {};
  const auto key = [&](std::size_t owner, const RecipeOperand& operand) {
    return tensor_key(operand.source, owner, operand.name, config_);
  };
  std::set<std::string> written;  // by later ops
  const auto note_writes = [&](std::size_t owner, const RecipeOp& op) {
    for (const RecipeOperand& operand : op.operands)
      if (is_tensor(operand) && operand.access != Access::read) written.insert(key(owner, operand));
  };
  for (const RecipeOp& op : recipe_of(kEmbedding).backward) note_writes(kEmbedding, op);
  std::set<ParameterRole> added_to;  // by later ops of the block that cannot wait
  std::vector<const RecipeOp*> late;
  for (const RecipeOp& op : recipe_of(kLowestBlock).backward | std::views::reverse) {
    const auto can_wait = [&](const RecipeOperand& operand) {
      if (operand.access == Access::scratch) return true;
      if (!is_tensor(operand)) return operand.source == Source::weight_grad;
      return operand.access == Access::read && !written.contains(key(kLowestBlock, operand));
    };
    if (op.gradient_of && !added_to.contains(*op.gradient_of) &&
        std::ranges::all_of(op.operands, can_wait)) {
      late.insert(late.begin(), &op);
      continue;
    }
    if (op.gradient_of) added_to.insert(*op.gradient_of);
    note_writes(kLowestBlock, op);
  }
  return late;
}

void MicrobatchSchedule::add_use(std::size_t owner, const std::vector<const RecipeOp*>& ops,
                                 bool weights) {
  Use use{.unit = unit_of(owner), .weights = weights, .begin = steps_.size(), .end = 0};
  for (const RecipeOp* op : ops) {
    if (op->gradient_of && is_frozen(use.unit, *op->gradient_of)) continue;
    if (op->gradient_of) {
      GradientSpan& span = gradients_[use.unit];
      if (!span.first) span.first = steps_.size();
      span.last = steps_.size();
    }
    steps_.push_back({.op = op,
                      .owner = owner,
                      .unit = use.unit,
                      .tensors = {},
                      .acquires = {},
                      .releases = {}});
  }
  use.end = steps_.size();
  if (use.end == use.begin) return;
  uses_.push_back(use);
  if (weights) weight_uses_.push_back(use.unit);
}

void MicrobatchSchedule::make_uses() {
  const auto head = static_cast<std::size_t>(config_.model.layers) + 1;
  const std::size_t end = std::min(span_.end, head);
  // A chunk without blocks has the final norm in its forward.
  const bool only_head = span_.begin == head;
  for (std::size_t owner = span_.begin; owner < end + (only_head ? 1 : 0); ++owner)
    add_use(owner, pointers({&recipe_of(owner).forward}), true);
  forward_uses_ = uses_.size();
  backward_begin_ = steps_.size();
  if (span_.has(head)) {
    const UnitRecipe& last = recipe_of(head);
    std::vector<const RecipeOp*> ops = pointers({train_ ? &last.backward : &last.eval});
    if (!only_head) std::ranges::copy(pointers({&last.forward}), std::inserter(ops, ops.begin()));
    add_use(head, ops, true);
  }
  if (!train_) return;
  const std::size_t lowest = std::max(lowest_trainable_owner(), span_.begin);
  const std::size_t highest = only_head ? kEmbedding : end - 1;
  if (config_.schedule == PipelineSchedule::zb_h1) return make_backward_uses(lowest, highest);
  std::vector<const RecipeOp*> late;
  if (lowest == kEmbedding && span_.has(kLowestBlock)) late = late_gradients();
  for (std::size_t owner = highest; owner + 1 > lowest && owner != kEmbedding; --owner) {
    std::vector<const RecipeOp*> ops = pointers({&recipe_of(owner).backward});
    if (owner == kLowestBlock)
      std::erase_if(ops, [&](const RecipeOp* op) { return std::ranges::count(late, op) > 0; });
    add_use(owner, ops, true);
  }
  if (lowest != kEmbedding) return;
  // The embedding's backward needs token ids and the gradient, but no weights; the late weight
  // gradients need none either.
  add_use(kEmbedding, pointers({&recipe_of(kEmbedding).backward}), false);
  add_use(kLowestBlock, late, false);
}

std::vector<char> MicrobatchSchedule::can_be_late(
    const std::vector<std::pair<std::size_t, const RecipeOp*>>& ops) const {
  std::vector<char> late(ops.size(), 0);
  std::set<std::string> written;                             // by later ops
  std::set<std::pair<std::size_t, ParameterRole>> added_to;  // by later ops that are not late
  for (std::size_t i = ops.size(); i-- > 0;) {
    const auto& [owner, op] = ops[i];
    const auto key = [&, at = owner](const RecipeOperand& operand) {
      return tensor_key(operand.source, at, operand.name, config_);
    };
    const auto can_wait = [&](const RecipeOperand& operand) {
      if (operand.access == Access::scratch) return true;
      if (!is_tensor(operand)) return operand.source == Source::weight_grad;
      return operand.access == Access::read && !written.contains(key(operand));
    };
    if (op->gradient_of && !added_to.contains({owner, *op->gradient_of}) &&
        std::ranges::all_of(op->operands, can_wait)) {
      late[i] = 1;
      continue;
    }
    if (op->gradient_of) added_to.emplace(owner, *op->gradient_of);
    for (const RecipeOperand& operand : op->operands)
      if (is_tensor(operand) && operand.access != Access::read) written.insert(key(operand));
  }
  return late;
}

/// Where weight gradients wait, the rest of backward comes first, then those of blocks that can.
void MicrobatchSchedule::make_backward_uses(std::size_t lowest, std::size_t highest) {
  std::vector<std::pair<std::size_t, const RecipeOp*>> all;
  for (std::size_t owner = highest; owner + 1 > lowest && owner != kEmbedding; --owner)
    for (const RecipeOp& op : recipe_of(owner).backward) all.emplace_back(owner, &op);
  const std::vector<char> late = can_be_late(all);
  const auto add = [&](bool waits) {
    for (std::size_t i = 0; i < all.size();) {
      const std::size_t owner = all[i].first;
      std::vector<const RecipeOp*> ops;
      for (; i < all.size() && all[i].first == owner; ++i)
        if ((late[i] != 0) == waits) ops.push_back(all[i].second);
      add_use(owner, ops, !waits);
    }
  };
  add(false);
  if (lowest == kEmbedding) add_use(kEmbedding, pointers({&recipe_of(kEmbedding).backward}), false);
  backward_uses_ = uses_.size();
  weights_begin_ = steps_.size();
  add(true);
}

std::string MicrobatchSchedule::key_of(const Step& step, const RecipeOperand& operand) const {
  return is_tensor(operand) ? tensor_key(operand.source, step.owner, operand.name, config_)
                            : std::string();
}

/// A tensor lives from the first kernel that touches it to the last.
void MicrobatchSchedule::make_tensors() {
  if (std::exchange(tensors_made_, true)) return;
  const auto head = static_cast<std::size_t>(config_.model.layers) + 1;
  std::unordered_map<std::string, std::pair<const RecipeTensor*, std::size_t>> declared;
  for (std::size_t owner = 0; owner <= head; ++owner)
    for (const RecipeTensor& tensor : recipe_of(owner).tensors) {
      declared.emplace(tensor_key(tensor.source, owner, tensor.name, config_),
                       std::pair{&tensor, owner});
    }
  std::unordered_map<std::string, BufferId> tensors;
  std::unordered_map<BufferId, std::size_t> last_use;
  std::unordered_map<BufferId, std::size_t> joined_at;  // of tensors that exchanges touch
  for (std::size_t i = 0; i < steps_.size(); ++i)
    for (const RecipeOperand& operand : steps_[i].op->operands) {
      BufferId& buffer = steps_[i].tensors.emplace_back();
      if (operand.source == Source::global && operand.name == global::tokens &&
          !state_.stage.is_only())
        last_use[state_.tokens] = i;
      if (!is_tensor(operand)) continue;
      const std::string key = key_of(steps_[i], operand);
      auto found = tensors.find(key);
      if (found == tensors.end()) {
        const auto& [tensor, owner] = declared.at(key);
        std::optional<UnitId> unit;
        if (tensor->source != Source::microbatch) unit = state_.units[unit_of(owner)].id;
        const BufferId id =
            e_.buffer(buffer_name(key, tensor->source),
                      {.category = tensor->category,
                       .dtype = tensor->dtype,
                       .elements = elements_of(*tensor, config_.mesh),
                       .pool = is_received(key) ? PoolRole::received : PoolRole::activations,
                       .unit = unit,
                       .slot_class = tensor->slot_class});
        found = tensors.emplace(key, id).first;
        steps_[steps_[i].beside ? steps_[i].run : i].acquires.push_back(id);
      }
      buffer = found->second;
      last_use[buffer] = i;
      if (steps_[i].beside) joined_at[buffer] = steps_[i].joined_at;
    }
  for (const Step& step : steps_)
    for (const BufferId id : step.acquires) {
      const auto join = joined_at.find(id);
      if (join != joined_at.end() && join->second > last_use.at(id))
        steps_[join->second].released.push_back(id);
      else
        steps_[last_use.at(id)].releases.push_back(id);
    }
  if (!state_.stage.is_only()) make_ends(tensors, last_use);
}

}  // namespace mfsdp::schedule
