// torchao's Float8Linear with tensor-wise scales, as Inductor compiles it for matrix units that
// multiply rows by rows: inputs and weights in E4M3, gradients of outputs in E5M2.
//
//   input      its largest magnitude, then a cast. The cast is kept for backward, which transposes it
//              for the weight's gradient
//   weight     likewise, in forward and again in backward, transposed. Or it arrives in FP8
//              (enable_fsdp_float8_all_gather) and is only transposed. Without
//              force_recompute_fp8_weight_in_bwd backward has forward's cast, of the whole weight
//   gradient   its largest magnitude and a cast, then a transpose
//   largest magnitudes   are found by the kernel that makes the tensor where it is element-wise,
//              and by a pass over the tensor elsewhere
//   GEMMs      accumulate fast in forward alone
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/engines/compiled_graph.hpp"
#include "sim/engines/fsdp2_options.hpp"

namespace mfsdp {

/// How a tensor's largest magnitude is found.
enum class Largest { by_producer, by_a_pass };

class Float8Linear {
 public:
  using Value = CompiledGraph::Value;

  Float8Linear(StepBuilder& step, const Float8Options& options, std::int64_t tokens)
      : step_(step), options_(options), tokens_(tokens) {}

  /// The name of the cast of a block's tensor or weight: "product_fp8", "down_weight_fp8".
  [[nodiscard]] static std::string_view cast_name(std::string_view tensor);
  [[nodiscard]] static std::string_view weight_name(std::string_view layer);

  /// A cast of a tensor, as it is stored.
  [[nodiscard]] Value cast(CompiledGraph& graph, std::string_view name, std::int64_t elements,
                           Largest largest);
  /// The weight for forward's GEMM; nothing is made where it arrives in FP8.
  [[nodiscard]] std::optional<Value> weight(CompiledGraph& graph, std::string_view layer,
                                            std::int64_t elements);
  void forward(CompiledGraph& graph, std::string_view layer, std::int64_t outputs,
               std::int64_t inputs);
  void weight_gradient(CompiledGraph& graph, std::string_view layer, std::int64_t outputs,
                       std::int64_t inputs);
  /// `has_cast`: of the weight.
  void input_gradient(CompiledGraph& graph, std::string_view layer, std::int64_t outputs,
                      std::int64_t inputs, bool has_cast);
  /// Whether backward has forward's cast of the weight.
  [[nodiscard]] bool keeps_weights() const {
    return !options_.gathers_fp8 && !options_.recomputes_weights;
  }

 private:
  void kernel(CompiledGraph& graph, KernelKind kind, std::string_view name, const Traffic& traffic);
  void gemm(CompiledGraph& graph, GemmKind kind, std::string_view layer, std::int64_t outputs,
            std::int64_t inputs);
  [[nodiscard]] Value transposed(CompiledGraph& graph, std::string_view name,
                                 std::int64_t elements);

  StepBuilder& step_;
  Float8Options options_;
  std::int64_t tokens_;
};

}  // namespace mfsdp
