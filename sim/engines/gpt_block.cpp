#include "sim/engines/gpt_block.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/engines/eager_ops.hpp"
#include "sim/engines/llama_weights.hpp"
#include "sim/engines/module_weights.hpp"

namespace mfsdp {
namespace {

class GptBlock final : public LlamaBlock {
 public:
  using Value = EagerTape::Value;

  GptBlock(StepBuilder& step, const PlanConfig& config, std::int64_t every)
      : LlamaBlock(step, config, every),
        tape_(step),
        ops_(tape_, config),
        weights_(block_weights(config.model)) {}

  Tensor forward(std::size_t layer, Tensor input) override {
    const Value x = tape_.leaf(
        tape_.adopt(input), sizes_.state,
        [this](const EagerTape::Ref& gradient) { input_gradient_ = gradient->give_up(); });
    const auto block = [this, x] { return run(x); };
    Value out = recomputes(layer) ? tape_.checkpoint(block, false) : block();
    const Tensor output = out.ref->give_up();
    out.ref.reset();
    outputs_.insert_or_assign(layer, std::move(out));
    return output;
  }

  BlockGradients backward(std::size_t layer, Tensor /*input*/, Tensor output) override {
    gradients_.assign(weights_.size(), {});
    tape_.backward(std::exchange(outputs_.at(layer), {}), tape_.adopt(output));
    return {.input = input_gradient_, .weights = gradients_, .later = {}};
  }

  void free_angles(const Angles& /*angles*/) override {}

 private:
  EagerTape::Sink sink(const std::string& name) {
    return [this, position = position_of(weights_, name)](const EagerTape::Ref& gradient) {
      gradients_[position] = gradient->give_up();
    };
  }

  Value norm(const std::string& name, const Value& x) {
    return ops_.layer_norm(name, x, sink(name), sink(name + "_bias"));
  }

  Value linear(const std::string& name, Value x, std::int64_t outputs, std::int64_t inputs) {
    return ops_.linear(name, std::move(x), outputs, inputs, sink(name), sink(name + "_bias"));
  }

  /// Variables of the block live until it returns.
  Value run(const Value& input) {
    const Value normed = norm("norm1", input);
    const Value mixed = attention(normed);
    const Value sum = ops_.add("sum", input, mixed);
    const Value normed_sum = norm("norm2", sum);
    const Value down = mlp(normed_sum);
    return ops_.add("output", sum, down);
  }

  Value attention(const Value& x) {
    const Value qkv = linear("qkv", x, sizes_.qkv_columns, sizes_.hidden);
    const Value mixed = ops_.attention_of_rows(qkv);
    return linear("out", mixed, sizes_.hidden, sizes_.query_columns);
  }

  Value mlp(const Value& x) {
    Value product = ops_.gelu("product", linear("up", x, sizes_.ffn, sizes_.hidden));
    return linear("down", std::move(product), sizes_.hidden, sizes_.ffn);
  }

  EagerTape tape_;
  EagerOps ops_;
  std::vector<Weight> weights_;
  std::map<std::size_t, Value> outputs_;  ///< of each layer's forward
  std::vector<Tensor> gradients_;         ///< of the weights of the layer in backward
  Tensor input_gradient_{};
};

class GptEnds final : public LlamaEnds {
 public:
  GptEnds(StepBuilder& step, const PlanConfig& config)
      : LlamaEnds(step, config, nullptr), tape_(step), ops_(tape_, config) {}

  Tensor embed() override {
    const Tensor rows = LlamaEnds::embed();
    const Tensor positions = allocate("position_rows", sizes_.state);
    step_.memory_bound(KernelKind::embedding_forward, "position_rows", 2 * sizes_.state);
    const Tensor sum = allocate("embedded_sum", sizes_.state);
    step_.memory_bound(KernelKind::accumulate, "embedded_sum", 3 * sizes_.state);
    step_.free({positions, rows});
    return sum;
  }

  void head(Tensor state) override {
    const auto store = [](Tensor& place) {
      return [&place](const EagerTape::Ref& gradient) { place = gradient->give_up(); };
    };
    const EagerTape::Value x = tape_.leaf(tape_.adopt(state), sizes_.state, store(made_.state));
    EagerTape::Value normed = ops_.layer_norm("normed", x, store(made_.norm), store(norm_bias_));
    logits_ = ops_.linear("head", std::move(normed), sizes_.vocab, sizes_.hidden, store(made_.head),
                          {}, Category::logits);
  }

  void loss() override {
    constexpr std::int64_t kScalar = 4;
    losses_ = allocate("losses", sizes_.statistic);
    sums_ = allocate("loss_sums", sizes_.statistic);
    // Reads its input twice: for the maximum, and for the sum.
    step_.memory_bound(KernelKind::cross_entropy_loss, "loss", 2 * sizes_.logits);
    loss_ = {};
    loss_.value = allocate("loss", kScalar);
  }

  /// The trainer holds the logits until backward has ended.
  Gradients backward(Tensor /*state*/) override {
    const Tensor each = allocate("d_losses", sizes_.statistic);
    EagerTape::Ref gradient = tape_.make("d_logits", sizes_.logits, Category::logits);
    step_.memory_bound(KernelKind::cross_entropy, "d_loss", 2 * sizes_.logits);
    step_.free({each, losses_, sums_});
    held_ = std::move(logits_.ref);
    tape_.backward(std::exchange(logits_, {}), std::move(gradient));
    return made_;
  }

  std::vector<Tensor> embedding_backward(Tensor state, const Gradients& head) override {
    const std::int64_t bytes = config_.model.max_seq_len * sizes_.hidden * kHalf;
    const Tensor positions = step_.allocate("positions_grad", bytes, Category::unsharded_grad);
    step_.memory_bound(KernelKind::position_embedding_backward, "positions",
                       bytes + 3 * sizes_.state);
    std::vector<Tensor> made = LlamaEnds::embedding_backward(state, head);
    made.insert(made.begin() + 1, positions);
    made.insert(made.begin() + 3, norm_bias_);
    held_.reset();
    return made;
  }

 private:
  Tensor allocate(std::string_view name, std::int64_t bytes) {
    return step_.allocate(name, bytes, Category::activation);
  }

  EagerTape tape_;
  EagerOps ops_;
  EagerTape::Value logits_;
  EagerTape::Ref held_;  ///< the logits
  Tensor losses_{};
  Tensor sums_{};
  Gradients made_{};
  Tensor norm_bias_{};
};

}  // namespace

std::unique_ptr<LlamaBlock> gpt_block(StepBuilder& step, const PlanConfig& config,
                                      std::int64_t every) {
  return std::make_unique<GptBlock>(step, config, every);
}

std::unique_ptr<LlamaEnds> gpt_ends(StepBuilder& step, const PlanConfig& config) {
  return std::make_unique<GptEnds>(step, config);
}

}  // namespace mfsdp
