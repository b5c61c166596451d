// The rules of megatron_fsdp.fully_shard_model, with ZeRO-3 and gradients reduced after every
// microbatch:
//
//   buffers    of each unit's flat layout a rank keeps the main weights in fp32 and the compute
//              weights in bf16; the main gradients of all units are one buffer
//   gather     directly from the compute weights into one buffer, of which the parameters are
//              views; issued after all work that the host has issued so far
//   prefetch   at each block the following blocks are gathered, up to half a billion elements, or
//              up to one block of the largest models; with double buffers only the next one
//   root       embedding, final norm and head are one buffer, which is kept from the first step on
//              and gathered again in every microbatch
//   gradients  each gradient of a block is copied into one buffer of the reduction dtype as soon as
//              it exists; with the last one the buffer is reduced in place and added to the main
//              gradients
//   queue      these buffers are freed when earlier ones have more than a billion elements, and
//              after backward
//   ZeRO-2     the gathered compute weights are kept; a step's first microbatch gathers in place
//   ZeRO-1     as ZeRO-2, and the main gradients are unsharded: a unit's gradients are copied into
//              them and reduced there
//   HSDP       a rank's reduced gradients are summed along the outer axis, on a stream of its own
//   optimizer  writes the main weights, which are copied to the compute weights; then sets the main
//              gradients to zero
//
// In the first microbatch the module after the blocks still counts as one of a forward pass: it
// prefetches the first blocks, which are not used before backward releases them.
#include "sim/engines/megatron_fsdp1.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/block.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/megatron_gradients.hpp"
#include "sim/engines/megatron_units.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

/// Limit of gradient elements in flight; twice the limit for weights.
std::int64_t elements_under_way(const FlatUnits& units) {
  constexpr std::int64_t kLeast = 1'000'000'000;
  std::int64_t block = 0;
  for (const Weight& weight : units.blocks.front().weights) block += weight.elements();
  return std::max(kLeast, 2 * block);
}

class MegatronFsdp1 {
 public:
  MegatronFsdp1(const PlanConfig& config, const Meta& meta, CompileCache cache)
      : config_(config),
        gradient_type_(size_of(config.grad_dtype)),
        pools_(config.allocator == AllocatorPolicy::double_buffer),
        whole_weights_(config.strategy != Strategy::optim_grads_params),
        step_(config, meta),
        block_(fused_block(step_, config_,
                           {.output = OutputGradient::replaced,
                            .made = [this](Tensor gradient) { gradients_.take(gradient); }},
                           cache)),
        ends_(step_, config_, fused_functions(step_, config_),
              [this](Tensor gradient) { gradients_.take(gradient); }),
        units_(flat_units(step_, config_, UnitOrder::longest_rows)),
        owned_(owned_weights(units_)),
        under_way_(elements_under_way(units_)),
        gradients_(step_, config_, units_, under_way_, pools_) {
    std::erase_if(owned_, [](const OwnedWeight& weight) { return weight.elements == 0; });
  }

  EnginePlan run(std::int64_t l2_bytes) {
    step_.set_l2_bytes(l2_bytes);
    set_up(units_.root, false);
    for (FlatUnit& block : units_.blocks) set_up(block, pools_);
    set_up_optimizer();
    step_.at(units_.root.unit, Phase::input);
    ends_.keep_inputs();
    step_.write_segments([this](Turn turn) { microbatch(turn.first); }, [this] { optimizer(); });
    return step_.finish();
  }

 private:
  // ---- Before the first step ---------------------------------------------------------------

  /// Weights are allocated one by one, and copied into the flat buffer.
  void set_up(FlatUnit& of, bool pooled) {
    step_.at(of.unit, Phase::input);
    of.compute_weights =
        step_.keep("compute_weights", (whole_weights_ ? of.whole() : of.shard()) * kHalf,
                   Category::model_weight);
    if (whole_weights_) of.gathered = of.compute_weights;
    std::optional<Tensor> whole;
    if (whole_weights_) {
      // They are allocated at their final place.
    } else if (pooled && weight_slots_ == 0) {
      step_.keep("weight_buffer", of.whole() * kHalf, Category::unsharded_weight);
      ++weight_slots_;
    } else if (!pooled) {
      whole = step_.once("gathered_initial", of.whole() * kHalf, Category::unsharded_weight);
    }
    step_.keep("main_weights", of.shard() * kFull, Category::main_weight);
    for (const std::size_t i : of.placed)
      step_.free_once(step_.once(of.weights[i].name + "_initial", of.weights[i].elements() * kHalf,
                                 Category::unsharded_weight));
    if (whole) step_.free_once(*whole);
  }

