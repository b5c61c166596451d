// A block of transformers or torchtitan as compiled by Inductor: GEMMs and attention are library
// kernels, all other operations are fused. Forward keeps what the partitioner's rules select: inputs
// of the kernels of backward that are not fused, and sums over rows. Tensors that follow from those
// element by element are computed again. With selective checkpointing by operator only the operators
// on its list are kept. With --fp8, casts of the inputs of GEMMs are kept in their place
// (float8_linear.hpp); a model whose query, key and value are one GEMM is compiled like Phi-3 then.
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "sim/engines/compiled_graph.hpp"
#include "sim/engines/float8_linear.hpp"
#include "sim/engines/module_block.hpp"
#include "sim/engines/module_weights.hpp"

namespace mfsdp {
namespace {

class CompiledModuleBlock final : public LlamaBlock {
 public:
  using Value = CompiledGraph::Value;

  CompiledModuleBlock(StepBuilder& step, const PlanConfig& config, const Fsdp2Options& options)
      : LlamaBlock(step, config, options.selective_ac.every),
        options_(options),
        weights_(options.modules == Modules::fused ? block_weights(config.model)
                                                   : module_weights(config, options.modules)),
        float8_(step, options.float8, llama_sizes(config).tokens),
        rows_(step, config),
        own_(rows_.own(sizes_.state)) {}

  Tensor forward(std::size_t layer, Tensor /*input*/) override {
    Pass pass(step_);
    begin(pass, layer);
    pass.keeps = kept_names(layer);
    attend(pass);
    sum(pass);
    feed(pass);
    const Value output = pass.graph.make("output", own_);
    pointwise(pass, KernelKind::accumulate, "residual", 4 * own_);
    pass.dies({"down", "down_rstd", "sum", "out", "out_rstd"});
    pass.graph.emit();
    timed_forward_ = true;
    std::map<std::string_view, Tensor>& kept = kept_[layer];
    kept.clear();
    for (const auto& [name, value] : pass.values) kept[name] = pass.graph.tensor(value);
    return pass.graph.tensor(output);
  }

  BlockGradients backward(std::size_t layer, Tensor input, Tensor output) override {
    Pass pass(step_);
    begin(pass, layer);
    for (const auto& [name, tensor] : kept_[layer]) pass.values[name] = pass.graph.given(tensor);
    pass.keeps = {};
    pass.is_backward = true;
    mlp_backward(pass);
    attention_backward(pass);
    const Value made = input_backward(pass, input);
    pass.graph.emit();
    timed_backward_ = true;
    BlockGradients gradients{.input = pass.graph.tensor(made), .weights = {}, .later = {output}};
    for (const Weight& weight : weights_)
      gradients.weights.push_back(pass.graph.tensor(pass.gradients.at(weight.name)));
    return gradients;
  }

  void free_angles(const Angles& /*angles*/) override {}

 private:
  /// One graph of a layer, with its values by name.
  struct Pass {
    explicit Pass(StepBuilder& step) : graph(step) {}

    [[nodiscard]] bool has(std::string_view name) const { return values.contains(name); }
    Value make(const char* name, std::int64_t bytes) {
      return values[name] = graph.make(name, bytes);
    }
    /// Forward has read these for the last time.
    void dies(std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names)
        if (!is_backward && has(name) && !keeps.contains(name)) drop(name);
    }
    void drop(std::string_view name) {
      if (!has(name)) return;
      graph.drop(values.at(name));
      values.erase(values.find(name));
    }
    void drop_all(std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) drop(name);
    }

    CompiledGraph graph;
    std::map<std::string_view, Value> values;
    std::map<std::string, Value> gradients;  ///< by weight
    std::set<std::string_view> keeps;
    std::map<std::string_view, Value> d_outputs;  ///< casts of them, by layer
    std::int64_t mask = 0;                        ///< bytes of a mask in bf16
    bool in_fp8 = false;
    bool is_backward = false;
  };

  void begin(Pass& pass, std::size_t layer) {
    pass.in_fp8 = config_.has_fp8(static_cast<std::int64_t>(layer));
    if (config_.model.slides(static_cast<std::int64_t>(layer)))
      pass.mask = mask_bytes(config_, kHalf);
    shares_ = config_.model.heads != config_.model.kv_heads &&
              (options_.modules == Modules::torchtitan || pass.mask != 0);
    repeats_ = shares_ && config_.model.kv_heads > 1;  // a single head is repeated by a view
  }

