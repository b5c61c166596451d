// A step under FSDP2, whose rules fsdp2_units.hpp has. Its blocks are those of block.hpp, or of
// module_block.hpp where the model's code is another.
#include "sim/engines/fsdp2.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/engines/block.hpp"
#include "sim/engines/fsdp2_units.hpp"
#include "sim/engines/gpt_block.hpp"
#include "sim/engines/llama_ends.hpp"
#include "sim/engines/llama_weights.hpp"
#include "sim/engines/module_block.hpp"
#include "sim/engines/module_weights.hpp"
#include "sim/engines/rank_model.hpp"

namespace mfsdp {
namespace {

class Fsdp2 {
 public:
  Fsdp2(EngineKind engine, const PlanConfig& config, const EngineOptions& options, const Meta& meta)
      : config_(config_of_rank(config)),
        options_(engine, options),
        sizes_(llama_sizes(config_)),
        step_(config, meta),
        units_(step_, config_, options_),
        block_(make_block(traits_of(engine).compiles_blocks)),
        ends_(make_ends(traits_of(engine).compiles_loss)) {}

  EnginePlan run(std::int64_t l2_bytes) {
    step_.set_l2_bytes(l2_bytes);
    std::vector<std::vector<Weight>> blocks;
    for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
      blocks.push_back(weights_of_block(layer));
    units_.make(blocks, root_weights(config_.model));
    step_.at(units_.root(), Phase::input);
    ends_->keep_inputs();
    step_.write_segments([this](Turn turn) { microbatch(turn); }, [this] { units_.optimizer(); },
                         options_.accumulate_unsharded);
    return step_.finish();
  }

 private:
  [[nodiscard]] std::vector<Weight> weights_of_block(std::int64_t layer) const {
    std::vector<Weight> weights = is_fused() ? block_weights(config_.model)
                                             : module_weights(config_, options_.modules, layer);
    if (options_.float8.gathers_fp8 && config_.has_fp8(layer))
      for (Weight& weight : weights) weight.in_fp8 = weight.columns > 1;
    return weights;
  }
  [[nodiscard]] bool is_fused() const { return options_.modules == Modules::fused; }
  [[nodiscard]] bool is_gpt() const { return config_.model.family == Family::gpt2; }
  [[nodiscard]] bool rotates() const { return config_.model.traits().rotates; }

  std::unique_ptr<LlamaBlock> make_block(bool compiles) {
    const std::int64_t every = options_.selective_ac.every;
    if (!is_fused())
      return compiles ? compiled_module_block(step_, config_, options_)
                      : eager_module_block(step_, config_, options_, units_);
    if (is_gpt()) return gpt_block(step_, config_, every);
    if (config_.has_fp8()) return compiled_module_block(step_, config_, options_);
    if (compiles) return compiled_block(step_, config_, every);
    return eager_block(step_, config_,
                       {.output = OutputGradient::overwritten, .made = {}, .every = every});
  }

  std::unique_ptr<LlamaEnds> make_ends(bool compiles_loss) {
    if (!is_fused()) return module_ends(step_, config_, options_, compiles_loss);
    if (is_gpt()) return gpt_ends(step_, config_);
    return std::make_unique<LlamaEnds>(step_, config_,
                                       compiles_loss ? functions_with_compiled_loss(step_, config_)
                                                     : eager_functions(step_, config_));
  }

  void microbatch(Turn turn) {
    units_.begin(turn);
    const std::vector<Tensor> states = forward();
    compute_loss(states.back());
    backward(states);
  }

  std::vector<Tensor> forward() {
    step_.at(units_.root(), Phase::forward);
    if (rotates()) {
      cosine_ = step_.allocate("cosine_bf16", sizes_.angles, Category::activation);
      sine_ = step_.allocate("sine_bf16", sizes_.angles, Category::activation);
      step_.memory_bound(KernelKind::cast, "angles", 6 * sizes_.angles);
    }
    make_mask();
    units_.begin_forward();
    units_.pre_forward(UnitPlace::embedding);
    std::vector<Tensor> states{ends_->embed()};
    units_.post_forward(UnitPlace::embedding);
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      units_.pre_forward(UnitPlace::block, layer);
      step_.at(units_.block(layer), Phase::forward);
      states.push_back(block_->forward(layer, states.back()));
      units_.post_forward(UnitPlace::block, layer);
    }
    return states;
  }

