// A block in PyTorch's own kernels, one after the other. Autograd keeps what a kernel's backward
// reads, and frees it when that has run.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "sim/engines/block.hpp"

namespace mfsdp {
namespace {

struct Saved {
  Tensor normed1, statistic1, qkv, query, key, seed, offset, mixed, scores, mixed_rows, sum,
      normed2, statistic2, gate_up, activated, product;
  // Where heads are normed.
  Tensor query_statistic, key_statistic;
};

class EagerBlock final : public Block {
 public:
  using Block::Block;

  Tensor forward(std::size_t layer, Tensor input) override {
    const bool again = config_.recompute.kind == Recompute::full;
    Saved kept = run(!again);
    const Tensor down = allocate("down", sizes_.state);
    gemm(GemmKind::forward, "down", sizes_.hidden, sizes_.ffn);
    if (again) step_.free(kept.product);
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
    if (config_.recompute.kind == Recompute::full) {
      step_.set_phase(Phase::recompute);
      saved_.insert_or_assign(layer, run(true));
      step_.set_phase(Phase::backward);
    }
    const Saved kept = saved_.at(layer);
    const Tensor down = weight_gradient("down", sizes_.hidden, sizes_.ffn);
    const Tensor gate_up = mlp_backward(kept);
    const Tensor norm2 = norm_backward("norm2", kept.normed2, kept.sum, kept.statistic2);
    const Tensor out = weight_gradient("out", sizes_.hidden, sizes_.query_columns);
    const Tensor mixed = allocate("d_attention", sizes_.query);
    gemm(GemmKind::input_gradient, "out", sizes_.hidden, sizes_.query_columns);
    if (clones()) step_.free(kept.mixed_rows);
    std::vector<Tensor> weights;
    const HeadGradients heads = attention_backward(kept, mixed);
    const Tensor joined = allocate("d_qkv_heads", sizes_.qkv);
    elementwise(KernelKind::rope_backward, "join", {2 * sizes_.qkv, AccessPattern::pieces});
    step_.free({heads.query, heads.key, heads.value});
    const Tensor rows = allocate("d_qkv", sizes_.qkv);
    elementwise(KernelKind::rope_backward, "rows", {2 * sizes_.qkv, AccessPattern::strided});
    step_.free(joined);
    const Tensor qkv = weight_gradient("qkv", sizes_.qkv_columns, sizes_.hidden);
    std::optional<Tensor> bias;
    const Tensor normed = allocate("d_normed1", sizes_.state);
    gemm(GemmKind::input_gradient, "qkv", sizes_.qkv_columns, sizes_.hidden);
    if (config_.model.qkv_bias) {
      bias = allocate("qkv_bias_grad", 2 * sizes_.qkv_columns, Category::unsharded_grad);
      elementwise(KernelKind::bias_grad, "qkv_bias", sizes_.qkv);
    }
    step_.free({rows, kept.normed1});
    const Tensor norm1 = finish_norm("norm1", normed, input, kept.statistic1);
    weights = {norm1, norm2, qkv};
    if (bias) weights.push_back(*bias);
    for (const Tensor norm : heads.norms) weights.push_back(norm);
    weights.insert(weights.end(), {out, gate_up, down});
    return {.input = output, .weights = weights, .later = {}};
  }

 private:
  struct HeadGradients {
    Tensor query, key, value;
    std::vector<Tensor> norms;
  };

  [[nodiscard]] bool clones() const { return config_.model.qk_norm; }

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
        allocate(std::string(name) + "_grad", 2 * outputs * inputs, Category::unsharded_grad);
    gemm(GemmKind::weight_gradient, name, outputs, inputs);
    return gradient;
  }

  /// x * cosine + turned x * sine in fp32, with copies of their own; rotates `bytes` of bf16.
  Tensor rotate(std::string_view name, std::int64_t bytes) {
    const auto named = [&](std::string_view part) {
      return std::string(name) + "_" + std::string(part);
    };
    const Tensor negated = allocate(named("negated"), bytes / 2);
    elementwise(KernelKind::rope_forward, named("negate"), {bytes, AccessPattern::strided});
    const Tensor turned = allocate(named("turned"), bytes);
    elementwise(KernelKind::rope_forward, named("turn"), {2 * bytes, AccessPattern::pieces});
    step_.free(negated);
    const auto scaled = [&](std::string_view part) {
      const Tensor wide = allocate(named("wide"), 2 * bytes);
      elementwise(KernelKind::cast, named("widen"), {3 * bytes, AccessPattern::strided});
      const Tensor product = allocate(named(part), 2 * bytes);
      elementwise(KernelKind::rope_forward, named(part), {4 * bytes, AccessPattern::strided});
      step_.free(wide);
      return product;
    };
    const Tensor straight = scaled("times_cosine");
    const Tensor crossed = scaled("times_sine");
    const Tensor sum = allocate(named("sum"), 2 * bytes);
    elementwise(KernelKind::rope_forward, named("add"), 6 * bytes);
    step_.free({straight, crossed});
    const Tensor rotated = allocate(name, bytes);
    elementwise(KernelKind::cast, named("narrow"), 3 * bytes);
    step_.free({sum, turned});
    return rotated;
  }