  [[nodiscard]] bool is_fused() const {
    return config_.model.fused_weights || options_.modules == Modules::fused;
  }
  [[nodiscard]] const char* attention_input() const {
    if (rows_.shares()) return "normed1_all";
    return has_input_norms() ? "normed1" : "input";
  }
  [[nodiscard]] const char* mlp_input() const {
    if (rows_.shares()) return "normed2_all";
    return has_input_norms() ? "normed2" : "sum";
  }
  [[nodiscard]] bool has_output_norms() const {
    return config_.model.output_norms || !has_input_norms();
  }
  [[nodiscard]] bool has_input_norms() const { return config_.model.traits().input_norms; }
  [[nodiscard]] std::int64_t key_bytes() const { return repeats_ ? sizes_.query : sizes_.key; }
  /// Bytes of the gradient of keys that attention returns.
  [[nodiscard]] std::int64_t key_gradient() const { return shares_ ? sizes_.query : sizes_.key; }
  [[nodiscard]] std::int64_t statistic(std::int64_t of_heads) const {
    return config_.model.traits().whole_qk_norms ? sizes_.statistic : of_heads;
  }

  [[nodiscard]] std::set<std::string_view> kept_names(std::size_t layer) const {
    if (recomputes(layer)) return {};
    std::set<std::string_view> names{"attention_seed", "attention_offset", "attention",
                                     "attention_lse"};
    const auto add = [&](std::initializer_list<std::string_view> more) { names.insert(more); };
    add({"qkv", "gate_up", "value"});  // those that there are
    if (options_.selective_ac.by_operator) {
      add({"query", "gate"});
      if (rows_.shares()) add({"out"});  // reductions are on the list
      return names;
    }
    if (repeats_) names.erase("value");
    add({"normed1_rstd", "normed1", "rotated_query", "rotated_key", "repeated_value",
         "attention_bias", "out", "out_rstd", "normed2_rstd", "normed2", "gate", "up", "product"});
    if (rows_.shares()) {
      names.erase("normed1");
      names.erase("normed2");
      add({"normed1_all", "normed2_all"});
    }
    if (config_.model.qk_norm) add({"query", "key", "query_rstd", "key_rstd"});
    if (has_output_norms()) add({"down", "down_rstd"});
    if (!has_input_norms()) add({"sum"});
    if (config_.has_fp8(static_cast<std::int64_t>(layer))) keep_casts(names);
    return names;
  }

  /// Backward multiplies the casts, and not what they were made of.
  void keep_casts(std::set<std::string_view>& names) const {
    for (const char* input : {"normed1", "normed2", "product"}) names.erase(input);
    for (const char* input : {attention_input(), "attention", mlp_input(), "product"})
      names.insert(Float8Linear::cast_name(input));
    if (!float8_.keeps_weights()) return;
    for (const Weight& weight : weights_)
      if (weight.columns > 1) names.insert(Float8Linear::weight_name(weight.name));
  }

  // ---- Kernels -----------------------------------------------------------------------------

