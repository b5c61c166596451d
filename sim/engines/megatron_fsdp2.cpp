// The rules of megatron_fsdp.experimental.fully_shard:
//
//   buffers    of each unit's flat layout a rank keeps the main weights in fp32, the compute
//              weights in bf16 and the main gradients
//   gather     directly from the compute weights into one buffer, of which the parameters are
//              views; allocated on the stream of gathers
//   forward    the next block's gather is issued when a block begins; a block's buffer is freed
//              when it ends, after the GPU's work with it
//   root       embedding, final norm and head are gathered in forward, freed after the loss, and
//              gathered again when backward begins
//   backward   the next block's gather is issued when a block begins
//   reduction  with the last gradient of a block, its gradients are copied into one buffer,
//              allocated on the stream of reductions. It is reduced in bf16, for any type of the
//              main gradients, into these or into another buffer
//   ZeRO-2     the first gather of a step replaces the rank's compute weights; its result stays
//              until the next step's gather, because parameters are views of it
//   ZeRO-1     as ZeRO-2, and the main gradients are unsharded; the last microbatch reduces them to
//              the rank's shard, which is freed when the next step allocates the full copy
//   HSDP       the last microbatch copies the main gradients and sums the copy along the outer axis
//   optimizer  reads gradients cast to fp32; then the compute weights are allocated and cast anew
//
// Python's hooks hold the gradient of a block's output until the end of the block's backward, and
// allocate zero gradients for the angles.
#include "sim/engines/megatron_fsdp2.hpp"

#include <string>
#include <utility>
#include <vector>

#include "sim/engines/block.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/megatron_units.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

class MegatronFsdp2 {
 public:
  MegatronFsdp2(bool fused, const PlanConfig& config, const Meta& meta)
      : config_(config),
        gradient_type_(size_of(config.grad_dtype)),
        whole_weights_(config.strategy != Strategy::optim_grads_params),
        whole_gradients_(config.strategy == Strategy::optim),
        outer_(config.mesh.size(Axis::dp_outer) > 1),
        sizes_(llama_sizes(config)),
        step_(config, meta),
        block_(fused ? fused_block(step_, config_, {.output = OutputGradient::held})
                     : eager_block(step_, config_, {.output = OutputGradient::held})),
        ends_(step_, config_,
              fused ? fused_functions(step_, config_) : eager_functions(step_, config_)),
        units_(flat_units(step_, config_, UnitOrder::modules)) {}