  /// Backward comes to queries after keys.
  static constexpr std::string_view kLastRotated = "query";

  void free_last(std::optional<Tensor>& angles) {
    if (angles) step_.free(*angles);
    angles.reset();
  }

  /// The gradient of what was rotated; frees `gradient`, of `bytes` in bf16.
  Tensor rotate_backward(std::string_view name, Tensor gradient, std::int64_t bytes) {
    const auto named = [&](std::string_view part) {
      return "d_" + std::string(name) + "_" + std::string(part);
    };
    const auto narrowed = [&](std::string_view part) {
      const Tensor product = allocate(named(part), 2 * bytes);
      if (name == kLastRotated) free_last(sine_);
      elementwise(KernelKind::rope_backward, named(part), {4 * bytes, AccessPattern::strided});
      const Tensor narrow = allocate(named("narrow"), bytes);
      elementwise(KernelKind::cast, named("narrow"), 3 * bytes);
      return std::pair(product, narrow);
    };
    const Tensor wide = allocate(named("wide"), 2 * bytes);
    elementwise(KernelKind::cast, named("widen"), {3 * bytes, AccessPattern::strided});
    step_.free(gradient);
    const auto [by_sine, crossed] = narrowed("times_sine");
    step_.free(by_sine);
    const Tensor by_cosine = allocate(named("times_cosine"), 2 * bytes);
    elementwise(KernelKind::rope_backward, named("times_cosine"),
                {4 * bytes, AccessPattern::strided});
    step_.free(wide);
    if (name == kLastRotated) free_last(cosine_);
    const Tensor straight = allocate(named("straight"), bytes);
    elementwise(KernelKind::cast, named("narrow"), 3 * bytes);
    step_.free(by_cosine);
    // The halves that were exchanged come back into zeros of the whole, and are added.
    const auto slice_back = [&](std::string_view part) {
      const Tensor zeros = allocate(named(part), bytes);
      elementwise(KernelKind::zero_padding, named("zeros"), bytes);
      elementwise(KernelKind::rope_backward, named("slice"), {bytes, AccessPattern::strided});
      elementwise(KernelKind::accumulate, named("add"), {3 * bytes, AccessPattern::strided});
      return zeros;
    };
    step_.free(slice_back("low"));
    const Tensor negated = allocate(named("negated"), bytes / 2);
    elementwise(KernelKind::rope_backward, named("negate"), {bytes, AccessPattern::strided});
    step_.free(crossed);
    const Tensor high = slice_back("high");
    step_.free({negated, high});
    return straight;
  }

  std::pair<Tensor, Tensor> norm(std::string_view name) {
    const std::pair kept{allocate(name, sizes_.state),
                         allocate(std::string(name) + "_rstd", sizes_.statistic)};
    elementwise(KernelKind::rms_norm_forward, name, 2 * sizes_.state);
    return kept;
  }

  /// Of the heads of queries or keys, out of a contiguous copy.
  std::pair<Tensor, Tensor> head_norm(std::string_view name, std::int64_t bytes,
                                      std::int64_t statistic) {
    const Tensor copy = allocate(std::string(name) + "_contiguous", bytes);
    elementwise(KernelKind::cast, std::string(name) + "_copy", {2 * bytes, AccessPattern::strided});
    const std::pair kept{allocate(name, bytes), allocate(std::string(name) + "_rstd", statistic)};
    elementwise(KernelKind::rms_norm_forward, name, 2 * bytes);
    step_.free(copy);
    return kept;
  }

