// The rules of torch.distributed.fsdp.fully_shard, with the reason for each cost:
//
//   gather     the shards are cast into one flat input, copied into its place of the output, and
//              gathered, all on the stream of gathers; then each parameter is allocated on the
//              compute stream and copied out of the output
//   forward    a block's gather is issued when the host reaches the block, while the GPU computes
//              the previous one; the gathered output is kept until the next one is copied out
//   root       embedding, final norm and head are one group, gathered once, freed after backward
//   backward   the next block's gather is issued before a block's backward
//   reduction  gradients are copied into one flat input (compute stream), after the previous
//              reduction has ended; the reduction's output becomes the gradients' shards
//   ZeRO-2     reshard_after_forward=False: parameters gathered in forward stay until backward has
//              used them, so that each microbatch gathers once
//   HSDP       the reduction's output is summed along the outer axis, in place, on a stream of its
//              own, in every microbatch; it is kept until backward ends
//
// Each parameter is sharded by rows: ceil(rows / ranks) on every rank.
#include "sim/engines/fsdp2.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/engines/adamw.hpp"
#include "sim/engines/block.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/llama_weights.hpp"

namespace mfsdp {
namespace {

// Bytes that one thread block of those kernels copies.
constexpr std::int64_t kCopyOutBlock = 65536;
constexpr std::int64_t kCopyInBlock = 16384;

/// Parameters that are gathered together.
struct Shards {
  UnitId unit;
  std::vector<Weight> weights;
  std::int64_t shard = 0;  ///< elements of this rank, padded
  std::int64_t whole = 0;  ///< of all ranks
  // While the gather's output is live.
  std::optional<Tensor> output{};
  std::vector<Tensor> gathered{};
  std::optional<Mark> gather{};
  std::optional<Mark> reduced{};
  std::optional<Tensor> gradient{};
  std::optional<Tensor> summed{};  ///< along the outer axis, until backward ends
};

class Fsdp2 {
 public:
  Fsdp2(EngineKind engine, const PlanConfig& config, const Meta& meta)
      : config_(config),
        ranks_(config.mesh.size(Axis::dp_shard)),
        outer_(config.mesh.size(Axis::dp_outer)),
        keeps_gathered_(config.strategy == Strategy::optim_grads),
        sizes_(llama_sizes(config)),
        step_(config, meta),
        block_(traits_of(engine).compiles_blocks ? compiled_block(step_, config_)
                                                 : eager_block(step_, config_)),
        ends_(step_, config_,
              traits_of(engine).compiles_loss ? functions_with_compiled_loss(step_, config_)
                                              : eager_functions(step_, config_)) {}

  EnginePlan run(std::int64_t l2_bytes) {
    step_.set_l2_bytes(l2_bytes);
    make_units();
    step_.at(root_id_, Phase::input);
    ends_.keep_inputs();
    step_.write_segments([this](Turn turn) { microbatch(turn.first); }, [this] { optimizer(); });
    return step_.finish();
  }

 private:
  // ---- Parameters --------------------------------------------------------------------------

  [[nodiscard]] std::int64_t padded_rows(const Weight& weight) const {
    return (weight.rows + ranks_ - 1) / ranks_ * ranks_;
  }
  [[nodiscard]] std::int64_t shard_of(const Weight& weight) const {
    return padded_rows(weight) / ranks_ * weight.columns;
  }

  Shards shards(UnitId unit, std::vector<Weight> weights) {
    Shards made{.unit = unit, .weights = std::move(weights)};
    for (const Weight& weight : made.weights) {
      made.shard += shard_of(weight);
      step_.add_padding((padded_rows(weight) - weight.rows) * weight.columns);
    }
    made.whole = made.shard * ranks_;
    return made;
  }

