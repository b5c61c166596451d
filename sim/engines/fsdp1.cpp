// The rules of torch.distributed.fsdp.FullyShardedDataParallel with use_orig_params=True,
// MixedPrecision(param_dtype=bf16, reduce_dtype=--reduce-dtype) and one instance for each block and
// for the model:
//
//   weights    each unit has one flat parameter (flat_parameter.hpp); a rank keeps its fp32 shard.
//              The constructor joins a unit's weights in fp32 and keeps the shard. The first forward
//              makes and frees the tensors that it will need: the shard in bf16, and the whole flat
//              parameter in bf16 and in fp32
//   gather     the shard is cast to bf16 on a stream of its own, then gathered into the whole flat
//              parameter, of which the weights are views: nothing is copied out
//   limit_all_gathers  frees of flat parameters are in a queue; if it has two or more, a unit that
//              is about to be used or prefetched takes the first and waits until the GPU has passed
//              it, also where it is gathered already. Without it the host never waits, as if it were
//              a whole microbatch ahead of the GPU: most memory that the option can cost
//   forward    a block's gather is issued when the host reaches the block; with forward_prefetch, when
//              it reaches the block before. The root is not freed after forward
//   backward   with backward_prefetch (BACKWARD_PRE) the next block's gather is issued before a
//              block's backward; without it, when the host reaches the block
//   reduction  autograd joins a unit's gradients in one flat bf16 tensor, on the stream of gathers, as
//              the views of the weights were made there. On a stream of its own it is cast to the type
//              of reductions, divided, and reduce-scattered; the shard becomes fp32
//   SHARD_GRAD_OP (optim_grads)  blocks stay gathered from forward to backward
//   no_sync    microbatches before the last add flat bf16 gradients, whole on every rank. Autograd holds
//              what it has added until the hook of the flat parameter ends
//
// Shards in bf16, joined gradients and, in forward, flat parameters are freed when the host reaches
// that point (record_stream). Their memory is used again when the host knows that the GPU has passed
// it. In backward the hook runs on the stream of gathers, and a flat parameter is free at once.
#include "sim/engines/fsdp1.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/block.hpp"
#include "sim/engines/flat_parameter.hpp"
#include "sim/engines/gpt_block.hpp"
#include "sim/engines/llama_ends.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

constexpr StreamRole kCasts = outer;  ///< shards to bf16
constexpr std::size_t kFreedInFlight = 2;

struct Fsdp1Unit {
  UnitId unit;
  FlatParameter flat;
  std::optional<Tensor> gathered{};
  std::optional<Mark> gather{};
  bool is_prefetched = false;
  std::optional<Tensor> whole_gradient{};  ///< of microbatches under no_sync
  std::optional<Tensor> gradient{};        ///< the rank's shard
};

class Fsdp1 {
 public:
  Fsdp1(const PlanConfig& config, const Meta& meta, const EngineOptions& options)
      : config_(config),
        limits_(options.is_on(EngineKind::fsdp1, "limit_all_gathers")),
        prefetches_forward_(options.is_on(EngineKind::fsdp1, "forward_prefetch")),
        prefetches_backward_(options.is_on(EngineKind::fsdp1, "backward_prefetch")),
        no_sync_(options.is_on(EngineKind::fsdp1, "no_sync")),
        keeps_gathered_(config.strategy == Strategy::optim_grads),
        wire_(size_of(config.reduce_dtype)),
        sizes_(llama_sizes(config)),
        step_(config, meta),
        block_(is_gpt() ? gpt_block(step_, config_) : eager_block(step_, config_)),
        ends_(is_gpt()
                  ? gpt_ends(step_, config_)
                  : std::make_unique<LlamaEnds>(step_, config_, eager_functions(step_, config_))) {
    step_.add_spare_stream("casts of shards");
  }

