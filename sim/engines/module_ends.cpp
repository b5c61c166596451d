// Embedding, final norm, head and loss in the code of transformers or torchtitan. The loss is
// outside of the model; the final norm is not compiled.
#include <initializer_list>
#include <utility>

#include "sim/engines/eager_ops.hpp"
#include "sim/engines/module_block.hpp"

namespace mfsdp {
namespace {

class ModuleEnds final : public LlamaEnds {
 public:
  ModuleEnds(StepBuilder& step, const PlanConfig& config, const Fsdp2Options& options,
             bool compiles_loss)
      : LlamaEnds(step, config,
                  compiles_loss ? functions_with_compiled_loss(step, config)
                                : eager_functions(step, config)),
        options_(options),
        compiles_loss_(compiles_loss),
        tape_(step),
        ops_(tape_, config),
        rows_(step, config) {}

  Tensor embed() override {
    const Tensor embedded = own_rows(LlamaEnds::embed());
    if (!config_.model.scaled_embedding) return embedded;
    const Tensor scaled = step_.allocate("scaled_embedding", sizes_.state, Category::activation);
    step_.memory_bound(KernelKind::accumulate, "embedding_scale", 2 * sizes_.state);
    step_.free(embedded);
    return scaled;
  }

  void head(Tensor state) override {
    EagerTape::Value x =
        tape_.leaf(tape_.adopt(state), rows_.own(sizes_.state),
                   [this](const EagerTape::Ref& gradient) { made_.state = gradient->give_up(); });
    EagerTape::Value normed =
        ops_.norm("normed", std::move(x), sizes_.hidden, norm_code(config_.model, options_.modules),
                  [this](const EagerTape::Ref& gradient) { made_.norm = gradient->give_up(); });
    normed = ops_.gather_rows("normed", std::move(normed));
    logits_ = ops_.linear(
        "head", std::move(normed), sizes_.vocab, sizes_.hidden,
        [this](const EagerTape::Ref& gradient) { made_.head = gradient->give_up(); }, {},
        Category::logits);
  }

  void loss() override {
    if (compiles_loss_) {
      over_ids({"largest_of_all", "sum_of_all", "label_of_all"});
      loss_ = functions_->loss(logits_.ref->give_up());
      logits_.ref.reset();
      return;
    }
    EagerTape::Ref input = std::move(logits_.ref);
    if (options_.holds_logits) held_ = input;
    if (!options_.bf16_loss) {
      EagerTape::Ref wide = tape_.make("logits_fp32", sizes_.logits_fp32, Category::logits);
      step_.memory_bound(KernelKind::cast, "logits_cast", 3 * sizes_.logits);
      // The caller's argument refers to the logits until the loss is there.
      const EagerTape::Ref argument = std::exchange(input, std::move(wide));
      softmax(input);
      return;
    }
    softmax(input);
  }

  void loss_backward() override {
    gradient_ = tape_.adopt(compiles_loss_ ? functions_->loss_backward(loss_) : softmax_backward());
  }

  Gradients backward(Tensor /*state*/) override {
    tape_.backward(std::exchange(logits_, {}), std::exchange(gradient_, nullptr));
    if (rows_.shares()) rows_.sum("norm_grad_sum", sizes_.hidden, DType::bf16);
    held_.reset();
    return made_;
  }

  std::vector<Tensor> embedding_backward(Tensor state, const Gradients& head) override {
    Tensor gradient = state;
    if (config_.model.scaled_embedding) {
      gradient = step_.allocate("d_embedding_scale", sizes_.state, Category::activation);
      step_.memory_bound(KernelKind::accumulate, "d_embedding_scale", 2 * sizes_.state);
      step_.free(state);
    }
    if (rows_.shares()) {
      const Tensor all = step_.allocate("d_embedded_all", sizes_.state, Category::activation);
      rows_.gather("d_embedded_all", sizes_.state);
      step_.free(gradient);
      gradient = all;
      step_.memory_bound(KernelKind::zero_padding, "d_other_ids", 2 * sizes_.state);
    }
    return LlamaEnds::embedding_backward(gradient, head);
  }

