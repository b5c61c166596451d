// The steps that adapters (LoRA) add to a model (model_steps.hpp), by the configuration:
//
//   hidden = in A^T               out = base + scale (hidden B^T), in the layer's own columns
//   d_hidden = scale (d_out B)    d_in = base's + d_hidden A, of one layer after the other
//   d_B = scale (d_out^T hidden)  d_A = d_hidden^T in
//
// Written from the mathematics, and not from the planner's tables.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/config.hpp"
#include "verify/proof/values/model_steps.hpp"

namespace mfsdp {

class LoraSteps {
 public:
  explicit LoraSteps(const PlanConfig& config);

  /// A step of adapters, or one of the model that adapters change; null: neither.
  [[nodiscard]] const ModelStep* find(KernelKind kind, std::int64_t variant,
                                      std::optional<ParameterRole> parameter) const;
  /// The roles of the parameters that adapters add to a block.
  [[nodiscard]] const std::vector<ParameterRole>& roles() const { return roles_; }
  /// Whether a GEMM with that parameter is scaled: those with B are.
  [[nodiscard]] bool is_scaled(std::optional<ParameterRole> parameter) const;

  struct Columns {
    std::int64_t begin = 0;  ///< elements
    std::int64_t end = 0;
  };
  /// The columns of its layer in rows of the whole matrix, of a B.
  [[nodiscard]] Columns columns_of(ParameterRole b) const;
  /// Columns of the matrix's output that no adapter adds to, ascending.
  [[nodiscard]] std::vector<Columns> left_alone(ParameterRole matrix) const;

 private:
  struct Adapter {
    ParameterRole matrix{};
    ParameterRole b{};
    Columns columns;
  };

  std::vector<ModelStep> steps_;
  std::vector<ParameterRole> roles_;
  std::vector<Adapter> adapters_;
  std::vector<std::pair<ParameterRole, std::int64_t>> widths_;  ///< of matrices with adapters
};

}  // namespace mfsdp