  void elementwise(Pass& pass, KernelKind kind, std::string_view name, const Traffic& traffic) {
    pass.graph.run([this, kind, name, traffic] { step_.memory_bound(kind, name, traffic); });
  }
  /// A kernel of which Inductor times several variants when the graph first runs; between runs it
  /// overwrites the L2 cache.
  void pointwise(Pass& pass, KernelKind kind, std::string_view name, const Traffic& traffic) {
    constexpr int kTimes = 2;
    const bool timed = pass.is_backward ? timed_backward_ : timed_forward_;
    for (int i = 0; i < kTimes && !timed; ++i)
      pass.graph.note([this] {
        step_.free_once(step_.once("benchmark", step_.l2_bytes(), Category::workspace));
      });
    elementwise(pass, kind, name, traffic);
  }
  void gemm(Pass& pass, GemmKind kind, std::string_view name, std::int64_t outputs,
            std::int64_t inputs) {
    pass.graph.run([this, kind, name, outputs, inputs] {
      step_.gemm(kind, name, sizes_.tokens, outputs, inputs);
    });
  }
  void project(Pass& pass, const char* name, const char* input, std::int64_t outputs,
               std::int64_t inputs) {
    if (pass.has(name)) return;
    const std::string_view weight = Float8Linear::weight_name(name);
    if (pass.in_fp8) {
      cast_input(pass, input, inputs);
      if (!pass.has(weight))
        if (const auto cast = float8_.weight(pass.graph, name, outputs * inputs))
          pass.values[weight] = *cast;
    }
    pass.make(name, checked_mul(sizes_.tokens * kHalf, outputs));
    if (!pass.in_fp8) return gemm(pass, GemmKind::forward, name, outputs, inputs);
    float8_.forward(pass.graph, name, outputs, inputs);
    if (!pass.keeps.contains(weight)) pass.drop(weight);
  }
  /// Element-wise kernels find the largest magnitude of what they make.
  void cast_input(Pass& pass, std::string_view input, std::int64_t columns) {
    const std::string_view name = Float8Linear::cast_name(input);
    if (pass.has(name)) return;
    const Largest largest = input == "product" ? Largest::by_producer : Largest::by_a_pass;
    pass.values[name] = float8_.cast(pass.graph, name, sizes_.tokens * columns, largest);
  }
  /// The gradients of a layer's weight and input, in this order. `input`: that of forward.
  void weight_gradient(Pass& pass, const char* name, const char* made, const char* input,
                       std::int64_t outputs, std::int64_t inputs) {
    if (pass.in_fp8) {
      const std::string_view layer = name;
      const bool is_fused_kernel = layer != "down" && layer != "out" && layer != "value";
      pass.d_outputs[layer] =
          float8_.cast(pass.graph, "d_output_fp8", sizes_.tokens * outputs,
                       is_fused_kernel ? Largest::by_producer : Largest::by_a_pass);
      cast_input(pass, input, inputs);
    }
    pass.gradients[name] =
        pass.graph.make(made, kHalf * outputs * inputs, Category::unsharded_grad);
    if (pass.in_fp8)
      float8_.weight_gradient(pass.graph, name, outputs, inputs);
    else
      gemm(pass, GemmKind::weight_gradient, name, outputs, inputs);
  }
  void input_gradient(Pass& pass, const char* name, std::int64_t outputs, std::int64_t inputs) {
    if (!pass.in_fp8) return gemm(pass, GemmKind::input_gradient, name, outputs, inputs);
    const std::string_view weight = Float8Linear::weight_name(name);
    float8_.input_gradient(pass.graph, name, outputs, inputs, pass.has(weight));
    pass.drop(weight);
    pass.graph.drop(pass.d_outputs.at(name));
  }
  // ---- Rows among ranks that share weights ----------------------------------------------------

  /// All rows of own ones; those are freed.
  void gather(Pass& pass, const char* own, const char* all) {
    if (!rows_.shares() || pass.has(all)) return;
    pass.make(all, sizes_.state);
    pass.graph.run([this, all] { rows_.gather(all, sizes_.state); });
    pass.drop(own);
  }
  /// Own rows of the sum of all ranks' terms; those are freed.
  void reduce(Pass& pass, const char* term, const char* own) {
    pass.make(own, own_);
    pass.graph.run([this, own] { rows_.reduce(own, sizes_.state); });
    pass.drop(term);
  }
  /// A row-cut GEMM's result.
  void project_sum(Pass& pass, const char* name, const char* term, const char* input,
                   std::int64_t inputs) {
    if (!rows_.shares()) return project(pass, name, input, sizes_.hidden, inputs);
    if (pass.has(name)) return;
    pass.make(term, sizes_.state);
    gemm(pass, GemmKind::forward, name, sizes_.hidden, inputs);
    reduce(pass, term, name);
  }
  /// The gradient of a row-cut GEMM's result, of all rows.
  void gather_gradient(Pass& pass, const char* all) {
    if (!rows_.shares()) return;
    pass.make(all, sizes_.state);
    pass.graph.run([this, all] { rows_.gather(all, sizes_.state); });
  }
  /// The gradients of rows that several GEMMs read: their sum, reduced.
  void reduce_gradients(Pass& pass, std::initializer_list<const char*> terms, const char* own) {
    if (!rows_.shares()) return;
    const auto count = static_cast<std::int64_t>(terms.size());
    pointwise(pass, KernelKind::accumulate, own, (count + 1) * sizes_.state);
    pass.make(own, own_);
    pass.graph.run([this, own] { rows_.reduce(own, sizes_.state); });
    for (const char* term : terms) pass.drop(term);
  }