  /// A step with zero gradients creates the optimizer's states.
  void set_up_optimizer() {
    std::int64_t shards = units_.root.shard();
    for (const FlatUnit& block : units_.blocks) shards += block.shard();
    if (config_.strategy == Strategy::optim) shards *= config_.mesh.size(Axis::dp_shard);
    main_gradients_ = shards * gradient_type_;
    step_.at(units_.root.unit, Phase::input);
    step_.keep("main_gradients", main_gradients_, Category::main_grad);
    step_.empty_cache();  // at the end of the constructor of its buffers
    std::vector<Tensor> zeros;
    for (const OwnedWeight& weight : owned_) {
      step_.at(weight.unit, Phase::input);
      zeros.push_back(
          step_.once(weight.name + "_zero_gradient", weight.elements * kFull, Category::main_grad));
    }
    for (const OwnedWeight& weight : owned_) keep_adamw_state(step_, weight);
    for (const Tensor zero : zeros) step_.free_once(zero);
  }

  // ---- Gathers -----------------------------------------------------------------------------

  /// The blocks to prefetch when the host is at `layer`, or before or after all layers.
  [[nodiscard]] std::vector<std::size_t> ahead(std::ptrdiff_t layer, std::ptrdiff_t step) const {
    const std::size_t most = pools_ ? 1 : units_.blocks.size();
    std::vector<std::size_t> next;
    std::int64_t elements = 0;
    for (std::ptrdiff_t i = layer + step; i >= 0 && i < std::ssize(units_.blocks); i += step) {
      if (elements >= under_way_ / 2 || next.size() == most) break;
      next.push_back(static_cast<std::size_t>(i));
      elements += units_.blocks[next.back()].whole();
    }
    return next;
  }

  void gather_block(std::size_t layer) {
    FlatUnit& of = units_.blocks[layer];
    if (whole_weights_ ? !gathers_in_place(of) : of.gathered.has_value()) return;
    step_.at(of.unit, phase_);
    step_.host_work(kMegatronGatherHook);
    step_.wait(all_gather, step_.record(compute));
    if (!whole_weights_) of.gathered = weight_buffer(of);
    issue_gather(of);
  }

  /// Whether the unit is gathered in place; only once in a step.
  [[nodiscard]] bool gathers_in_place(const FlatUnit& of) const {
    return first_ && phase_ == Phase::forward && !of.gather;
  }

  Tensor weight_buffer(const FlatUnit& of) {
    const std::int64_t bytes = of.whole() * kHalf;
    if (!pools_) return step_.allocate("gathered", bytes, Category::unsharded_weight, all_gather);
    if (++slots_in_use_ > weight_slots_) {
      ++weight_slots_;
      return step_.keep("weight_buffer", bytes, Category::unsharded_weight, all_gather);
    }
    return of.compute_weights;  // which buffer of the pool it is has no effect here
  }

  void issue_gather(FlatUnit& of) {
    step_.collective(CollectiveKind::all_gather, "all_gather", of.shard(), DType::bf16);
    of.gather = step_.record(all_gather);
  }

  void gather_root() {
    FlatUnit& root = units_.root;
    if (whole_weights_ && !first_) return;
    step_.at(root.unit, phase_);
    step_.wait(all_gather, step_.record(compute));
    if (!root.gathered)
      root.gathered =
          step_.keep("gathered", root.whole() * kHalf, Category::unsharded_weight, all_gather);
    issue_gather(root);
    step_.wait(compute, *root.gather);
  }

  /// Gathers the block's weights, and prefetches those of the blocks after it.
  void use(std::size_t layer, std::ptrdiff_t direction) {
    gather_block(layer);
    for (const std::size_t next : ahead(static_cast<std::ptrdiff_t>(layer), direction))
      gather_block(next);
    FlatUnit& own = units_.blocks[layer];
    step_.at(own.unit, phase_);
    if (own.gather) step_.wait(compute, *own.gather);
  }

