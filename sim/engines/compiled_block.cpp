// A block as compiled by Inductor: GEMMs and attention are library kernels, all other operations
// are fused. The order of kernels and the buffers are those of the code that Inductor generated in
// recorded runs (docs/lab).
#include <map>

#include "sim/engines/block.hpp"
#include "sim/engines/compiled_graph.hpp"

namespace mfsdp {
namespace {

using Value = CompiledGraph::Value;

/// Tensors that a forward graph produces and backward reads.
template <class Where>
struct Made {
  Where statistic1, normed1, qkv, query_statistic, key_statistic, query, key, seed, offset, mixed,
      scores, mixed_rows, out, statistic2, normed2, gate_up, product;
};

using Kept = Made<Tensor>;
using Values = Made<Value>;

class CompiledBlock final : public LlamaBlock {
 public:
  using LlamaBlock::LlamaBlock;

  Tensor forward(std::size_t layer, Tensor /*input*/) override {
    return recomputes(layer) ? forward_alone() : forward_keeping(layer);
  }

  BlockGradients backward(std::size_t layer, Tensor input, Tensor output) override {
    return recomputes(layer) ? backward_again(input, output)
                             : backward_of_kept(layer, input, output);
  }

  void free_angles(const Angles& angles) override { angles_ = angles; }

 private:
  // ---- Kernels -----------------------------------------------------------------------------

  void elementwise(CompiledGraph& graph, KernelKind kind, std::string_view name,
                   const Traffic& traffic) {
    graph.run([this, kind, name, traffic] { step_.memory_bound(kind, name, traffic); });
  }
  /// A kernel of which Inductor times several variants when the graph first runs; between runs it
  /// overwrites the L2 cache.
  void pointwise(CompiledGraph& graph, KernelKind kind, std::string_view name,
                 const Traffic& traffic) {
    constexpr int kTimes = 2;
    bool& timed = step_.phase() == Phase::forward ? timed_forward_ : timed_backward_;
    for (int i = 0; i < kTimes && !timed; ++i)
      graph.note([this] {
        step_.free_once(step_.once("benchmark", step_.l2_bytes(), Category::workspace));
      });
    elementwise(graph, kind, name, traffic);
  }
  void gemm(CompiledGraph& graph, GemmKind kind, std::string_view name, std::int64_t outputs,
            std::int64_t inputs) {
    graph.run([this, kind, name, outputs, inputs] {
      step_.gemm(kind, name, sizes_.tokens, outputs, inputs);
    });
  }
  Value weight_gradient(CompiledGraph& graph, std::string_view name, std::string_view grad,
                        std::int64_t outputs, std::int64_t inputs) {
    const Value value = graph.make(grad, 2 * outputs * inputs, Category::unsharded_grad);
    gemm(graph, GemmKind::weight_gradient, name, outputs, inputs);
    return value;
  }

  // ---- Forward -----------------------------------------------------------------------------

  void project_heads(CompiledGraph& graph, Values& v) {
    v.qkv = graph.make("qkv", sizes_.qkv);
    gemm(graph, GemmKind::forward, "qkv", sizes_.qkv_columns, sizes_.hidden);
  }

  void rotate_heads(CompiledGraph& graph, Values& v) {
    if (config_.model.qk_norm) {
      v.query_statistic = graph.make("query_rstd", sizes_.query_statistic);
      elementwise(graph, KernelKind::rms_norm_forward, "query_norm", sizes_.query);
      v.key_statistic = graph.make("key_rstd", sizes_.key_statistic);
      elementwise(graph, KernelKind::rms_norm_forward, "key_norm", sizes_.key);
    }
    v.query = graph.make("query", sizes_.query);
    pointwise(graph, KernelKind::rope_forward, "rope_query", 2 * sizes_.query);
    v.key = graph.make("key", sizes_.key);
    pointwise(graph, KernelKind::rope_forward, "rope_key", 2 * sizes_.key);
  }

  /// Attention allocates its outputs itself.
  void mix(CompiledGraph& graph, Values& v) {
    constexpr std::int64_t kRandomState = 8;
    v.seed = graph.make("attention_seed", kRandomState);
    v.offset = graph.make("attention_offset", kRandomState);
    v.mixed = graph.make("attention", sizes_.query);
    v.scores = graph.make("attention_lse", sizes_.query_statistic);
    graph.run([this] {
      step_.scratch("attention_workspace", kAttentionWorkspaceBytes);
      step_.attention(KernelKind::attention_forward);
    });
  }