  void phase(Pass& pass, Phase phase) {
    pass.graph.note([this, phase] { step_.set_phase(phase); });
  }

  // ---- Forward -----------------------------------------------------------------------------

  void norm1(Pass& pass) {
    if (!has_input_norms() || pass.has("normed1") || pass.has("normed1_fp8") ||
        pass.has("normed1_all"))
      return;
    pass.make("normed1_rstd", rows_.own(sizes_.statistic));
    pass.make("normed1", own_);
    elementwise(pass, KernelKind::rms_norm_forward, "norm1", 2 * own_);
  }

  /// From the block's input to the output of attention's last GEMM.
  void attend(Pass& pass) {
    norm1(pass);
    gather(pass, "normed1", "normed1_all");
    // Backward needs no projections of heads that it has rotated or repeated.
    const bool rotated = pass.has("rotated_query");
    if (is_fused()) {
      project(pass, "qkv", attention_input(), sizes_.qkv_columns, sizes_.hidden);
    } else {
      const char* const input = attention_input();
      if (!rotated) project(pass, "query", input, sizes_.query_columns, sizes_.hidden);
      if (!rotated) project(pass, "key", input, sizes_.key_columns, sizes_.hidden);
      if (!pass.has("repeated_value"))
        project(pass, "value", input, sizes_.key_columns, sizes_.hidden);
    }
    pass.dies({"normed1", "normed1_all", "normed1_rstd", "normed1_fp8", "input_fp8"});
    rotate(pass);
    mix(pass);
    project_sum(pass, "out", "out_term", "attention", sizes_.query_columns);
    pass.dies({"attention", "mixed_fp8"});
  }

  void rotate(Pass& pass) {
    if (pass.has("rotated_query")) return;
    if (config_.model.qk_norm) {
      pass.make("query_rstd", statistic(sizes_.query_statistic));
      elementwise(pass, KernelKind::rms_norm_forward, "query_norm", sizes_.query);
      pass.make("key_rstd", statistic(sizes_.key_statistic));
      elementwise(pass, KernelKind::rms_norm_forward, "key_norm", sizes_.key);
    }
    pass.make("rotated_query", sizes_.query);
    pointwise(pass, KernelKind::rope_forward, "rope_query", 2 * sizes_.query);
    pass.dies({"query", "query_rstd"});
    pass.make("rotated_key", key_bytes());
    pointwise(pass, KernelKind::rope_forward, "rope_key", sizes_.key + key_bytes());
    pass.dies({"key", "key_rstd"});
    if (!repeats_) return;
    pass.make("repeated_value", sizes_.query);
    pointwise(pass, KernelKind::cast, "repeat_value", sizes_.key + sizes_.query);
    pass.dies({"value"});
  }

  void mix(Pass& pass) {
    constexpr std::int64_t kRandomState = 8;
    if (pass.mask != 0 && !pass.has("attention_bias")) {
      pass.make("attention_bias", pass.mask);
      pointwise(pass, KernelKind::cast, "attention_bias", pass.mask / 2 * 3);
    }
    if (!pass.has("attention")) {
      pass.make("attention_seed", kRandomState);
      pass.make("attention_offset", kRandomState);
      pass.make("attention", sizes_.query);
      pass.make("attention_lse", sizes_.query_statistic);
      pass.graph.run([this, whole = pass.mask != 0] {
        step_.scratch("attention_workspace", kAttentionWorkspaceBytes);
        step_.attention(KernelKind::attention_forward, AttentionKind{.whole = whole});
      });
    }
    pass.dies({"rotated_query", "rotated_key", "repeated_value", "value", "qkv", "attention_bias",
               "attention_seed", "attention_offset", "attention_lse"});
  }