  /// Layers with a window share one mask, which transformers makes before the blocks.
  void make_mask() {
    const std::int64_t bytes = is_fused() ? 0 : mask_bytes(config_, 1);
    if (bytes == 0) return;
    mask_ = step_.allocate("mask", bytes, Category::activation);
    step_.memory_bound(KernelKind::zero_padding, "mask", 2 * bytes);
  }

  /// The fused model computes its loss; others return logits.
  void compute_loss(Tensor state) {
    units_.pre_forward(UnitPlace::head);
    step_.at(units_.root(), Phase::forward);
    ends_->head(state);
    if (is_fused()) ends_->loss();
    units_.post_forward(UnitPlace::head);
    units_.end_forward();
    if (is_fused()) return;
    if (mask_ && !recomputes()) step_.free(*std::exchange(mask_, std::nullopt));
    step_.at(units_.root(), Phase::forward);
    ends_->loss();
  }

  void backward(const std::vector<Tensor>& states) {
    units_.begin_backward();
    step_.at(units_.root(), Phase::backward);
    ends_->begin_backward();
    ends_->loss_backward();
    units_.pre_backward(UnitPlace::head);
    step_.at(units_.root(), Phase::backward);
    const LlamaEnds::Gradients made = ends_->backward(states.back());
    const bool apart = options_.units.ends_apart;
    if (apart) units_.post_backward(UnitPlace::head, 0, {made.norm, made.head});
    Tensor gradient = made.state;
    for (std::size_t layer = layers(); layer-- > 0;)
      gradient = block_backward(layer, states[layer], gradient);
    units_.pre_backward(UnitPlace::embedding);
    step_.at(units_.root(), Phase::backward);
    std::vector<Tensor> root = ends_->embedding_backward(gradient, made);
    if (apart) root.resize(1);
    units_.post_backward(UnitPlace::embedding, 0, root);
    units_.end_backward();
    if (mask_) step_.free(*std::exchange(mask_, std::nullopt));
    ends_->finish();
  }

  Tensor block_backward(std::size_t layer, Tensor input, Tensor gradient) {
    units_.pre_backward(UnitPlace::block, layer);
    step_.at(units_.block(layer), Phase::backward);
    // A recomputed block holds its inputs until its end.
    const bool again = block_->recomputes(layer) || !is_fused() || config_.has_fp8();
    const bool is_last_use = layer == 0 && rotates();
    if (is_last_use && !again) block_->free_angles({.cosine = cosine_, .sine = sine_});
    const BlockGradients made = block_->backward(layer, input, gradient);
    if (is_last_use && again) step_.free({sine_, cosine_});
    for (const Tensor tensor : made.later) step_.free(tensor);
    units_.post_backward(UnitPlace::block, layer, made.weights);
    return made.input;
  }

  [[nodiscard]] bool recomputes() const {
    return options_.selective_ac.is_given() || config_.recompute.kind == Recompute::full;
  }

  [[nodiscard]] std::size_t layers() const {
    return static_cast<std::size_t>(config_.model.layers);
  }

  PlanConfig config_;  ///< with the model of one rank
  Fsdp2Options options_;
  LlamaSizes sizes_;
  StepBuilder step_;
  Fsdp2Units units_;
  std::unique_ptr<LlamaBlock> block_;
  std::unique_ptr<LlamaEnds> ends_;
  Tensor cosine_;
  Tensor sine_;
  std::optional<Tensor> mask_;  ///< of windows
};

}  // namespace

EnginePlan fsdp2_plan(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                      const Meta& meta, std::int64_t l2_bytes) {
  return Fsdp2(engine, config, options, meta).run(l2_bytes);
}

}  // namespace mfsdp