  /// Also the order of optimizers: embedding, blocks, norm, head.
  void make_units() {
    const ModelShape& model = config_.model;
    root_id_ = step_.add_unit("root", UnitKind::embedding_and_head);
    root_ = shards(root_id_, root_weights(model));
    // A tied weight is allocated as the embedding's weight, and again as the head's, which remains.
    std::optional<Tensor> first;
    if (model.tied_embeddings)
      first =
          step_.once("first_embedding", shard_of(root_.weights[0]) * kFull, Category::main_weight);
    else
      keep_weight(root_, 0);
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
      const UnitId unit = step_.add_unit("layers." + std::to_string(layer), UnitKind::block);
      blocks_.push_back(shards(unit, block_weights(model)));
      for (std::size_t i = 0; i < blocks_.back().weights.size(); ++i)
        keep_weight(blocks_.back(), i);
    }
    for (std::size_t i = 1; i < root_.weights.size(); ++i) keep_weight(root_, i);
    if (!first) return;
    keep_weight(root_, 0);
    step_.free_once(*first);
    std::ranges::rotate(owned_, owned_.end() - 1);
  }

  void keep_weight(const Shards& of, std::size_t position) {
    const Weight& weight = of.weights[position];
    step_.at(of.unit, Phase::forward);
    step_.keep(weight.name + "_weight", shard_of(weight) * kFull, Category::main_weight);
    owned_.push_back({of.unit, weight.name, shard_of(weight)});
  }

  // ---- Gathers -----------------------------------------------------------------------------

  /// Temporary metadata of a kernel over many tensors, which assigns blocks to tensors: about 8
  /// bytes for each block, and some for each tensor.
  void foreach_scratch(std::string_view name, std::int64_t blocks, std::size_t tensors) {
    constexpr std::int64_t kBlock = 8;
    constexpr std::int64_t kTensor = 56;
    step_.scratch(name, blocks * kBlock + kTensor * static_cast<std::int64_t>(tensors));
  }

  void unshard(Shards& of) {
    if (ranks_ == 1 || of.output || !of.gathered.empty()) return;
    step_.at(of.unit, phase_);
    step_.host_work(kGatherHook);
    step_.launch_by(Launcher::hook);
    constexpr StreamRole stream = StreamRole::all_gather;
    const std::int64_t own = of.shard * kHalf;
    const Tensor input = step_.allocate("gather_input", own, Category::unsharded_weight, stream);
    step_.memory_bound(KernelKind::cast, "gather_cast", of.shard * (kFull + kHalf), stream);
    of.output =
        step_.allocate("gather_output", of.whole * kHalf, Category::unsharded_weight, stream);
    step_.memory_bound(KernelKind::cast, "gather_copy_in", 2 * own, stream);
    step_.collective(CollectiveKind::all_gather, "all_gather", of.shard, DType::bf16);
    step_.free(input);
    of.gather = step_.record(stream);
    step_.launch_by(Launcher::operators);
  }

  /// A single rank does not gather; it only casts.
  void cast_alone(Shards& of) {
    std::optional<Tensor> before;
    for (const Weight& weight : of.weights) {
      const std::int64_t bytes = shard_of(weight) * kHalf;
      const Tensor cast = step_.allocate(weight.name + "_cast", bytes, Category::unsharded_weight);
      step_.memory_bound(KernelKind::cast, weight.name + "_cast", 3 * bytes);
      if (before) step_.free(*before);
      of.gathered.push_back(
          step_.allocate(weight.name + "_gathered", bytes, Category::unsharded_weight));
      step_.memory_bound(KernelKind::cast, weight.name + "_copy", 2 * bytes);
      before = cast;
    }
    step_.free(*before);
  }

  void wait_for_unshard(Shards& of) {
    step_.at(of.unit, phase_);
    if (!of.gathered.empty()) return;
    step_.host_work(kUseHook);
    step_.launch_by(Launcher::hook);
    if (ranks_ == 1)
      cast_alone(of);
    else
      copy_out(of);
    step_.launch_by(Launcher::operators);
  }