  /// The sum after attention, up to the input of the MLP.
  void sum(Pass& pass) {
    if (has_output_norms() && !pass.has("out_rstd")) {
      pass.make("out_rstd", sizes_.statistic);
      elementwise(pass, KernelKind::rms_norm_forward, "attention_norm", sizes_.state);
    }
    if (!has_input_norms()) {
      if (pass.has("sum")) return;
      pass.make("sum", sizes_.state);
      pointwise(pass, KernelKind::accumulate, "sum", 3 * sizes_.state);
      return;
    }
    if (pass.has("normed2") || pass.has("normed2_fp8") || pass.has("normed2_all")) return;
    pass.make("normed2_rstd", rows_.own(sizes_.statistic));
    pass.make("normed2", own_);
    elementwise(pass, KernelKind::rms_norm_forward, "norm2", 3 * own_);
    pass.dies({"normed2_rstd"});
  }

  void open_mlp(Pass& pass) {
    gather(pass, "normed2", "normed2_all");
    if (is_fused()) {
      project(pass, "gate_up", mlp_input(), 2 * sizes_.ffn, sizes_.hidden);
    } else {
      project(pass, "gate", mlp_input(), sizes_.ffn, sizes_.hidden);
      project(pass, "up", mlp_input(), sizes_.ffn, sizes_.hidden);
    }
    pass.dies({"normed2", "normed2_all", "normed2_fp8", "sum_fp8"});
  }

  void multiply(Pass& pass) {
    if (pass.has("product") || pass.has("product_fp8")) return;
    pass.make("product", sizes_.product);
    pointwise(pass, KernelKind::swiglu_forward, "swiglu", 3 * sizes_.product);
    pass.dies({"gate", "up", "gate_up"});
  }

  void feed(Pass& pass) {
    open_mlp(pass);
    multiply(pass);
    project_sum(pass, "down", "down_term", "product", sizes_.ffn);
    pass.dies({"product", "product_fp8"});
    norm_of_mlp(pass);
  }

  void norm_of_mlp(Pass& pass) {
    if (!has_output_norms() || pass.has("down_rstd")) return;
    pass.make("down_rstd", sizes_.statistic);
    elementwise(pass, KernelKind::rms_norm_forward, "mlp_norm", sizes_.state);
  }

  // ---- Backward ----------------------------------------------------------------------------

  /// The weight gradient of a norm over whole rows, from partial sums over tokens.
  void norm_weight(Pass& pass, const char* name, const char* made) {
    const std::int64_t sums = rows_.own(sizes_.norm_partial);
    const Value partial = pass.graph.make("norm_partial", sums);
    elementwise(pass, KernelKind::norm_weight_grad, name, 2 * own_);
    pass.gradients[name] = pass.graph.make(made, kHalf * sizes_.hidden, Category::unsharded_grad);
    elementwise(pass, KernelKind::norm_weight_grad, made, sums);
    pass.graph.drop(partial);
    if (rows_.shares())
      pass.graph.run([this, made] { rows_.sum(made, sizes_.hidden, DType::bf16); });
  }

  /// Computes again what forward has not kept, in forward's order, up to the MLP's last GEMM.
  void recompute(Pass& pass) {
    phase(pass, Phase::recompute);
    attend(pass);
    sum(pass);
    open_mlp(pass);
    if (has_output_norms() && !pass.has("down")) {
      multiply(pass);
      project(pass, "down", "product", sizes_.hidden, sizes_.ffn);
      norm_of_mlp(pass);
    }
    phase(pass, Phase::backward);
  }