  EnginePlan run() {
    ends_->add_tied_on(all_gather);
    set_up();
    if (limits_) freed_.resize(freed_after_step());
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { optimizer(); },
                         no_sync_);
    return step_.finish();
  }

 private:
  [[nodiscard]] bool is_gpt() const { return config_.model.family == Family::gpt2; }
  [[nodiscard]] bool rotates() const { return config_.model.traits().rotates; }

  // ---- Before the first step ---------------------------------------------------------------

  Fsdp1Unit add_unit(std::string_view name, UnitKind kind, std::vector<Weight> weights) {
    Fsdp1Unit made{.unit = step_.add_unit(name, kind),
                   .flat = flat_parameter(std::move(weights), config_.mesh.size(Axis::dp_shard))};
    step_.add_padding(made.flat.padding());
    return made;
  }

  void set_up() {
    root_ = add_unit("root", UnitKind::embedding_and_head, root_weights(config_.model));
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
      blocks_.push_back(add_unit("layers." + std::to_string(layer), UnitKind::block,
                                 block_weights(config_.model)));
    for (const Fsdp1Unit& block : blocks_) keep_shard(block);
    keep_shard(root_);
    step_.at(root_.unit, Phase::input);
    ends_->keep_inputs();
    make_and_free(root_);
    for (const Fsdp1Unit& block : blocks_) make_and_free(block);
  }

  void keep_shard(const Fsdp1Unit& of) {
    step_.at(of.unit, Phase::input);
    std::vector<Tensor> initial;
    for (const Weight& weight : of.flat.weights)
      initial.push_back(step_.once(weight.name + "_initial", weight.elements() * kFull,
                                   Category::unsharded_weight));
    const Tensor flat =
        step_.once("flat_initial", of.flat.elements * kFull, Category::unsharded_weight);
    step_.keep("flat_shard", of.flat.shard() * kFull, Category::main_weight);
    step_.free_once(flat);
    for (const Tensor tensor : initial) step_.free_once(tensor);
  }

  void make_and_free(const Fsdp1Unit& of) {
    step_.at(of.unit, Phase::input);
    for (const std::int64_t bytes :
         {of.flat.shard() * kHalf, of.flat.elements * kHalf, of.flat.elements * kFull})
      step_.free_once(step_.once("made_and_freed", bytes, Category::unsharded_weight));
  }

  // ---- Gathers -----------------------------------------------------------------------------

  void wait_for_a_free() {
    if (!limits_ || freed_.size() < kFreedInFlight) return;
    if (freed_.front()) step_.host_wait(*freed_.front());
    freed_.pop_front();
  }

  void unshard(Fsdp1Unit& of) {
    step_.at(of.unit, phase_);
    if (of.gathered) {
      wait_for_a_free();
      return;
    }
    step_.host_work(kGatherHook);
    step_.launch_by(Launcher::hook);
    const std::int64_t own = of.flat.shard() * kHalf;
    const Tensor shard = step_.allocate("shard_bf16", own, Category::unsharded_weight, kCasts);
    step_.memory_bound(KernelKind::cast, "shard_cast", of.flat.shard() * (kFull + kHalf), kCasts);
    step_.wait(all_gather, step_.record(kCasts));
    wait_for_a_free();
    of.gathered = step_.allocate("flat_parameter", of.flat.elements * kHalf,
                                 Category::unsharded_weight, all_gather);
    step_.collective(CollectiveKind::all_gather, "all_gather", of.flat.shard(), DType::bf16);
    step_.free_after(shard, all_gather);
    of.gather = step_.record(all_gather);
    step_.launch_by(Launcher::operators);
  }

  void prefetch(Fsdp1Unit& of) {
    unshard(of);
    of.is_prefetched = true;
  }

  void use(Fsdp1Unit& of) {
    if (!std::exchange(of.is_prefetched, false)) unshard(of);
    step_.at(of.unit, phase_);
    step_.host_work(kUseHook);
    step_.wait(compute, *of.gather);
  }

  /// `stream`: the one that the host's calls are on.
  void reshard(Fsdp1Unit& of, StreamRole stream) {
    step_.host_work(kReleaseHook);
    step_.free_after(*std::exchange(of.gathered, std::nullopt), stream);
    freed_.emplace_back(step_.record(stream));
  }

  /// Frees that the host has not waited for when a step ends, in the long run.
  [[nodiscard]] std::size_t freed_after_step() const {
    constexpr int kRounds = 3;
    std::size_t freed = 0;
    const auto gather = [&] { freed -= freed >= kFreedInFlight ? 1 : 0; };
    for (int round = 0; round < kRounds; ++round) {
      gather();
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        gather();
        if (!keeps_gathered_) ++freed;
      }
      gather();  // the root again
      if (prefetches_backward_) gather();
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (!prefetches_backward_ || i + 1 < blocks_.size()) gather();
        ++freed;
      }
      ++freed;
    }
    return freed;
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(Turn turn) {
    turn_ = turn;
    const std::vector<Tensor> states = forward();
    backward(states);
  }

  std::vector<Tensor> forward() {
    phase_ = Phase::forward;
    step_.at(root_.unit, phase_);
    // Gathers read what the optimizer has written.
    const Mark written = step_.record(compute);
    step_.wait(kCasts, written);
    step_.wait(all_gather, written);
    if (rotates()) {
      cosine_ = step_.allocate("cosine_bf16", sizes_.angles, Category::activation);
      sine_ = step_.allocate("sine_bf16", sizes_.angles, Category::activation);
      step_.memory_bound(KernelKind::cast, "angles", 6 * sizes_.angles);
    }
    use(root_);
    if (prefetches_forward_) prefetch(blocks_.front());
    step_.at(root_.unit, phase_);
    std::vector<Tensor> states{ends_->embed()};
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      use(blocks_[layer]);
      if (prefetches_forward_ && layer + 1 < blocks_.size()) prefetch(blocks_[layer + 1]);
      step_.at(blocks_[layer].unit, phase_);
      states.push_back(block_->forward(layer, states.back()));
      if (!keeps_gathered_) reshard(blocks_[layer], compute);
    }
    step_.at(root_.unit, phase_);
    ends_->head(states.back());
    ends_->loss();
    return states;
  }

  void backward(const std::vector<Tensor>& states) {
    phase_ = Phase::backward;
    step_.at(root_.unit, phase_);
    ends_->begin_backward();
    unshard(root_);
    if (prefetches_backward_) prefetch(blocks_.back());
    step_.at(root_.unit, phase_);
    const LlamaEnds::Gradients head = ends_->backward(states.back());
    Tensor gradient = head.state;
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
      gradient = block_backward(layer, states[layer], gradient);
    step_.at(root_.unit, phase_);
    end_unit(root_, ends_->embedding_backward(gradient, head));
    ends_->finish();
    step_.wait(compute, step_.record(reduce_scatter));
  }

  Tensor block_backward(std::size_t layer, Tensor input, Tensor gradient) {
    Fsdp1Unit& own = blocks_[layer];
    use(own);
    if (prefetches_backward_ && layer > 0) prefetch(blocks_[layer - 1]);
    step_.at(own.unit, phase_);
    // A recomputed block holds its inputs until its end.
    const bool again = config_.recompute.kind == Recompute::full;
    const bool is_last_use = layer == 0 && rotates();
    if (is_last_use && !again) block_->free_angles({.cosine = cosine_, .sine = sine_});
    const BlockGradients made = block_->backward(layer, input, gradient);
    if (is_last_use && again) step_.free({sine_, cosine_});
    end_unit(own, made.weights);
    return made.input;
  }

  /// Autograd joins the gradients; the hook of the flat parameter frees it and reduces them.
  void end_unit(Fsdp1Unit& of, const std::vector<Tensor>& gradients) {
    const std::int64_t elements = of.flat.elements;
    step_.wait(all_gather, step_.record(compute));
    Tensor flat =
        step_.allocate("flat_gradient", elements * kHalf, Category::unsharded_grad, all_gather);
    step_.memory_bound(KernelKind::cast, "join_gradients", 2 * elements * kHalf, all_gather);
    for (const Tensor tensor : gradients) step_.free_after(tensor, all_gather);
    std::optional<Tensor> added;
    if (of.whole_gradient) {
      step_.memory_bound(KernelKind::accumulate, "accumulate", 3 * elements * kHalf, all_gather);
      added = std::exchange(flat, *of.whole_gradient);
    }
    const bool syncs = !no_sync_ || turn_.last;
    if (syncs || !keeps_gathered_) reshard(of, all_gather);
    of.whole_gradient.reset();
    if (syncs)
      reduce(of, flat);
    else
      of.whole_gradient = flat;
    // Autograd holds what it has added until the hook ends.
    if (added) step_.free(*added);
  }

  void reduce(Fsdp1Unit& of, Tensor flat) {
    step_.at(of.unit, Phase::reduce);
    step_.host_work(kReduceHook);
    step_.launch_by(Launcher::hook);
    step_.wait(reduce_scatter, step_.record(all_gather));
    const std::int64_t elements = of.flat.elements;
    std::optional<Tensor> wide;
    if (wire_ != kHalf) {
      wide = step_.allocate("gradient_fp32", elements * wire_, Category::unsharded_grad,
                            reduce_scatter);
      step_.memory_bound(KernelKind::cast, "gradient_fp32", elements * (kHalf + wire_),
                         reduce_scatter);
    }
    Tensor shard = step_.allocate("gradient_shard", of.flat.shard() * wire_, Category::main_grad,
                                  reduce_scatter);
    step_.memory_bound(KernelKind::accumulate, "divide", 2 * elements * wire_, reduce_scatter);
    step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.flat.shard(),
                     config_.reduce_dtype);
    step_.memory_bound(KernelKind::accumulate, "divide_shard", 2 * of.flat.shard() * wire_,
                       reduce_scatter);
    if (wire_ != kFull) {
      const Tensor full = step_.allocate("gradient_shard_fp32", of.flat.shard() * kFull,
                                         Category::main_grad, reduce_scatter);
      step_.memory_bound(KernelKind::cast, "gradient_shard_fp32", of.flat.shard() * (wire_ + kFull),
                         reduce_scatter);
      step_.free(shard);
      shard = full;
    }
    if (wide) step_.free(*wide);
    if (of.gradient) {
      step_.memory_bound(KernelKind::accumulate, "accumulate_shard", 3 * of.flat.shard() * kFull,
                         reduce_scatter);
      step_.free(shard);
    } else {
      of.gradient = shard;
    }
    step_.free_after(flat, reduce_scatter);
    step_.launch_by(Launcher::operators);
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    std::int64_t elements = 0;
    std::size_t parameters = 0;
    const auto keep_states = [&](const Fsdp1Unit& of) {
      for (std::size_t i = 0; i < of.flat.weights.size(); ++i) {
        const std::int64_t owned = of.flat.owned(i);
        if (owned == 0) continue;
        keep_adamw_state(step_, {of.unit, of.flat.weights[i].name, owned});
        elements += owned;
        ++parameters;
      }
    };
    keep_states(root_);
    for (const Fsdp1Unit& block : blocks_) keep_states(block);
    step_.at(root_.unit, Phase::optimizer);
    update_weights(step_, config_, elements, parameters);
    for (const Fsdp1Unit& block : blocks_) step_.free(*block.gradient);
    step_.free(*root_.gradient);
  }

  PlanConfig config_;
  bool limits_;
  bool prefetches_forward_;
  bool prefetches_backward_;
  bool no_sync_;
  bool keeps_gathered_;  ///< from forward to backward
  std::int64_t wire_;    ///< bytes of an element in reductions
  LlamaSizes sizes_;
  StepBuilder step_;
  std::unique_ptr<LlamaBlock> block_;
  std::unique_ptr<LlamaEnds> ends_;
  Fsdp1Unit root_{};
  std::vector<Fsdp1Unit> blocks_{};
  Phase phase_ = Phase::forward;
  Turn turn_{};
  Tensor cosine_{};
  Tensor sine_{};
  /// Frees of flat parameters that the host has not waited for; those of the last step have no mark,
  /// as the host has waited for the step.
  std::deque<std::optional<Mark>> freed_{};
};

}  // namespace

EnginePlan fsdp1_plan(const PlanConfig& config, const Meta& meta, const EngineOptions& options) {
  return Fsdp1(config, meta, options).run();
}

}  // namespace mfsdp