  void copy_out(Shards& of) {
    // Kept until its copies are done, so that this gather could run concurrently with them.
    if (phase_ == Phase::forward && copied_out_) {
      step_.wait(StreamRole::all_gather, *copied_out_);
      copied_out_.reset();
    }
    step_.wait(StreamRole::compute, *of.gather);
    for (const Weight& weight : of.weights)
      of.gathered.push_back(step_.allocate(weight.name + "_gathered",
                                           padded_rows(weight) * weight.columns * kHalf,
                                           Category::unsharded_weight));
    foreach_scratch("copy_out_blocks", of.whole * kHalf / kCopyOutBlock, of.weights.size());
    step_.memory_bound(KernelKind::cast, "gather_copy_out", 2 * of.whole * kHalf);
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

  void free_last_output() {
    if (last_output_) step_.free(*last_output_);
    last_output_.reset();
  }

  void reshard(Shards& of) {
    step_.host_work(kReleaseHook);
    for (const Tensor tensor : of.gathered) step_.free(tensor);
    of.gathered.clear();
  }

  // ---- Reductions --------------------------------------------------------------------------

  /// `gradients` in the order of the weights.
  void reduce(Shards& of, const std::vector<Tensor>& gradients, bool first) {
    step_.at(of.unit, Phase::reduce);
    step_.host_work(kReduceHook);
    const std::int64_t wire = size_of(config_.reduce_dtype);
    if (last_reduction_) step_.wait(StreamRole::compute, *last_reduction_);
    if (last_reduce_input_) step_.free(*last_reduce_input_);
    const Tensor input = step_.allocate("reduce_input", of.whole * wire, Category::unsharded_grad);
    foreach_scratch("copy_in_blocks", of.whole * wire / kCopyInBlock, of.weights.size());
    step_.memory_bound(KernelKind::cast, "reduce_copy_in",
                       {of.whole * (kHalf + wire), AccessPattern::strided});
    // A variable still holds the list's last gradient; the others are freed as the list is emptied.
    const std::size_t held = ranks_ > 1 ? 1 : 0;
    for (std::size_t i = gradients.size() - held; i > 0; --i) step_.free(gradients[i - 1]);
    constexpr StreamRole stream = StreamRole::reduce_scatter;
    step_.wait(stream, step_.record(StreamRole::compute));
    Tensor output = step_.allocate("reduce_output", of.shard * wire, Category::main_grad, stream);
    if (ranks_ > 1)
      step_.collective(CollectiveKind::reduce_scatter, "reduce_scatter", of.shard,
                       config_.reduce_dtype);
    else
      step_.memory_bound(KernelKind::cast, "reduce_copy", 2 * of.shard * wire, stream);
    last_reduction_ = step_.record(stream);
    const StreamRole last = outer_ > 1 ? sum_along_outer(of) : stream;
    if (config_.reduce_dtype != DType::fp32) {
      const Tensor wide = step_.allocate("gradient", of.shard * kFull, Category::main_grad, last);
      step_.memory_bound(KernelKind::cast, "gradient_cast", of.shard * (wire + kFull), last);
      if (outer_ > 1)
        of.summed = output;
      else
        step_.free(output);
      output = wide;
    }
    if (first) {
      of.gradient = output;
    } else {
      step_.memory_bound(KernelKind::accumulate, "accumulate", 3 * of.shard * kFull, last);
      if (outer_ > 1 && !of.summed)
        of.summed = output;
      else
        step_.free(output);
    }
    if (held > 0) step_.free(gradients.back());
    last_reduce_input_ = input;
    of.reduced = step_.record(last);
  }

  StreamRole sum_along_outer(const Shards& of) {
    constexpr StreamRole stream = StreamRole::outer;
    step_.wait(stream, *last_reduction_);
    step_.reduce_outer("outer_reduce", of.shard, config_.reduce_dtype, stream);
    return stream;
  }

  // ---- A microbatch ------------------------------------------------------------------------

  void microbatch(bool first) {
    const std::vector<Tensor> states = forward();
    compute_loss();
    backward(states, first);
  }

  std::vector<Tensor> forward() {
    phase_ = Phase::forward;
    step_.at(root_id_, Phase::forward);
    cosine_ = step_.allocate("cosine_bf16", sizes_.angles, Category::activation);
    sine_ = step_.allocate("sine_bf16", sizes_.angles, Category::activation);
    step_.memory_bound(KernelKind::cast, "angles", 6 * sizes_.angles);
    // Gathers read the weights that the optimizer has written.
    if (ranks_ > 1) step_.wait(StreamRole::all_gather, step_.record(StreamRole::compute));
    unshard(root_);
    wait_for_unshard(root_);
    std::vector<Tensor> states{ends_.embed()};
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      unshard(blocks_[layer]);
      wait_for_unshard(blocks_[layer]);
      states.push_back(block_->forward(layer, states.back()));
      if (!keeps_gathered_) reshard(blocks_[layer]);
    }
    return states;
  }