  void mlp_backward(Pass& pass) {
    recompute(pass);
    if (has_output_norms()) {
      pass.make("d_down", sizes_.state);
      elementwise(pass, KernelKind::rms_norm_backward, "d_mlp_norm", 3 * sizes_.state);
      norm_weight(pass, "mlp_norm", "mlp_norm_grad");
      pass.drop_all({"down", "down_rstd"});
    }
    multiply(pass);
    gather_gradient(pass, "d_output_all");
    weight_gradient(pass, "down", "down_grad", "product", sizes_.hidden, sizes_.ffn);
    pass.drop_all({"product", "product_fp8"});
    pass.make("d_product", sizes_.product);
    input_gradient(pass, "down", sizes_.hidden, sizes_.ffn);
    pass.drop_all({"d_down", "d_output_all"});
    if (is_fused()) {
      pass.make("d_gate_up", sizes_.gate_up);
    } else {
      pass.make("d_up", sizes_.product);  // the gate's is written over the gradient of both
    }
    pointwise(pass, KernelKind::swiglu_backward, "d_swiglu",
              {5 * sizes_.product, AccessPattern::strided});
    pass.drop_all({"gate", "up", "gate_up"});
    if (is_fused()) {
      pass.drop("d_product");
      weight_gradient(pass, "gate_up", "gate_up_grad", mlp_input(), 2 * sizes_.ffn, sizes_.hidden);
      pass.drop_all({"normed2", "normed2_all", "normed2_fp8", "sum_fp8"});
      pass.make("d_normed2", sizes_.state);
      input_gradient(pass, "gate_up", 2 * sizes_.ffn, sizes_.hidden);
      pass.drop("d_gate_up");
    } else {
      weight_gradient(pass, "up", "up_grad", mlp_input(), sizes_.ffn, sizes_.hidden);
      pass.make("d_normed2", sizes_.state);
      input_gradient(pass, "up", sizes_.ffn, sizes_.hidden);
      pass.drop("d_up");
      weight_gradient(pass, "gate", "gate_grad", mlp_input(), sizes_.ffn, sizes_.hidden);
      pass.drop_all({"normed2", "normed2_all", "normed2_fp8", "sum_fp8"});
      pass.make("d_normed2_gate", sizes_.state);
      input_gradient(pass, "gate", sizes_.ffn, sizes_.hidden);
      pass.drop("d_product");
    }
    reduce_gradients(pass, {"d_normed2", "d_normed2_gate"}, "d_normed2_sum");
    sum_backward(pass);
  }

  /// The gradient of the sum after attention.
  void sum_backward(Pass& pass) {
    pass.make("d_sum", own_);
    elementwise(pass, KernelKind::rms_norm_backward, "d_norm2", (rows_.shares() ? 4 : 5) * own_);
    if (has_input_norms()) norm_weight(pass, "norm2", "norm2_grad");
    pass.drop_all({"d_normed2", "d_normed2_gate", "d_normed2_sum", "normed2_rstd", "sum"});
    if (!has_output_norms()) {
      pass.drop("out");
      return;
    }
    pass.make("d_out", sizes_.state);
    elementwise(pass, KernelKind::rms_norm_backward, "d_attention_norm", 3 * sizes_.state);
    norm_weight(pass, "attention_norm", "attention_norm_grad");
    pass.drop_all({"out", "out_rstd"});
  }

  void attention_backward(Pass& pass) {
    gather_gradient(pass, "d_sum_all");
    weight_gradient(pass, "out", "out_grad", "attention", sizes_.hidden, sizes_.query_columns);
    pass.drop("mixed_fp8");
    pass.make("d_attention", sizes_.query);
    input_gradient(pass, "out", sizes_.hidden, sizes_.query_columns);
    pass.drop_all({"d_out", "d_sum_all"});
    pass.make("d_rotated_query", sizes_.query);
    pass.make("d_rotated_key", key_gradient());
    pass.make("d_value", key_gradient());
    pass.graph.run([this, whole = pass.mask != 0] {
      step_.scratch("attention_backward_workspace",
                    sizes_.attention_workspace - (shares_ ? 2 * sizes_.query : 0));
      step_.attention(KernelKind::attention_backward, AttentionKind{.whole = whole});
    });
    pass.drop_all({"d_attention", "rotated_query", "rotated_key", "value", "repeated_value", "qkv",
                   "attention_bias", "attention", "attention_lse", "attention_seed",
                   "attention_offset"});
    if (shares_) {
      pass.make("d_few_values", sizes_.key);
      elementwise(pass, KernelKind::rope_backward, "d_repeat", sizes_.query + sizes_.key);
      pass.drop("d_value");
    }
    if (config_.model.qk_norm) {
      head_norm(pass, "query_norm", "query_norm_grad", sizes_.query, config_.model.heads);
      head_norm(pass, "key_norm", "key_norm_grad", sizes_.key, config_.model.kv_heads);
    }
    if (is_fused()) {
      pass.make("d_qkv", sizes_.qkv);
      pointwise(pass, KernelKind::rope_backward, "d_rope",
                {2 * sizes_.qkv, AccessPattern::strided});
      pass.drop_all({"d_rotated_query", "d_rotated_key", "d_value"});
      return;
    }
    pass.make("d_query", sizes_.query);
    pointwise(pass, KernelKind::rope_backward, "d_rope_query", 2 * sizes_.query);
    pass.drop_all({"d_rotated_query", "query", "query_rstd"});
    pass.make("d_key", sizes_.key);
    pointwise(pass, KernelKind::rope_backward, "d_rope_key", sizes_.key + key_gradient());
    pass.drop_all({"d_rotated_key", "key", "key_rstd"});
  }

