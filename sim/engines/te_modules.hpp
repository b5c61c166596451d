// GEMMs and norms of Transformer Engine, for the layers and the other parts of Megatron-Core.
//
//   weight gradients   added to the main gradients by the GEMM itself (gradient accumulation
//                      fusion). Autograd receives a placeholder tensor, one for each shape and
//                      type, which is kept permanently
//   other gradients    a tensor in bf16, added to the main gradients by the schedule's hook
//   FP8                with current scaling: inputs, weights and gradients of outputs are cast with a
//                      scale of the whole tensor, both as stored and transposed, in one pass. Of an
//                      input the transposed cast alone is kept for backward. Casts of weights are kept
//                      beside the bf16 weights (the cache of is_first_microbatch), and made once a
//                      step. Norms find the largest magnitude of what they make
//   norms              RMSNorm or, in GPT, LayerNorm: one kernel in forward; one in backward, with
//                      partial sums of each SM for the gradients of weight and bias
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/mcore_weights.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// Owner of cuBLAS's workspace: Transformer Engine has one for forward and backward.
enum class Library { transformer_engine, pytorch };

struct TeNorm {
  Tensor rows;
  Tensor statistic;              ///< one a row
  std::optional<Tensor> mean{};  ///< likewise, of LayerNorm
};

struct TeNormGradients {
  Tensor input;
  Tensor weight;
  std::optional<Tensor> bias{};  ///< of LayerNorm
};

/// How a tensor's largest magnitude is found.
enum class LargestMagnitude { by_norm, by_a_pass };

/// Casts of one tensor with one scale.
struct TeCasts {
  Tensor row;                      ///< as stored
  std::optional<Tensor> column{};  ///< transposed
};

class TeModules {
 public:
  TeModules(StepBuilder& step, const PlanConfig& config, WeightHooks hooks)
      : step_(step),
        main_gradient_(size_of(config.grad_dtype)),
        is_layer_norm_(config.model.traits().layer_norms),
        hooks_(std::move(hooks)) {}

  /// A GEMM of m tokens, n outputs and k inputs.
  void gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
            Library library = Library::transformer_engine);
  /// The same of casts.
  void gemm_fp8(GemmKind kind, std::string_view name, const GemmSize& size);
  /// Casts a tensor of `elements` in bf16.
  [[nodiscard]] TeCasts cast(std::string_view name, std::int64_t elements, LargestMagnitude largest,
                             bool transposes);
  /// Casts the weight in a step's first microbatch.
  void cast_weight(std::size_t weight, std::string_view name, std::int64_t elements);
  void begin(bool is_first_microbatch) {
    is_first_ = is_first_microbatch;
    if (is_first_) cast_in_step_.clear();
  }
  /// The placeholder that autograd receives for a weight gradient that is already in the buffer, of
  /// rows x columns.
  void keep_stand_in(std::int64_t rows, std::int64_t columns);
  /// Adds a gradient to the buffer, and frees it.
  void add_to_buffer(std::size_t weight, Tensor gradient);
  /// `bytes` of rows in bf16, `statistic` bytes of sums.
  [[nodiscard]] TeNorm norm(std::string_view name, std::int64_t bytes, std::int64_t statistic);
  /// Frees what backward reads of the norm beside its rows.
  void free_statistics(const TeNorm& norm);
  /// The gradient of the rows, of `columns` each, and that of weight and bias. Frees none of its
  /// arguments.
  [[nodiscard]] TeNormGradients norm_backward(std::string_view name, std::int64_t bytes,
                                              std::int64_t columns);
  /// The gradient of a bias that is a sum over the rows of `gradient`, added to the buffer.
  void bias_backward(std::size_t weight, std::string_view name, Tensor gradient,
                     std::int64_t columns);

 private:
  void take_workspace();

  StepBuilder& step_;
  std::int64_t main_gradient_;  ///< bytes of an element
  bool is_layer_norm_;
  WeightHooks hooks_;
  bool workspace_ = false;
  bool is_first_ = true;
  std::set<std::size_t> cast_weights_{};  ///< whose casts there are
  std::set<std::size_t> cast_in_step_{};
  std::set<std::pair<std::int64_t, std::int64_t>> stand_ins_;
};

}  // namespace mfsdp
