// A block operator by operator. Autograd keeps the inputs of an operator's backward, and frees them
// after it has run. The functions between GEMMs and attention have two implementations
// (elementwise.hpp).
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "sim/engines/block.hpp"
#include "sim/engines/elementwise.hpp"

namespace mfsdp {
namespace {

struct Saved {
  Normed normed1, normed2;
  Tensor qkv, query, key, seed, offset, mixed, scores, mixed_rows, sum, gate_up;
  Activated activated;
  // With normed heads.
  Tensor query_statistic, key_statistic;
};

class OperatorBlock final : public LlamaBlock {
 public:
  OperatorBlock(StepBuilder& step, const PlanConfig& config, GradientRules rules,
                std::unique_ptr<Elementwise> functions)
      : LlamaBlock(step, config, rules.every),
        rules_(std::move(rules)),
        functions_(std::move(functions)) {}

  Tensor forward(std::size_t layer, Tensor input) override {
    const bool again = recomputes(layer);
    Saved kept = run(!again);
    const Tensor down = allocate("down", sizes_.state);
    gemm(GemmKind::forward, "down", sizes_.hidden, sizes_.ffn);
    if (again) step_.free(kept.activated.product);
    const Tensor output = allocate("output", sizes_.state);
    elementwise(KernelKind::accumulate, "residual2", 3 * sizes_.state);
    step_.free(down);
    if (again) {
      step_.free({kept.sum, kept.query, kept.key, kept.qkv, kept.mixed});
      if (clones()) step_.free(kept.mixed_rows);
    } else {
      saved_.insert_or_assign(layer, kept);
    }
    (void)input;
    return output;
  }

  BlockGradients backward(std::size_t layer, Tensor input, Tensor output) override {
    if (recomputes(layer)) {
      step_.set_phase(Phase::recompute);
      saved_.insert_or_assign(layer, run(true));
      step_.set_phase(Phase::backward);
    }
    const Saved kept = saved_.at(layer);
    const auto [gate_up, down] = mlp_backward(kept);
    const NormGradients normed2 =
        functions_->norm_backward("norm2", normed_gradient_, kept.sum, kept.normed2.statistic);
    const Tensor sum = add_to_output(normed2, output);
    const Tensor out = weight_gradient("out", sizes_.hidden, sizes_.query_columns);
    const Tensor mixed = allocate("d_attention", sizes_.query);
    gemm(GemmKind::input_gradient, "out", sizes_.hidden, sizes_.query_columns);
    if (clones()) step_.free(kept.mixed_rows);
    made(out);
    const HeadGradients heads = attention_backward(kept, mixed);
    std::vector<Tensor> weights = qkv_backward(kept, heads);
    const NormGradients normed1 =
        functions_->norm_backward("norm1", normed_gradient_, input, kept.normed1.statistic);
    elementwise(KernelKind::accumulate, "norm1_residual", 3 * sizes_.state);
    step_.free(normed1.input);
    made(normed1.weight);
    weights.insert(weights.begin(), {normed1.weight, normed2.weight});
    weights.insert(weights.end(), {out, gate_up, down});
    return {.input = sum, .weights = std::move(weights), .later = held(output)};
  }

  void free_angles(const Angles& angles) override { functions_->free_angles(angles); }

 private:
  struct HeadGradients {
    Tensor query, key, value;
    std::vector<Tensor> norms;
  };

  [[nodiscard]] bool clones() const { return config_.model.qk_norm; }

  void made(Tensor weight) const {
    if (rules_.made) rules_.made(weight);
  }

  [[nodiscard]] std::vector<Tensor> held(Tensor output) const {
    if (rules_.output == OutputGradient::held) return {output};
    return {};
  }

  Tensor allocate(std::string_view name, std::int64_t bytes,
                  Category category = Category::activation) {
    return step_.allocate(name, bytes, category);
  }
  void elementwise(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.memory_bound(kind, name, traffic);
  }
  void gemm(GemmKind kind, std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    step_.gemm(kind, name, sizes_.tokens, outputs, inputs);
  }
  Tensor weight_gradient(std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    const Tensor gradient =
        allocate(std::string(name) + "_grad", kHalf * outputs * inputs, Category::unsharded_grad);
    gemm(GemmKind::weight_gradient, name, outputs, inputs);
    return gradient;
  }

  // ---- Forward -----------------------------------------------------------------------------

  Normed norm(std::string_view name, bool keep) {
    const Normed normed = functions_->norm(name);
    if (!keep) step_.free(normed.statistic);
    return normed;
  }