  void head_norm(Pass& pass, const char* name, const char* made, std::int64_t bytes,
                 std::int64_t heads) {
    const std::int64_t width = config_.model.qk_norm_width(heads);
    const Value partial = pass.graph.make("head_norm_partial", bytes / 32);
    elementwise(pass, KernelKind::rms_norm_backward, name, 3 * bytes);
    pass.gradients[name] = pass.graph.make(made, kHalf * width, Category::unsharded_grad);
    elementwise(pass, KernelKind::norm_weight_grad, made, bytes / 32);
    pass.graph.drop(partial);
  }

  void projection_backward(Pass& pass, const char* name, const char* made, const char* bias,
                           const char* input, std::string_view gradient, std::int64_t outputs) {
    weight_gradient(pass, name, made, attention_input(), outputs, sizes_.hidden);
    if (config_.model.qkv_bias) {
      pass.gradients[std::string(name) + "_bias"] =
          pass.graph.make(bias, kHalf * outputs, Category::unsharded_grad);
      elementwise(pass, KernelKind::bias_grad, bias, sizes_.tokens * outputs * kHalf);
    }
    pass.make(input, sizes_.state);
    input_gradient(pass, name, outputs, sizes_.hidden);
    pass.drop(gradient);
  }

  Value input_backward(Pass& pass, Tensor input) {
    if (is_fused()) {
      projection_backward(pass, "qkv", "qkv_grad", "qkv_bias_grad", "d_normed1", "d_qkv",
                          sizes_.qkv_columns);
    } else {
      projection_backward(pass, "value", "value_grad", "value_bias_grad", "d_normed1_value",
                          shares_ ? "d_few_values" : "d_value", sizes_.key_columns);
      projection_backward(pass, "key", "key_grad", "key_bias_grad", "d_normed1_key", "d_key",
                          sizes_.key_columns);
      projection_backward(pass, "query", "query_grad", "query_bias_grad", "d_normed1", "d_query",
                          sizes_.query_columns);
    }
    pass.drop_all({"normed1", "normed1_all", "normed1_fp8", "input_fp8"});
    reduce_gradients(pass, {"d_normed1", "d_normed1_key", "d_normed1_value"}, "d_normed1_sum");
    if (has_input_norms()) norm_weight(pass, "norm1", "norm1_grad");
    // Written over the gradient of the sum.
    elementwise(pass, KernelKind::rms_norm_backward, "d_norm1", (rows_.shares() ? 4 : 6) * own_);
    pass.drop_all(
        {"d_normed1", "d_normed1_key", "d_normed1_value", "d_normed1_sum", "normed1_rstd"});
    pass.graph.drop(pass.graph.given(input));
    return pass.values.at("d_sum");
  }

  Fsdp2Options options_;
  std::vector<Weight> weights_;
  Float8Linear float8_;
  TensorRows rows_;
  std::int64_t own_;  ///< bytes of own rows of a hidden state
  std::map<std::size_t, std::map<std::string_view, Tensor>> kept_;  ///< by layer and name
  bool shares_ = false;   ///< attention gets a key for each query head
  bool repeats_ = false;  ///< and these are copies
  bool timed_forward_ = false;
  bool timed_backward_ = false;
};

}  // namespace

std::unique_ptr<LlamaBlock> compiled_module_block(StepBuilder& step, const PlanConfig& config,
                                                  const Fsdp2Options& options) {
  return std::make_unique<CompiledModuleBlock>(step, config, options);
}

}  // namespace mfsdp
