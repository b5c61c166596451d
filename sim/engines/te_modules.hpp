// GEMMs and norms of Transformer Engine, for the layers and the other parts of Megatron-Core.
//
//   weight gradients   added to the main gradients by the GEMM itself (gradient accumulation
//                      fusion). Autograd receives a placeholder tensor, one for each shape and
//                      type, which is kept permanently
//   other gradients    a tensor in bf16, added to the main gradients by the schedule's hook
//   norms              one kernel in forward; one in backward, with partial sums of each SM for the
//                      weight gradient
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/mcore_weights.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// Owner of cuBLAS's workspace: Transformer Engine has one for forward and backward.
enum class Library { transformer_engine, pytorch };

struct TeNorm {
  Tensor rows;
  Tensor statistic;  ///< one a row
};

class TeModules {
 public:
  TeModules(StepBuilder& step, const PlanConfig& config, WeightHooks hooks)
      : step_(step), main_gradient_(size_of(config.grad_dtype)), hooks_(std::move(hooks)) {}

  /// A GEMM of m tokens, n outputs and k inputs.
  void gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
            Library library = Library::transformer_engine);
  /// The placeholder that autograd receives for a weight gradient that is already in the buffer, of
  /// rows x columns.
  void keep_stand_in(std::int64_t rows, std::int64_t columns);
  /// Adds a gradient to the buffer, and frees it.
  void add_to_buffer(std::size_t weight, Tensor gradient);
  /// `bytes` of rows in bf16, `statistic` bytes of sums.
  [[nodiscard]] TeNorm norm(std::string_view name, std::int64_t bytes, std::int64_t statistic);
  /// The gradient of the rows, of `columns` each, and that of the weight. Frees none of its
  /// arguments.
  [[nodiscard]] std::pair<Tensor, Tensor> norm_backward(std::string_view name, std::int64_t bytes,
                                                        std::int64_t columns);

 private:
  StepBuilder& step_;
  std::int64_t main_gradient_;  ///< bytes of an element
  WeightHooks hooks_;
  bool workspace_ = false;
  std::set<std::pair<std::int64_t, std::int64_t>> stand_ins_;
};

}  // namespace mfsdp