  void release(std::size_t layer) {
    step_.host_work(kMegatronReleaseHook);
    if (whole_weights_) return;
    const Tensor buffer = *std::exchange(units_.blocks[layer].gathered, std::nullopt);
    if (pools_)
      --slots_in_use_;
    else
      step_.free(buffer);
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(bool first) {
    first_ = first;
    for (FlatUnit& block : units_.blocks) block.gather.reset();
    const std::vector<Tensor> states = forward();
    const std::vector<Tensor> unused =
        first && !pools_ && !whole_weights_ ? gather_unused() : std::vector<Tensor>{};
    step_.at(units_.root.unit, phase_);
    ends_.forward();
    backward(states, unused);
    if (gradient_type_ != kFull) cast_gradients(first);
  }

  std::vector<Tensor> forward() {
    phase_ = Phase::forward;
    gather_root();
    std::vector<Tensor> states{ends_.embed()};
    for (std::size_t layer = 0; layer < units_.blocks.size(); ++layer) {
      use(layer, 1);
      states.push_back(block_->forward(layer, states.back()));
      release(layer);
    }
    return states;
  }

  std::vector<Tensor> gather_unused() {
    std::vector<Tensor> made;
    for (const std::size_t layer : ahead(-1, 1)) {
      const FlatUnit& of = units_.blocks[layer];
      step_.at(of.unit, phase_);
      made.push_back(step_.once("gathered_unused", of.whole() * kHalf, Category::unsharded_weight,
                                all_gather));
    }
    return made;
  }

  void backward(const std::vector<Tensor>& states, const std::vector<Tensor>& unused) {
    phase_ = Phase::backward;
    step_.at(units_.root.unit, phase_);
    ends_.begin_backward();
    gradients_.begin(MegatronGradients::kRoot);
    const LlamaEnds::Gradients made = ends_.backward(states.back());
    for (const Tensor tensor : unused) step_.free_once(tensor);
    Tensor gradient = made.state;
    for (std::size_t layer = units_.blocks.size(); layer-- > 0;) {
      use(layer, -1);
      gradients_.begin(MegatronGradients::of_block(layer));
      gradient = block_->backward(layer, states[layer], gradient).input;
      release(layer);
    }
    gradients_.begin(MegatronGradients::kRoot);
    step_.at(units_.root.unit, phase_);
    (void)ends_.embedding_backward(gradient, made);
    gradients_.finish();
    ends_.finish();
  }

  /// Casts gradients for the optimizer, which reads them later; each microbatch casts the sum anew.
  void cast_gradients(bool first) {
    for (const OwnedWeight& weight : owned_) {
      step_.at(weight.unit, Phase::optimizer);
      const Tensor cast =
          step_.allocate(weight.name + "_gradient", weight.elements * kFull, Category::main_grad);
      step_.memory_bound(KernelKind::cast, weight.name + "_gradient",
                         weight.elements * (gradient_type_ + kFull));
      if (first)
        casts_.push_back(cast);
      else
        step_.free(cast);
    }
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    std::int64_t elements = 0;
    for (const OwnedWeight& weight : owned_) elements += weight.elements;
    step_.at(units_.root.unit, Phase::optimizer);
    update_weights(step_, config_, elements, owned_.size());
    for (const OwnedWeight& weight : owned_) {
      step_.at(weight.unit, Phase::optimizer);
      step_.memory_bound(KernelKind::cast, weight.name + "_to_compute",
                         weight.elements * (kFull + kHalf));
    }
    step_.at(units_.root.unit, Phase::optimizer);
    for (const Tensor cast : casts_) step_.free(cast);
    step_.memory_bound(KernelKind::zero_padding, "zero_gradients", main_gradients_);
  }

  PlanConfig config_;
  std::int64_t gradient_type_;  ///< bytes of an element of the main gradients
  bool pools_;
  bool whole_weights_;
  bool first_ = true;  ///< microbatch
  StepBuilder step_;
  std::unique_ptr<LlamaBlock> block_;
  LlamaEnds ends_;
  FlatUnits units_;
  std::vector<OwnedWeight> owned_;  ///< that rank 0 has part of
  std::int64_t under_way_;
  MegatronGradients gradients_;
  std::vector<Tensor> casts_;
  std::int64_t main_gradients_ = 0;  ///< bytes
  std::size_t weight_slots_ = 0;
  std::size_t slots_in_use_ = 0;
  Phase phase_ = Phase::forward;
};

}  // namespace

EnginePlan megatron_fsdp1_plan(const PlanConfig& config, const Meta& meta, CompileCache cache,
                               std::int64_t l2_bytes) {
  return MegatronFsdp1(config, meta, cache).run(l2_bytes);
}

}  // namespace mfsdp