  void compute_loss() {
    step_.at(root_id_, Phase::forward);
    ends_.forward();
    free_last_output();
  }

  void backward(const std::vector<Tensor>& states, bool first) {
    phase_ = Phase::backward;
    step_.at(root_id_, Phase::backward);
    ends_.begin_backward();
    unshard(blocks_.back());
    step_.at(root_id_, Phase::backward);
    const LlamaEnds::Gradients made = ends_.backward(states.back());
    Tensor gradient = made.state;
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
      gradient = block_backward(layer, states[layer], gradient, first);
    embedding_backward(gradient, made, first);
    ends_.finish();
  }

  Tensor block_backward(std::size_t layer, Tensor input, Tensor gradient, bool first) {
    Shards& own = blocks_[layer];
    unshard(own);
    wait_for_unshard(own);
    if (layer > 0) unshard(blocks_[layer - 1]);
    step_.at(own.unit, Phase::backward);
    // A recomputed block holds its inputs until its end.
    const bool again = config_.recompute.kind == Recompute::full;
    if (layer == 0 && !again) block_->free_angles({.cosine = cosine_, .sine = sine_});
    const BlockGradients made = block_->backward(layer, input, gradient);
    if (layer == 0 && again) step_.free({sine_, cosine_});
    for (const Tensor tensor : made.later) step_.free(tensor);
    reshard(own);
    reduce(own, made.weights, first);
    return made.input;
  }

  void embedding_backward(Tensor gradient, const LlamaEnds::Gradients& head, bool first) {
    step_.at(root_id_, Phase::backward);
    const std::vector<Tensor> gradients = ends_.embedding_backward(gradient, head);
    reshard(root_);
    reduce(root_, gradients, first);
    step_.free(*std::exchange(last_reduce_input_, std::nullopt));
    last_reduction_.reset();
    // The host's next work on the compute stream runs after all reductions.
    for (Shards& block : blocks_) leave(block);
    leave(root_);
  }

  void leave(Shards& of) {
    step_.wait(StreamRole::compute, *of.reduced);
    if (of.summed) step_.free(*std::exchange(of.summed, std::nullopt));
  }

  // ---- Optimizer ---------------------------------------------------------------------------

  void optimizer() {
    std::int64_t elements = 0;
    for (const OwnedWeight& weight : owned_) {
      elements += weight.elements;
      keep_adamw_state(step_, weight);
    }
    step_.at(root_id_, Phase::optimizer);
    update_weights(step_, config_, elements, owned_.size());
    for (Shards& block : blocks_) step_.free(*block.gradient);
    step_.free(*root_.gradient);
  }

  PlanConfig config_;
  std::int64_t ranks_;   ///< that share a copy of the weights
  std::int64_t outer_;   ///< copies
  bool keeps_gathered_;  ///< from forward to backward
  LlamaSizes sizes_;
  StepBuilder step_;
  std::unique_ptr<LlamaBlock> block_;
  LlamaEnds ends_;
  UnitId root_id_;
  Shards root_;
  std::vector<Shards> blocks_;
  std::vector<OwnedWeight> owned_;  ///< in the order of the optimizer
  Phase phase_ = Phase::forward;
  Tensor cosine_;
  Tensor sine_;
  std::optional<Tensor> last_output_;  ///< of a gather in forward
  std::optional<Mark> copied_out_;
  std::optional<Tensor> last_reduce_input_;
  std::optional<Mark> last_reduction_;
};

}  // namespace

EnginePlan fsdp2_plan(EngineKind engine, const PlanConfig& config, const Meta& meta,
                      std::int64_t l2_bytes) {
  return Fsdp2(engine, config, meta).run(l2_bytes);
}

}  // namespace mfsdp