  /// Everything up to the MLP's second GEMM; `keep`: for backward.
  Saved run(bool keep) {
    Saved kept{};
    kept.normed1 = norm("normed1", keep);
    kept.qkv = allocate("qkv", sizes_.qkv);
    gemm(GemmKind::forward, "qkv", sizes_.qkv_columns, sizes_.hidden);
    if (!keep) step_.free(kept.normed1.rows);
    rotate_heads(kept, keep);
    mix(kept, keep);
    const Tensor out = allocate("out", sizes_.state);
    gemm(GemmKind::forward, "out", sizes_.hidden, sizes_.query_columns);
    kept.sum = allocate("sum", sizes_.state);
    elementwise(KernelKind::accumulate, "residual1", 3 * sizes_.state);
    step_.free(out);
    kept.normed2 = norm("normed2", keep);
    kept.gate_up = allocate("gate_up", sizes_.gate_up);
    gemm(GemmKind::forward, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
    if (!keep) step_.free(kept.normed2.rows);
    kept.activated = functions_->activate();
    if (!keep && kept.activated.gate) step_.free(*kept.activated.gate);
    if (!keep) step_.free(kept.gate_up);
    return kept;
  }

  void rotate_heads(Saved& kept, bool keep) {
    if (!config_.model.qk_norm) {
      kept.query = functions_->rotate("query", sizes_.query);
      kept.key = functions_->rotate("key", sizes_.key);
      return;
    }
    Tensor query;
    Tensor key;
    std::tie(query, kept.query_statistic) =
        head_norm("normed_query", sizes_.query, sizes_.query_statistic);
    if (!keep) step_.free(kept.query_statistic);
    std::tie(key, kept.key_statistic) = head_norm("normed_key", sizes_.key, sizes_.key_statistic);
    if (!keep) step_.free(kept.key_statistic);
    kept.query = functions_->rotate("query", sizes_.query);
    kept.key = functions_->rotate("key", sizes_.key);
    step_.free({key, query});
  }

  /// Norm of the heads of queries or keys, from a contiguous copy.
  std::pair<Tensor, Tensor> head_norm(std::string_view name, std::int64_t bytes,
                                      std::int64_t statistic) {
    const Tensor copy = allocate(std::string(name) + "_contiguous", bytes);
    elementwise(KernelKind::cast, std::string(name) + "_copy", {2 * bytes, AccessPattern::strided});
    const std::pair kept{allocate(name, bytes), allocate(std::string(name) + "_rstd", statistic)};
    elementwise(KernelKind::rms_norm_forward, name, 2 * bytes);
    step_.free(copy);
    return kept;
  }

  void mix(Saved& kept, bool keep) {
    constexpr std::int64_t kRandomState = 8;
    kept.seed = allocate("attention_seed", kRandomState);
    kept.offset = allocate("attention_offset", kRandomState);
    kept.mixed = allocate("attention", sizes_.query);
    kept.scores = allocate("attention_lse", sizes_.query_statistic);
    step_.scratch("attention_workspace", kAttentionWorkspaceBytes);
    step_.attention(KernelKind::attention_forward);
    if (!keep) step_.free({kept.scores, kept.seed, kept.offset});
    if (!clones()) return;
    // Normed queries have a head-major layout, and so has attention's output.
    kept.mixed_rows = allocate("attention_rows", sizes_.query);
    elementwise(KernelKind::cast, "attention_rows", 2 * sizes_.query);
  }

  // ---- Backward ----------------------------------------------------------------------------

  /// The weight gradients of gate and up, and of the GEMM after them. `normed_gradient_` is set for
  /// the norm's backward.
  std::pair<Tensor, Tensor> mlp_backward(const Saved& kept) {
    const Tensor down = weight_gradient("down", sizes_.hidden, sizes_.ffn);
    const Tensor product = allocate("d_product", sizes_.product);
    gemm(GemmKind::input_gradient, "down", sizes_.hidden, sizes_.ffn);
    step_.free(kept.activated.product);
    made(down);
    const Tensor both = functions_->activate_backward(kept.activated, kept.gate_up, product);
    const Tensor gate_up = weight_gradient("gate_up", 2 * sizes_.ffn, sizes_.hidden);
    normed_gradient_ = allocate("d_normed2", sizes_.state);
    gemm(GemmKind::input_gradient, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
    step_.free({both, kept.normed2.rows});
    made(gate_up);
    return {gate_up, down};
  }

  /// The gradient of the sum after attention: the norm's input gradient, added to that of the
  /// block's output.
  Tensor add_to_output(const NormGradients& norm, Tensor output) {
    Tensor sum = output;
    if (rules_.output != OutputGradient::overwritten) sum = allocate("d_sum", sizes_.state);
    elementwise(KernelKind::accumulate, "norm2_residual", 3 * sizes_.state);
    if (rules_.output == OutputGradient::replaced) step_.free(output);
    step_.free(norm.input);
    made(norm.weight);
    return sum;
  }

  HeadGradients attention_backward(const Saved& kept, Tensor mixed) {
    const Tensor query = allocate("d_query", sizes_.query);
    const Tensor key = allocate("d_key", sizes_.key);
    const Tensor value = allocate("d_value", sizes_.key);
    step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
    step_.attention(KernelKind::attention_backward);
    step_.free({mixed, kept.key, kept.query});
    if (!clones()) step_.free(kept.qkv);
    step_.free({kept.scores, kept.mixed, kept.offset, kept.seed});
    HeadGradients heads{.query = query, .key = key, .value = value, .norms = {}};
    heads.key = functions_->rotate_backward("key", key, sizes_.key);
    heads.query = functions_->rotate_backward("query", query, sizes_.query);
    if (!config_.model.qk_norm) return heads;
    Tensor norm_of_keys;
    Tensor norm_of_queries;
    std::tie(heads.key, norm_of_keys) = head_norm_backward("key", heads.key, kept.key_statistic);
    std::tie(heads.query, norm_of_queries) = head_norm_backward("query", heads.query, std::nullopt);
    step_.free({kept.qkv, kept.query_statistic});
    heads.norms = {norm_of_queries, norm_of_keys};
    return heads;
  }

  std::pair<Tensor, Tensor> head_norm_backward(std::string_view name, Tensor gradient,
                                               std::optional<Tensor> statistic) {
    const std::int64_t bytes = step_.bytes_of(gradient);
    const std::string own = "d_normed_" + std::string(name);
    const Tensor copy = allocate(own + "_contiguous", bytes);
    elementwise(KernelKind::cast, own + "_copy", 2 * bytes);
    const std::pair made{allocate(own, bytes),
                         allocate(std::string(name) + "_norm_grad", kHalf * config_.model.head_dim,
                                  Category::unsharded_grad)};
    elementwise(KernelKind::rms_norm_backward, own, 3 * bytes);
    step_.free({copy, gradient});
    if (statistic) step_.free(*statistic);
    return made;
  }

  /// The gradients of the QKV weight and bias, and of the heads' norms. `normed_gradient_` is set
  /// for the norm's backward.
  std::vector<Tensor> qkv_backward(const Saved& kept, const HeadGradients& heads) {
    const Tensor joined = allocate("d_qkv_heads", sizes_.qkv);
    elementwise(KernelKind::rope_backward, "join", {2 * sizes_.qkv, AccessPattern::pieces});
    step_.free({heads.query, heads.key, heads.value});
    const Tensor rows = allocate("d_qkv", sizes_.qkv);
    elementwise(KernelKind::rope_backward, "rows", {2 * sizes_.qkv, AccessPattern::strided});
    step_.free(joined);
    std::vector<Tensor> weights{weight_gradient("qkv", sizes_.qkv_columns, sizes_.hidden)};
    normed_gradient_ = allocate("d_normed1", sizes_.state);
    gemm(GemmKind::input_gradient, "qkv", sizes_.qkv_columns, sizes_.hidden);
    if (config_.model.qkv_bias) {
      weights.push_back(
          allocate("qkv_bias_grad", kHalf * sizes_.qkv_columns, Category::unsharded_grad));
      elementwise(KernelKind::bias_grad, "qkv_bias", sizes_.qkv);
    }
    step_.free({rows, kept.normed1.rows});
    for (const Tensor weight : weights) made(weight);
    weights.insert(weights.end(), heads.norms.begin(), heads.norms.end());
    return weights;
  }

  GradientRules rules_;
  std::unique_ptr<Elementwise> functions_;
  std::map<std::size_t, Saved> saved_;
  Tensor normed_gradient_;
};

}  // namespace

std::unique_ptr<LlamaBlock> eager_block(StepBuilder& step, const PlanConfig& config,
                                        GradientRules rules) {
  return std::make_unique<OperatorBlock>(step, config, std::move(rules),
                                         eager_functions(step, config));
}

std::unique_ptr<LlamaBlock> fused_block(StepBuilder& step, const PlanConfig& config,
                                        GradientRules rules, CompileCache cache) {
  return std::make_unique<OperatorBlock>(step, config, std::move(rules),
                                         fused_functions(step, config, cache));
}

}  // namespace mfsdp
