// A transformer layer of Megatron-Core with Transformer Engine's modules: norm and GEMM fused into
// one module, fused rotations, SwiGLU compiled separately, cuDNN's attention.
//
//   attention    requires equal layouts of query, key and value. Values are copied from the GEMM's
//                rows, and queries too if several share a key; the rows are freed after attention
//   backward     keeps the inputs of norms, the outputs of norms and SwiGLU, gate and up, query,
//                key, value, attention's output and its sums
//   GPT          LayerNorm, and GELU with its bias in one kernel. Without rotations query, key and
//                value stay views of the GEMM's rows, and attention writes their gradients as views
//                of one tensor. Biases of the outputs are added with the residuals
//   others       latent attention (mcore_latent.hpp) and experts (mcore_experts.hpp) replace either
//                half; rotations with scaled cosines and sines (YaRN), and biases after attention,
//                run as PyTorch's own kernels, because neither is fused
//   tensor parallel   GEMMs are one rank's (mcore_rows.hpp has what is between them)
//   context parallel  mcore_context.hpp has attention
//   FP8          casts of norms' and SwiGLU's outputs are kept in their place, and one of attention's
//                output beside it
//   recomputed   a layer keeps only its input; backward repeats all of forward, output included,
//                and holds both the output and its gradient until its end
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>

#include "sim/engines/mcore_context.hpp"
#include "sim/engines/mcore_experts.hpp"
#include "sim/engines/mcore_latent.hpp"
#include "sim/engines/mcore_rows.hpp"
#include "sim/engines/te_modules.hpp"

namespace mfsdp {

class McoreBlock {
 public:
  /// `config`: with the model of one rank.
  McoreBlock(StepBuilder& step, const PlanConfig& config, const McoreParallel& parallel,
             TeModules& modules, McoreRows& rows, const WeightHooks& hooks)
      : step_(step),
        config_(config),
        sizes_(llama_sizes(config)),
        modules_(modules),
        rows_(rows),
        hooks_(hooks),
        context_(step, config_, parallel, sizes_),
        experts_(step, config, modules, hooks),
        latent_(step, config, modules, hooks) {}

  /// Returns the output. `input` and the tensors that backward needs stay allocated.
  [[nodiscard]] Tensor forward(const LayerWeights& weights, Tensor input);
  /// Returns the gradient of the input. Frees the tensors that forward kept, `input`, and `output`,
  /// the gradient of the layer's output.
  [[nodiscard]] Tensor backward(const LayerWeights& weights, Tensor input, Tensor output);

 private:
  struct Saved {
    TeNorm normed1, normed2;
    Tensor rows;  ///< of GPT, in place of query, key and value
    Tensor query, key, value, mixed, random_state, scores, sum, gate_up, product;
    McoreExperts::Saved experts{};  ///< in place of norm and MLP
    McoreLatent::Saved latent{};    ///< in place of norm and heads
    // With normed heads: the norm's input, and its sums.
    std::optional<Tensor> query_rows{}, key_rows{}, query_statistic{}, key_statistic{};
    std::optional<Tensor> mixed_cast{};  ///< of attention's output in FP8, transposed
    McoreContext::Saved context{};       ///< of attention over shared sequences
    Tensor output;
  };
  struct HeadGradients {
    Tensor query, key, value;
  };
  /// The weights of a module with a norm and a GEMM.
  struct ModuleWeights {
    std::size_t norm = 0;
    std::optional<std::size_t> norm_bias{};
    std::size_t weight = 0;
    std::optional<std::size_t> bias{};
  };

  [[nodiscard]] bool recomputes() const { return config_.recompute.kind == Recompute::full; }
  /// Whether several queries share a key; then queries are not contiguous.
  [[nodiscard]] bool groups() const { return config_.model.heads != config_.model.kv_heads; }