  /// With normed heads, the output of attention has a head-major layout.
  [[nodiscard]] Value rows_of(CompiledGraph& graph, const Values& v) {
    if (!config_.model.qk_norm) return v.mixed;
    const Value rows = graph.make("attention_rows", sizes_.query);
    elementwise(graph, KernelKind::cast, "attention_rows", 2 * sizes_.query);
    return rows;
  }

  void project_out(CompiledGraph& graph, Values& v) {
    v.out = graph.make("out", sizes_.state);
    gemm(graph, GemmKind::forward, "out", sizes_.hidden, sizes_.query_columns);
  }

  void project_gate_up(CompiledGraph& graph, Values& v) {
    v.gate_up = graph.make("gate_up", sizes_.gate_up);
    gemm(graph, GemmKind::forward, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
  }

  void multiply(CompiledGraph& graph, Values& v) {
    v.product = graph.make("product", sizes_.product);
    pointwise(graph, KernelKind::swiglu_forward, "swiglu", 3 * sizes_.product);
  }

  /// With all tensors that backward reads.
  void keep_from_heads_to_gate_up(CompiledGraph& graph, Values& v) {
    project_heads(graph, v);
    rotate_heads(graph, v);
    mix(graph, v);
    v.mixed_rows = rows_of(graph, v);
    project_out(graph, v);
    v.statistic2 = graph.make("normed2_rstd", sizes_.statistic);
    v.normed2 = graph.make("normed2", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_forward, "norm2", 3 * sizes_.state);
    project_gate_up(graph, v);
  }

  Tensor forward_keeping(std::size_t layer) {
    CompiledGraph graph(step_);
    Values v{};
    v.statistic1 = graph.make("normed1_rstd", sizes_.statistic);
    v.normed1 = graph.make("normed1", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_forward, "norm1", 2 * sizes_.state);
    keep_from_heads_to_gate_up(graph, v);
    multiply(graph, v);
    const Value output = graph.make("output", sizes_.state);
    gemm(graph, GemmKind::forward, "down", sizes_.hidden, sizes_.ffn);
    pointwise(graph, KernelKind::accumulate, "residual", 4 * sizes_.state);
    graph.emit();
    timed_forward_ = true;
    kept_[layer] = kept_of(graph, v);
    return graph.tensor(output);
  }

  /// Keeps nothing: backward recomputes.
  Tensor forward_alone() {
    CompiledGraph graph(step_);
    Values v{};
    v.normed1 = graph.make("normed1", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_forward, "norm1", 2 * sizes_.state);
    project_heads(graph, v);
    graph.drop(v.normed1);
    rotate_heads(graph, v);
    if (config_.model.qk_norm) graph.drop({v.query_statistic, v.key_statistic});
    mix(graph, v);
    graph.drop({v.qkv, v.key, v.query, v.seed, v.offset, v.scores});
    v.mixed_rows = rows_of(graph, v);
    if (config_.model.qk_norm) graph.drop(v.mixed);
    project_out(graph, v);
    graph.drop(v.mixed_rows);
    v.normed2 = graph.make("normed2", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_forward, "norm2", 3 * sizes_.state);
    project_gate_up(graph, v);
    graph.drop(v.normed2);
    multiply(graph, v);
    graph.drop(v.gate_up);
    const Value down = graph.make("down", sizes_.state);
    gemm(graph, GemmKind::forward, "down", sizes_.hidden, sizes_.ffn);
    graph.drop(v.product);
    // The sum is written over attention's output.
    pointwise(graph, KernelKind::accumulate, "residual", 4 * sizes_.state);
    graph.drop(down);
    graph.emit();
    timed_forward_ = true;
    return graph.tensor(v.out);
  }

  [[nodiscard]] static Kept kept_of(const CompiledGraph& graph, const Values& v) {
    const auto at = [&](Value value) { return graph.tensor(value); };
    return {.statistic1 = at(v.statistic1),
            .normed1 = at(v.normed1),
            .qkv = at(v.qkv),
            .query_statistic = at(v.query_statistic),
            .key_statistic = at(v.key_statistic),
            .query = at(v.query),
            .key = at(v.key),
            .seed = at(v.seed),
            .offset = at(v.offset),
            .mixed = at(v.mixed),
            .scores = at(v.scores),
            .mixed_rows = at(v.mixed_rows),
            .out = at(v.out),
            .statistic2 = at(v.statistic2),
            .normed2 = at(v.normed2),
            .gate_up = at(v.gate_up),
            .product = at(v.product)};
  }

  [[nodiscard]] static Values values_of(CompiledGraph& graph, const Kept& k) {
    const auto of = [&](Tensor tensor) { return graph.given(tensor); };
    return {.statistic1 = of(k.statistic1),
            .normed1 = of(k.normed1),
            .qkv = of(k.qkv),
            .query_statistic = of(k.query_statistic),
            .key_statistic = of(k.key_statistic),
            .query = of(k.query),
            .key = of(k.key),
            .seed = of(k.seed),
            .offset = of(k.offset),
            .mixed = of(k.mixed),
            .scores = of(k.scores),
            .mixed_rows = of(k.mixed_rows),
            .out = of(k.out),
            .statistic2 = of(k.statistic2),
            .normed2 = of(k.normed2),
            .gate_up = of(k.gate_up),
            .product = of(k.product)};
  }

  // ---- Backward ----------------------------------------------------------------------------

  /// Weight gradients, in the order of parameters.
  struct Gradients {
    Value norm1, norm2, qkv;
    std::vector<Value> head_norms;
    Value out, gate_up, down;
  };

  BlockGradients backward_of_kept(std::size_t layer, Tensor input, Tensor output) {
    CompiledGraph graph(step_);
    const Values v = values_of(graph, kept_[layer]);
    Gradients g{};
    g.down = weight_gradient(graph, "down", "down_grad", sizes_.hidden, sizes_.ffn);
    graph.drop(v.product);
    const Value product = product_gradient(graph);
    const Value gate_up = graph.make("d_gate_up", sizes_.gate_up);
    pointwise(graph, KernelKind::swiglu_backward, "d_swiglu",
              {5 * sizes_.product, AccessPattern::strided});
    graph.drop({product, v.gate_up});
    g.gate_up = weight_gradient(graph, "gate_up", "gate_up_grad", 2 * sizes_.ffn, sizes_.hidden);
    graph.drop(v.normed2);
    const Value normed2 = normed2_gradient(graph, gate_up);
    const Value residual = sum_gradient(graph);
    const Value rows = heads_backward(graph, v, g, false);
    const Value normed1 = normed1_gradient(graph);
    const Partials partial = norm_partials(graph, v, normed2);
    finish_norm(graph, g.norm2, "norm2_grad", partial.second);
    g.out = weight_gradient(graph, "out", "out_grad", sizes_.hidden, sizes_.query_columns);
    graph.drop(v.mixed_rows);
    finish_head_norms(graph, v, g);
    g.qkv = weight_gradient(graph, "qkv", "qkv_grad", sizes_.qkv_columns, sizes_.hidden);
    graph.drop({rows, v.normed1});
    input_gradient(graph);
    graph.drop({normed1, graph.given(input), v.statistic1});
    finish_norm(graph, g.norm1, "norm1_grad", partial.first);
    return finish(graph, g, residual, output);
  }

  /// Repeats forward, in the order in which backward needs its results.
  BlockGradients backward_again(Tensor input, Tensor output) {
    CompiledGraph graph(step_);
    Values v{};
    Gradients g{};
    phase(graph, Phase::recompute);
    v.statistic1 = graph.make("normed1_rstd", sizes_.statistic);
    v.normed1 = graph.make("normed1", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_forward, "norm1", 2 * sizes_.state);
    phase(graph, Phase::backward);
    const Value product = product_gradient(graph);
    phase(graph, Phase::recompute);
    keep_from_heads_to_gate_up(graph, v);
    phase(graph, Phase::backward);
    const Value gate_up = graph.make("d_gate_up", sizes_.gate_up);
    pointwise(graph, KernelKind::swiglu_backward, "d_swiglu",
              {5 * sizes_.product, AccessPattern::strided});
    graph.drop(product);
    g.gate_up = weight_gradient(graph, "gate_up", "gate_up_grad", 2 * sizes_.ffn, sizes_.hidden);
    graph.drop(v.normed2);
    multiply(graph, v);
    graph.drop(v.gate_up);
    const Value normed2 = normed2_gradient(graph, gate_up);
    const Value residual = sum_gradient(graph);
    g.out = weight_gradient(graph, "out", "out_grad", sizes_.hidden, sizes_.query_columns);
    g.down = weight_gradient(graph, "down", "down_grad", sizes_.hidden, sizes_.ffn);
    graph.drop(v.product);
    const Value rows = heads_backward(graph, v, g, true);
    finish_head_norms(graph, v, g);
    g.qkv = weight_gradient(graph, "qkv", "qkv_grad", sizes_.qkv_columns, sizes_.hidden);
    graph.drop(v.normed1);
    const Value normed1 = normed1_gradient(graph);
    graph.drop(rows);
    const Partials partial = norm_partials(graph, v, normed2);
    input_gradient(graph);
    graph.drop({v.statistic1, normed1, graph.given(input)});
    finish_norm(graph, g.norm2, "norm2_grad", partial.second);
    finish_norm(graph, g.norm1, "norm1_grad", partial.first);
    return finish(graph, g, residual, output);
  }

  void phase(CompiledGraph& graph, Phase phase) {
    graph.note([this, phase] { step_.set_phase(phase); });
  }

  Value product_gradient(CompiledGraph& graph) {
    const Value product = graph.make("d_product", sizes_.product);
    gemm(graph, GemmKind::input_gradient, "down", sizes_.hidden, sizes_.ffn);
    return product;
  }

  Value normed2_gradient(CompiledGraph& graph, Value gate_up) {
    const Value normed = graph.make("d_normed2", sizes_.state);
    gemm(graph, GemmKind::input_gradient, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
    graph.drop(gate_up);
    return normed;
  }

  /// The gradient of the sum after attention; the gradient of the block's input is written over it.
  Value sum_gradient(CompiledGraph& graph) {
    const Value sum = graph.make("d_sum", sizes_.state);
    elementwise(graph, KernelKind::rms_norm_backward, "d_norm2", 5 * sizes_.state);
    return sum;
  }
  void input_gradient(CompiledGraph& graph) {
    elementwise(graph, KernelKind::rms_norm_backward, "d_norm1", 4 * sizes_.state);
  }

  Value normed1_gradient(CompiledGraph& graph) {
    const Value normed = graph.make("d_normed1", sizes_.state);
    gemm(graph, GemmKind::input_gradient, "qkv", sizes_.qkv_columns, sizes_.hidden);
    return normed;
  }

  struct Partials {
    Value second, first;  ///< of either norm
  };

  /// The weight gradients of both norms, as partial sums over tokens.
  Partials norm_partials(CompiledGraph& graph, const Values& v, Value normed2) {
    const Partials partial{.second = graph.make("norm2_partial", sizes_.norm_partial),
                           .first = graph.make("norm1_partial", sizes_.norm_partial)};
    elementwise(graph, KernelKind::norm_weight_grad, "norms", 5 * sizes_.state);
    graph.drop({normed2, v.out, v.statistic2});
    return partial;
  }

  void finish_norm(CompiledGraph& graph, Value& gradient, std::string_view name, Value partial) {
    gradient = graph.make(name, 2 * sizes_.hidden, Category::unsharded_grad);
    elementwise(graph, KernelKind::norm_weight_grad, name, sizes_.norm_partial);
    graph.drop(partial);
  }

  /// The gradient of the output rows of the QKV GEMM. `again`: forward was repeated.
  Value heads_backward(CompiledGraph& graph, const Values& v, Gradients& g, bool again) {
    const Value mixed = graph.make("d_attention", sizes_.query);
    gemm(graph, GemmKind::input_gradient, "out", sizes_.hidden, sizes_.query_columns);
    const Value query = graph.make("d_query", sizes_.query);
    const Value key = graph.make("d_key", sizes_.key);
    const Value value = graph.make("d_value", sizes_.key);
    graph.run([this] {
      step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
      step_.attention(KernelKind::attention_backward);
    });
    graph.drop({mixed, v.query, v.key, v.seed});
    if (!config_.model.qk_norm) graph.drop(v.qkv);
    graph.drop({v.scores, v.offset});
    if (again) graph.drop(v.mixed_rows);
    if (config_.model.qk_norm) graph.drop(v.mixed);
    const Value joined = config_.model.qk_norm ? normed_heads(graph, v, query, key, g)
                                               : turned_heads(graph, query, key, value);
    if (config_.model.qk_norm) graph.drop(value);
    const Value rows = graph.make("d_qkv", sizes_.qkv);
    pointwise(graph, KernelKind::rope_backward, "d_rows", 2 * sizes_.qkv);
    graph.drop(joined);
    return rows;
  }

  Value turned_heads(CompiledGraph& graph, Value query, Value key, Value value) {
    const Value joined = graph.make("d_qkv_heads", sizes_.qkv);
    pointwise(graph, KernelKind::rope_backward, "d_rope", {2 * sizes_.qkv, AccessPattern::strided});
    graph.drop({query, key, value});
    drop_angles(graph);
    return joined;
  }

  void drop_angles(CompiledGraph& graph) {
    if (!angles_) return;
    graph.drop({graph.given(angles_->cosine), graph.given(angles_->sine)});
    angles_.reset();
  }

  /// With normed heads; `wide_key_` has the inputs of their weight gradients.
  Value normed_heads(CompiledGraph& graph, const Values& v, Value query, Value key, Gradients&) {
    wide_key_ = graph.make("d_key_wide", 2 * sizes_.key);
    key_sums_ = graph.make("d_key_sums", sizes_.key_statistic);
    elementwise(graph, KernelKind::rms_norm_backward, "d_key_norm", 4 * sizes_.key);
    graph.drop(key);
    const Value wide = graph.make("d_query_wide", 2 * sizes_.query);
    elementwise(graph, KernelKind::rope_backward, "d_rope_query", 3 * sizes_.query);
    graph.drop(query);
    const Value sums = graph.make("d_query_sums", sizes_.query_statistic);
    constexpr std::int64_t kRowsAtOnce = 32;
    const Value partial = graph.make("query_norm_partial",
                                     sizes_.query_statistic * config_.model.head_dim / kRowsAtOnce);
    elementwise(graph, KernelKind::rms_norm_backward, "d_query_norm", 3 * sizes_.query);
    query_norm_ = graph.make("query_norm_sum", 4 * config_.model.head_dim);
    graph.drop(partial);
    const Value joined = graph.make("d_qkv_heads", sizes_.qkv);
    pointwise(graph, KernelKind::rope_backward, "d_rope", 3 * sizes_.qkv);
    graph.drop({wide, sums, v.query_statistic, key_sums_});
    drop_angles(graph);
    return joined;
  }

  void finish_head_norms(CompiledGraph& graph, const Values& v, Gradients& g) {
    if (!config_.model.qk_norm) return;
    const std::int64_t bytes = 2 * config_.model.head_dim;
    elementwise(graph, KernelKind::norm_weight_grad, "key_norm_sums", 3 * sizes_.key);
    graph.drop({wide_key_, v.qkv, v.key_statistic});
    const Value key = graph.make("key_norm_grad", bytes, Category::unsharded_grad);
    const Value query = graph.make("query_norm_grad", bytes, Category::unsharded_grad);
    elementwise(graph, KernelKind::norm_weight_grad, "head_norms", 2 * bytes);
    graph.drop(query_norm_);
    g.head_norms = {query, key};
  }

  BlockGradients finish(CompiledGraph& graph, const Gradients& g, Value input, Tensor output) {
    graph.emit();
    timed_backward_ = true;
    const auto at = [&](Value value) { return graph.tensor(value); };
    BlockGradients made{
        .input = at(input), .weights = {at(g.norm1), at(g.norm2), at(g.qkv)}, .later = {output}};
    for (const Value norm : g.head_norms) made.weights.push_back(at(norm));
    for (const Value value : {g.out, g.gate_up, g.down}) made.weights.push_back(at(value));
    return made;
  }

  std::map<std::size_t, Kept> kept_;
  std::optional<Angles> angles_;  ///< to be dropped
  bool timed_forward_ = false;    ///< whose kernels were timed already
  bool timed_backward_ = false;
  Value wide_key_;
  Value key_sums_;
  Value query_norm_;
};

}  // namespace

std::unique_ptr<LlamaBlock> compiled_block(StepBuilder& step, const PlanConfig& config,
                                           std::int64_t every) {
  return std::make_unique<CompiledBlock>(step, config, every);
}

}  // namespace mfsdp
