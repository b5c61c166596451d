// Building blocks that the recipes share.
#pragma once

#include <string>
#include <vector>

#include "core/recipe/recipe.hpp"

namespace mfsdp::recipe {

/// The sizes that all kernels of a recipe speak of.
struct Sizes {
  explicit Sizes(const PlanConfig& config);

  std::int64_t tokens;        ///< T
  std::int64_t hidden;        ///< h
  std::int64_t intermediate;  ///< f
  std::int64_t qkv;           ///< Q
  std::int64_t attention;     ///< A
  std::int64_t vocab;         ///< V
  std::int64_t norm_rows;     ///< rows of a norm's partial weight gradients
  DType compute;
  DType statistic;  ///< of rows, and of partial sums
};

using Shape = std::vector<std::int64_t>;

[[nodiscard]] RecipeOperand read(std::string role, std::string tensor, DType dtype, Shape shape);
[[nodiscard]] RecipeOperand write(std::string role, std::string tensor, DType dtype, Shape shape);
[[nodiscard]] RecipeOperand update(std::string role, std::string tensor, DType dtype, Shape shape);
[[nodiscard]] RecipeOperand scratch(std::string role, std::string tensor, DType dtype, Shape shape);
[[nodiscard]] RecipeOperand weight(ParameterRole parameter, DType dtype, Shape shape);
[[nodiscard]] RecipeOperand weight_grad(ParameterRole parameter, Shape shape, bool add = false);
/// All of the compute stream's workspace.
[[nodiscard]] RecipeOperand stream_workspace();
/// The same operand taken from another place.
[[nodiscard]] RecipeOperand from(Source source, RecipeOperand operand);

/// Collects a recipe. Tensors are declared once, by the kernels that create them.
class Builder {
 public:
  explicit Builder(const PlanConfig& plan_config) : config(plan_config), sizes(plan_config) {}

  /// `slot_class`: RecipeTensor's; the name where it is empty.
  void tensor(std::string name, DType dtype, std::int64_t elements,
              Category category = Category::activation, Source source = Source::tensor,
              std::string slot_class = "");
  void add(RecipeKernel kernel) { target->push_back(std::move(kernel)); }
  /// The kernel added last.
  RecipeKernel& last() { return target->back(); }

  /// out[m, n] = in[m, k] * weight[n, k]^T  (+ bias)
  void gemm_forward(const std::string& name, ParameterRole role, std::int64_t n, std::int64_t k,
                    RecipeOperand in, RecipeOperand out);
  /// d_in[m, k] = d_out[m, n] * weight[n, k]
  void gemm_dgrad(const std::string& name, ParameterRole role, std::int64_t n, std::int64_t k,
                  RecipeOperand d_out, RecipeOperand d_in);
  /// d_weight[n, k] = (or +=) d_out[m, n]^T * in[m, k]
  void gemm_wgrad(const std::string& name, ParameterRole role, RecipeOperand d_out,
                  RecipeOperand in, RecipeOperand d_weight);
  /// residual_out = residual (+ delta); normed = residual_out * rstd * weight
  void norm_forward(const std::string& name, ParameterRole role, std::vector<RecipeOperand> inputs,
                    std::vector<RecipeOperand> outputs);
  /// d_residual (+)= gradient through the norm, which writes the normed rows over d_normed where
  /// that one is updated; then the weight's gradient from partial sums.
  struct NormBackward {
    std::string name;
    ParameterRole role;
    RecipeOperand d_normed;  ///< read, or updated to the normed rows
    RecipeOperand input;     ///< the norm's input rows
    RecipeOperand rstd;
    RecipeOperand d_residual;  ///< written or updated
  };
  void norm_backward(NormBackward norm);

  const PlanConfig& config;
  const Sizes sizes;
  UnitRecipe recipe;
  std::vector<RecipeKernel>* target = &recipe.forward;
  Phase phase = Phase::forward;
};

}  // namespace mfsdp::recipe