  EnginePlan run(std::int64_t l2_bytes) {
    step_.set_l2_bytes(l2_bytes);
    for (FlatUnit& block : units_.blocks) set_up(block);
    set_up(units_.root);
    step_.at(units_.root.unit, Phase::input);
    ends_.keep_inputs();
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { optimizer(); },
                         whole_gradients_ || outer_);
    return step_.finish();
  }

 private:
  // ---- Before the first step ---------------------------------------------------------------

  /// Weights are allocated in full, then as the rank's shard of fp32 copies.
  void set_up(FlatUnit& of) {
    step_.at(of.unit, Phase::input);
    std::vector<Tensor> whole = each_weight(of, "_initial", kHalf);
    for (const Tensor copy : main_weights(of)) step_.free_once(copy);
    const std::int64_t own = of.shard() * kHalf;
    of.compute_weights =
        whole_weights_ ? step_.rest("compute_weights", own, Category::model_weight, all_gather)
                       : step_.keep("compute_weights", own, Category::model_weight, all_gather);
    whole.push_back(step_.once("gathered_initial", of.whole() * kHalf, Category::unsharded_weight));
    of.main_gradients = main_gradients(of);
    if (whole_weights_)
      of.whole_weights = step_.keep_by_renewal("gathered", of.whole() * kHalf,
                                               Category::unsharded_weight, all_gather);
    for (const Tensor tensor : whole) step_.free_once(tensor);
  }

  Tensor main_gradients(const FlatUnit& of) {
    if (whole_gradients_)
      return step_.begin_with("whole_gradients", of.whole() * gradient_type_, Category::main_grad,
                              reduce_scatter);
    return step_.keep("main_gradients", of.shard() * gradient_type_, Category::main_grad,
                      reduce_scatter);
  }

  /// The copies from which they were made, still live.
  std::vector<Tensor> main_weights(const FlatUnit& of) {
    std::vector<Tensor> copies = each_weight(of, "_initial_fp32", kFull);
    step_.keep("main_weights", of.shard() * kFull, Category::main_weight);
    return copies;
  }

  std::vector<Tensor> each_weight(const FlatUnit& of, std::string_view suffix,
                                  std::int64_t element) {
    std::vector<Tensor> made;
    for (const Weight& weight : of.weights)
      made.push_back(step_.once(weight.name + std::string(suffix), weight.elements() * element,
                                Category::unsharded_weight));
    return made;
  }

  // ---- Gathers and reductions --------------------------------------------------------------

  void gather(FlatUnit& of) {
    if (of.gather) return;
    step_.at(of.unit, phase_);
    step_.host_work(kMegatronGatherHook);
    if (!of.gathered) {
      of.gathered = whole_weights_ ? step_.renew(of.whole_weights)
                                   : step_.allocate("gathered", of.whole() * kHalf,
                                                    Category::unsharded_weight, all_gather);
      step_.collective(CollectiveKind::all_gather, "all_gather", of.shard(), DType::bf16);
      if (whole_weights_) step_.free({of.compute_weights, *of.gathered});
    }
    of.gather = step_.record(all_gather);
  }

  void use(FlatUnit& of) {
    gather(of);
    step_.at(of.unit, phase_);
    step_.wait(compute, *of.gather);
  }

  void release(FlatUnit& of) {
    step_.at(of.unit, phase_);
    step_.host_work(kMegatronReleaseHook);
    step_.wait(all_gather, step_.record(compute));
    of.gather.reset();
    if (!whole_weights_) step_.free(*std::exchange(of.gathered, std::nullopt));
  }

  /// `gradients` in the order of the weights.
  void reduce(FlatUnit& of, const std::vector<Tensor>& gradients, Turn turn) {
    step_.at(of.unit, Phase::reduce);
    step_.host_work(kMegatronReduceHook);
    const Tensor packed = step_.allocate("packed_gradients", of.whole() * kHalf,
                                         Category::unsharded_grad, reduce_scatter);
    step_.wait(compute, step_.record(reduce_scatter));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      step_.memory_bound(KernelKind::cast, of.weights[i].name + "_pack",
                         2 * of.weights[i].elements() * kHalf);
      step_.free(gradients[i]);
    }
    step_.wait(reduce_scatter, step_.record(compute));
    std::optional<Tensor> reduced;  // held to the end
    if (whole_gradients_)
      add_whole(of, turn);
    else if (turn.first && gradient_type_ == kHalf)
      scatter(of);
    else
      reduced = scatter_and_add(of, turn.first);
    if (outer_ && turn.last) sum_along_outer(of);
    if (reduced) step_.free(*reduced);
    step_.free(packed);
  }

  /// Adds to the full main gradients; the last microbatch reduces them to the rank's shard.
  void add_whole(FlatUnit& of, Turn turn) {
    if (turn.first) begin_whole(of);
    const std::int64_t read = turn.first ? 0 : gradient_type_;
    step_.memory_bound(turn.first ? KernelKind::cast : KernelKind::accumulate, "add_gradients",
                       of.whole() * (read + kHalf + gradient_type_), reduce_scatter);
    if (!turn.last) return;
    step_.allocate_again(*of.reduced);
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.shard(),
                     config_.grad_dtype);
    step_.free(of.main_gradients);
  }

  /// Allocates the full main gradients and frees the shard; in the first step the full copy already
  /// exists, and no shard does.
  void begin_whole(FlatUnit& of) {
    if (!of.reduced)
      of.reduced = step_.rest_from_first("main_gradients", of.shard() * gradient_type_,
                                         Category::main_grad, reduce_scatter);
    step_.allocate_again(of.main_gradients);
    step_.free(*of.reduced);
  }

  void sum_along_outer(const FlatUnit& of) {
    const Tensor sum = step_.renew(of.main_gradients);
    step_.memory_bound(KernelKind::cast, "copy_gradients", 2 * of.shard() * gradient_type_,
                       reduce_scatter);
    step_.reduce_outer("outer_reduce", of.shard(), config_.grad_dtype, reduce_scatter);
    step_.free(sum);
  }

  void scatter(const FlatUnit& of) {
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.shard(), DType::bf16);
  }

  Tensor scatter_and_add(const FlatUnit& of, bool first) {
    const Tensor reduced = step_.allocate("reduced_gradients", of.shard() * kHalf,
                                          Category::main_grad, reduce_scatter);
    scatter(of);
    const std::int64_t read = first ? 0 : gradient_type_;
    step_.memory_bound(first ? KernelKind::cast : KernelKind::accumulate, "add_gradients",
                       of.shard() * (read + kHalf + gradient_type_), reduce_scatter);
    return reduced;
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Turn turn) {
    const std::vector<Tensor> states = forward();
    backward(states, turn);
  }

  std::vector<Tensor> forward() {
    phase_ = Phase::forward;
    FlatUnit& root = units_.root;
    step_.at(root.unit, phase_);
    step_.wait(all_gather, step_.record(compute));
    use(root);
    gather(units_.blocks.front());
    step_.at(root.unit, phase_);
    std::vector<Tensor> states{ends_.embed()};
    for (std::size_t layer = 0; layer < units_.blocks.size(); ++layer) {
      FlatUnit& block = units_.blocks[layer];
      use(block);
      if (layer + 1 < units_.blocks.size()) gather(units_.blocks[layer + 1]);
      step_.at(block.unit, phase_);
      states.push_back(block_->forward(layer, states.back()));
      release(block);
    }
    step_.at(root.unit, phase_);
    ends_.forward();
    release(root);
    return states;
  }

  void backward(const std::vector<Tensor>& states, Turn turn) {
    phase_ = Phase::backward;
    FlatUnit& root = units_.root;
    step_.at(root.unit, phase_);
    ends_.begin_backward();
    step_.wait(reduce_scatter, step_.record(compute));
    use(root);
    gather(units_.blocks.back());
    step_.at(root.unit, phase_);
    const LlamaEnds::Gradients made = ends_.backward(states.back());
    Tensor gradient = made.state;
    for (std::size_t layer = units_.blocks.size(); layer-- > 0;)
      gradient = block_backward(layer, states[layer], gradient, turn);
    embedding_backward(gradient, made, turn);
    ends_.finish();
    step_.wait(compute, step_.record(reduce_scatter));
  }

  Tensor block_backward(std::size_t layer, Tensor input, Tensor gradient, Turn turn) {
    FlatUnit& own = units_.blocks[layer];
    use(own);
    if (layer > 0) gather(units_.blocks[layer - 1]);
    step_.at(own.unit, phase_);
    const BlockGradients made = block_->backward(layer, input, gradient);
    release(own);
    reduce(own, made.weights, turn);
    step_.at(own.unit, phase_);
    leave(made.later);
    return made.input;
  }

  /// The hook after a block.
  void leave(const std::vector<Tensor>& held) {
    const std::int64_t angles = 2 * sizes_.angles;  // in fp32
    std::vector<Tensor> zeros;
    for (const char* name : {"d_cosine", "d_sine"}) {
      zeros.push_back(step_.allocate(name, angles, Category::activation));
      step_.memory_bound(KernelKind::zero_padding, name, angles);
    }
    for (const Tensor tensor : held) step_.free(tensor);
    for (const Tensor tensor : zeros) step_.free(tensor);
  }

  void embedding_backward(Tensor gradient, const LlamaEnds::Gradients& head, Turn turn) {
    step_.at(units_.root.unit, phase_);
    const std::vector<Tensor> gradients = ends_.embedding_backward(gradient, head);
    release(units_.root);
    reduce(units_.root, gradients, turn);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    const std::vector<OwnedWeight> owned = owned_weights(units_);
    std::vector<Tensor> casts;
    std::int64_t elements = 0;
    for (const OwnedWeight& weight : owned) {
      elements += weight.elements;
      if (gradient_type_ == kHalf && weight.elements > 0) casts.push_back(cast_gradient(weight));
    }
    for (const OwnedWeight& weight : owned) keep_adamw_state(step_, weight);
    step_.at(units_.root.unit, Phase::optimizer);
    update_weights(step_, config_, elements, owned.size());
    for (const Tensor cast : casts) step_.free(cast);
    write_compute_weights(units_.root);
    for (const FlatUnit& block : units_.blocks) write_compute_weights(block);
  }

  Tensor cast_gradient(const OwnedWeight& weight) {
    step_.at(weight.unit, Phase::optimizer);
    const Tensor cast =
        step_.allocate(weight.name + "_gradient", weight.elements * kFull, Category::main_grad);
    step_.memory_bound(KernelKind::cast, weight.name + "_gradient",
                       weight.elements * (kHalf + kFull));
    return cast;
  }

  /// Allocates the compute weights while those of the previous step are still live.
  void write_compute_weights(const FlatUnit& of) {
    step_.at(of.unit, Phase::optimizer);
    step_.wait(all_gather, step_.record(compute));
    std::optional<Tensor> old;
    if (whole_weights_)
      step_.allocate_again(of.compute_weights);
    else
      old = step_.renew(of.compute_weights);
    step_.memory_bound(KernelKind::cast, "compute_weights", of.shard() * (kFull + kHalf),
                       all_gather);
    if (old) step_.free(*old);
    step_.wait(compute, step_.record(all_gather));
  }

  PlanConfig config_;
  std::int64_t gradient_type_;  ///< bytes of an element of the main gradients
  bool whole_weights_;          ///< from the first gather to the optimizer
  bool whole_gradients_;        ///< until the last microbatch
  bool outer_;
  LlamaSizes sizes_;
  StepBuilder step_;
  std::unique_ptr<LlamaBlock> block_;
  LlamaEnds ends_;
  FlatUnits units_;
  Phase phase_ = Phase::forward;
};

}  // namespace

EnginePlan megatron_fsdp2_plan(EngineKind engine, const PlanConfig& config, const Meta& meta,
                               std::int64_t l2_bytes) {
  return MegatronFsdp2(traits_of(engine).fuses_elementwise, config, meta).run(l2_bytes);
}

}  // namespace mfsdp