 private:
  /// Rows of other ranks' ids are zero; the sum of all ranks' is cut.
  Tensor own_rows(Tensor whole) {
    if (!rows_.shares()) return whole;
    step_.memory_bound(KernelKind::zero_padding, "other_ids", 2 * sizes_.state);
    const Tensor own =
        step_.allocate("embedded_sum", rows_.own(sizes_.state), Category::activation);
    rows_.reduce("embedded_sum", sizes_.state);
    step_.free(whole);
    return own;
  }

  void over_ids(std::initializer_list<const char*> numbers) {
    if (!rows_.shares()) return;
    for (const char* number : numbers) rows_.sum(number, sizes_.tokens, DType::fp32);
  }

  [[nodiscard]] std::int64_t loss_bytes() const {
    return options_.bf16_loss ? sizes_.logits : sizes_.logits_fp32;
  }

  void softmax(const EagerTape::Ref& /*input*/) {
    constexpr std::int64_t kScalar = 4;
    loss_ = {};
    if (rows_.shares()) return softmax_over_ids();
    loss_.source = step_.allocate("log_probabilities", loss_bytes(), Category::logits);
    // Reads its input three times: for the maximum, for the sum, and for the output.
    step_.memory_bound(KernelKind::cross_entropy_loss, "log_softmax", 4 * loss_bytes());
    loss_.value = step_.allocate("loss", kScalar, Category::activation);
    loss_.weight = step_.allocate("loss_weight", kScalar, Category::activation);
    step_.memory_bound(KernelKind::cross_entropy_loss, "nll_loss", 8 * sizes_.tokens);
  }

  /// DTensor's loss_parallel: the shifted logits, their exponentials, and the difference.
  void softmax_over_ids() {
    constexpr std::int64_t kScalar = 4;
    constexpr KernelKind kKind = KernelKind::cross_entropy_loss;
    step_.memory_bound(kKind, "largest", loss_bytes());
    over_ids({"largest_of_all"});
    const Tensor shifted = step_.allocate("shifted_logits", loss_bytes(), Category::logits);
    step_.memory_bound(kKind, "shift", 2 * loss_bytes());
    const Tensor powers = step_.allocate("exponentials", loss_bytes(), Category::logits);
    step_.memory_bound(kKind, "exponentials", 2 * loss_bytes());
    step_.memory_bound(kKind, "sum", loss_bytes());
    step_.free(powers);
    over_ids({"sum_of_all"});
    loss_.source = step_.allocate("log_probabilities", loss_bytes(), Category::logits);
    step_.memory_bound(kKind, "log_softmax", 2 * loss_bytes());
    step_.free(shifted);
    loss_.value = step_.allocate("loss", kScalar, Category::activation);
    loss_.weight = step_.allocate("loss_weight", kScalar, Category::activation);
    step_.memory_bound(kKind, "nll_loss", 8 * sizes_.tokens);
    over_ids({"label_of_all"});
  }

  Tensor softmax_backward() {
    const Tensor chosen = step_.allocate("d_log_probabilities", loss_bytes(), Category::logits);
    step_.memory_bound(KernelKind::zero_padding, "d_log_probabilities", loss_bytes());
    step_.free(loss_.weight);
    const Tensor made = step_.allocate("d_logits_of_loss", loss_bytes(), Category::logits);
    step_.memory_bound(KernelKind::cross_entropy, "log_softmax_backward", 4 * loss_bytes());
    step_.free({chosen, loss_.source});
    if (options_.bf16_loss) return made;
    const Tensor logits = step_.allocate("d_logits", sizes_.logits, Category::logits);
    step_.memory_bound(KernelKind::cast, "d_logits_cast", 3 * sizes_.logits);
    step_.free(made);
    return logits;
  }

  Fsdp2Options options_;
  bool compiles_loss_;
  EagerTape tape_;
  EagerOps ops_;
  TensorRows rows_;
  EagerTape::Value logits_;
  EagerTape::Ref gradient_;  ///< of the logits
  EagerTape::Ref held_;      ///< the logits, by a variable of the loop
  Gradients made_{};
};

}  // namespace

std::unique_ptr<LlamaEnds> module_ends(StepBuilder& step, const PlanConfig& config,
                                       const Fsdp2Options& options, bool compiles_loss) {
  return std::make_unique<ModuleEnds>(step, config, options, compiles_loss);
}

}  // namespace mfsdp