  Tensor allocate(std::string_view name, std::int64_t bytes,
                  Category category = Category::activation) {
    return step_.allocate(name, bytes, category);
  }
  void elementwise(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.memory_bound(kind, name, traffic);
  }
  void gemm(GemmKind kind, std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    if (in_fp8_)
      modules_.gemm_fp8(kind, name, {.m = sizes_.tokens, .n = outputs, .k = inputs});
    else
      modules_.gemm(kind, name, sizes_.tokens, outputs, inputs);
  }
  /// The same of some of the rows.
  [[nodiscard]] McoreRows::Gemm gemm_of(GemmKind kind, std::string_view name, std::int64_t outputs,
                                        std::int64_t inputs) {
    return [=, this](std::int64_t rows) { modules_.gemm(kind, name, rows, outputs, inputs); };
  }
  /// A GEMM whose outputs the ranks divide: its result, from gathered rows.
  [[nodiscard]] Tensor column_product(std::string_view name, std::string_view rows,
                                      std::int64_t outputs);
  /// A GEMM whose inputs the ranks divide: the sum of all ranks' terms.
  [[nodiscard]] Tensor row_product(std::string_view name, std::int64_t inputs);
  /// In FP8: casts a GEMM's input, and frees it. The result, which takes its place, is what backward
  /// needs (`keep`) or what the GEMM reads; the other cast goes to `read`, to be freed after the
  /// GEMM.
  [[nodiscard]] Tensor cast_input(std::string_view name, Tensor input, LargestMagnitude largest,
                                  bool keep, std::optional<Tensor>& read);
  void cast_weight(std::size_t weight, std::string_view name, std::int64_t outputs,
                   std::int64_t inputs) {
    if (in_fp8_) modules_.cast_weight(weight, name, outputs * inputs);
  }
  void free_if_any(const std::optional<Tensor>& tensor) {
    if (tensor) step_.free(*tensor);
  }
  /// Gradients of weight and input in the order of modules: the input's first. The ranks divide the
  /// GEMM's inputs.
  Tensor input_and_weight(std::string_view name, std::int64_t outputs, std::int64_t inputs);
  /// The same of one whose outputs they divide: own rows of the input's gradient and, if these are
  /// others, what the GEMM made, which stays as long.
  struct InputGradient {
    Tensor rows;
    std::optional<Tensor> term{};
  };
  [[nodiscard]] InputGradient column_backward(std::string_view name, std::string_view rows,
                                              std::int64_t outputs);

  [[nodiscard]] bool is_gpt() const { return config_.model.family == Family::gpt2; }
  /// Outputs of the MLP's first GEMM.
  [[nodiscard]] std::int64_t inner_columns() const {
    return config_.model.traits().gated ? 2 * sizes_.ffn : sizes_.ffn;
  }
  /// Those that the model has.
  void use(std::initializer_list<std::optional<std::size_t>> weights);
  void free_norm(const TeNorm& norm);

  [[nodiscard]] bool is_latent() const { return config_.model.traits().latent_attention; }
  /// False for rotations with scaled cosines and sines, which Transformer Engine does not have.
  [[nodiscard]] bool fuses_rotations() const;
  [[nodiscard]] AttentionKind attention_of(const LayerWeights& weights) const;

  /// `keep`: for backward. The output is the last allocation.
  Saved run(const LayerWeights& weights, bool keep);
  /// The result of attention, or of the MLP, that is added to the residual.
  [[nodiscard]] Tensor attend(const LayerWeights& weights, Saved& kept, bool keep);
  [[nodiscard]] Tensor multiply(const LayerWeights& weights, Saved& kept, bool keep);
  void rotate(std::string_view name, std::int64_t bytes, AccessPattern pattern);
  void rotate_back(std::string_view name, std::int64_t bytes);
  void heads(const LayerWeights& weights, Saved& kept, bool keep);
  [[nodiscard]] Tensor normed_heads(std::string_view name, std::int64_t bytes,
                                    std::int64_t statistic, std::optional<Tensor>& rows,
                                    std::optional<Tensor>& sums, bool keep);
  void mix(const LayerWeights& weights, Saved& kept, bool keep);

  [[nodiscard]] Tensor mlp_backward(const LayerWeights& weights, const Saved& kept);
  [[nodiscard]] Tensor heads_and_norm_backward(const LayerWeights& weights, const Saved& kept);
  [[nodiscard]] HeadGradients attention_backward(const LayerWeights& weights, const Saved& kept);
  [[nodiscard]] Tensor heads_backward(const LayerWeights& weights, const Saved& kept,
                                      HeadGradients made);
  [[nodiscard]] Tensor rows_backward(const LayerWeights& weights, const Saved& kept);
  [[nodiscard]] Tensor turned_back(std::string_view name, Tensor gradient, std::int64_t bytes);
  [[nodiscard]] Tensor norm_of_heads(std::size_t weight, std::string_view name, Tensor gradient,
                                     const std::optional<Tensor>& rows,
                                     const std::optional<Tensor>& statistic);
  /// The gradient of the input of a module with a norm and a GEMM. Frees the tensors that it kept
  /// except the input, and `gradient`, the gradient of its output.
  [[nodiscard]] Tensor module_backward(std::string_view product, std::string_view norm,
                                       std::int64_t outputs, const TeNorm& normed, Tensor gradient,
                                       const ModuleWeights& weights);

  StepBuilder& step_;
  const PlanConfig& config_;
  LlamaSizes sizes_;
  TeModules& modules_;
  McoreRows& rows_;
  const WeightHooks& hooks_;
  McoreContext context_;
  McoreExperts experts_;
  McoreLatent latent_;
  std::map<std::size_t, Saved> saved_{};  ///< by a weight of the layer
  bool in_fp8_ = false;                   ///< the layer's GEMMs
};

}  // namespace mfsdp