  /// Everything up to the second product of the MLP, `keep`: as backward needs it.
  Saved run(bool keep) {
    Saved kept;
    std::tie(kept.normed1, kept.statistic1) = norm("normed1");
    if (!keep) step_.free(kept.statistic1);
    kept.qkv = allocate("qkv", sizes_.qkv);
    gemm(GemmKind::forward, "qkv", sizes_.qkv_columns, sizes_.hidden);
    if (!keep) step_.free(kept.normed1);
    rotate_heads(kept, keep);
    mix(kept, keep);
    const Tensor out = allocate("out", sizes_.state);
    gemm(GemmKind::forward, "out", sizes_.hidden, sizes_.query_columns);
    kept.sum = allocate("sum", sizes_.state);
    elementwise(KernelKind::accumulate, "residual1", 3 * sizes_.state);
    step_.free(out);
    std::tie(kept.normed2, kept.statistic2) = norm("normed2");
    if (!keep) step_.free(kept.statistic2);
    kept.gate_up = allocate("gate_up", sizes_.gate_up);
    gemm(GemmKind::forward, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
    if (!keep) step_.free(kept.normed2);
    kept.activated = allocate("activated", sizes_.product);
    elementwise(KernelKind::swiglu_forward, "silu", {2 * sizes_.product, AccessPattern::strided});
    kept.product = allocate("product", sizes_.product);
    elementwise(KernelKind::swiglu_forward, "multiply",
                {3 * sizes_.product, AccessPattern::strided});
    if (!keep) step_.free({kept.activated, kept.gate_up});
    return kept;
  }

  void rotate_heads(Saved& kept, bool keep) {
    if (!config_.model.qk_norm) {
      kept.query = rotate("query", sizes_.query);
      kept.key = rotate("key", sizes_.key);
      return;
    }
    Tensor query;
    Tensor key;
    std::tie(query, kept.query_statistic) =
        head_norm("normed_query", sizes_.query, sizes_.query_statistic);
    if (!keep) step_.free(kept.query_statistic);
    std::tie(key, kept.key_statistic) = head_norm("normed_key", sizes_.key, sizes_.key_statistic);
    if (!keep) step_.free(kept.key_statistic);
    kept.query = rotate("query", sizes_.query);
    kept.key = rotate("key", sizes_.key);
    step_.free({key, query});
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
    // Normed queries lie head by head, and so does what attention makes of them.
    kept.mixed_rows = allocate("attention_rows", sizes_.query);
    elementwise(KernelKind::cast, "attention_rows", 2 * sizes_.query);
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
    heads.key = rotate_backward("key", key, sizes_.key);
    heads.query = rotate_backward("query", query, sizes_.query);
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
                         allocate(std::string(name) + "_norm_grad", 2 * config_.model.head_dim,
                                  Category::unsharded_grad)};
    elementwise(KernelKind::rms_norm_backward, own, 3 * bytes);
    step_.free({copy, gradient});
    if (statistic) step_.free(*statistic);
    return made;
  }

  /// The weight gradient of gate and up, with what comes before it. Leaves what the norm's
  /// backward reads in `normed_gradient_`.
  Tensor mlp_backward(const Saved& kept) {
    const Tensor product = allocate("d_product", sizes_.product);
    gemm(GemmKind::input_gradient, "down", sizes_.hidden, sizes_.ffn);
    step_.free(kept.product);
    const Tensor up = allocate("d_up", sizes_.product);
    elementwise(KernelKind::swiglu_backward, "d_up", 3 * sizes_.product);
    const Tensor activated = allocate("d_activated", sizes_.product);
    elementwise(KernelKind::swiglu_backward, "d_activated",
                {3 * sizes_.product, AccessPattern::strided});
    step_.free({product, kept.activated});
    const Tensor gate = allocate("d_gate", sizes_.product);
    elementwise(KernelKind::swiglu_backward, "d_gate",
                {3 * sizes_.product, AccessPattern::strided});
    step_.free({activated, kept.gate_up});
    const Tensor gate_up = allocate("d_gate_up", sizes_.gate_up);
    elementwise(KernelKind::swiglu_backward, "join", 2 * sizes_.gate_up);
    step_.free({gate, up});
    const Tensor weight = weight_gradient("gate_up", 2 * sizes_.ffn, sizes_.hidden);
    normed_gradient_ = allocate("d_normed2", sizes_.state);
    gemm(GemmKind::input_gradient, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
    step_.free(gate_up);
    return weight;
  }

  Tensor norm_backward(std::string_view name, Tensor normed, Tensor input, Tensor statistic) {
    step_.free(normed);
    return finish_norm(name, normed_gradient_, input, statistic);
  }

  /// The norm's backward; what it makes of its input's gradient is added to that of the residual.
  Tensor finish_norm(std::string_view name, Tensor normed_gradient, Tensor input,
                     Tensor statistic) {
    const std::string own(name);
    const Tensor gradient = allocate("d_" + own, sizes_.state);
    const Tensor weight = allocate(own + "_grad", 2 * sizes_.hidden, Category::unsharded_grad);
    elementwise(KernelKind::rms_norm_backward, "d_" + own, 3 * sizes_.state);
    elementwise(KernelKind::norm_weight_grad, own + "_grad", 2 * sizes_.state);
    step_.free({normed_gradient, input, statistic});
    elementwise(KernelKind::accumulate, own + "_residual", 3 * sizes_.state);
    step_.free(gradient);
    return weight;
  }

  std::map<std::size_t, Saved> saved_;
  Tensor normed_gradient_;
};

}  // namespace

std::unique_ptr<Block> eager_block(StepBuilder& step, const PlanConfig& config) {
  return std::make_unique<EagerBlock>(step, config);
}

}  // namespace mfsdp
