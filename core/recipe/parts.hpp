// Building blocks that the recipes share.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/model/lora.hpp"
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
  std::int64_t rotated;       ///< heads of queries and keys
  std::int64_t head_dim;
  std::int64_t rotated_dim;  ///< elements of a head that RoPE turns
  DType compute;
  DType statistic;  ///< of rows, and of partial sums

  /// What a dim of a kernel's operand stands for where no attribute of the kernel has that name:
  /// "seq", "head_dim", "rotated", "rotated_dim", "value_dim", "qkv_width", "partial_rows",
  /// "vocab", "positions", "sequences".
  [[nodiscard]] std::int64_t named(std::string_view dim) const;

 private:
  std::int64_t seq_;
  std::int64_t value_dim_;
  std::int64_t positions_;
  std::int64_t sequences_;
};

using Shape = std::vector<std::int64_t>;

// Operands, short of what the kernel's row in core/plan/kernel_spec.hpp says of their role: shape,
// dtype and access.

/// A tensor of this unit; without a name that of the role.
[[nodiscard]] RecipeOperand on(std::string role, std::string tensor = {});
/// A parameter, or its gradient.
[[nodiscard]] RecipeOperand weight(ParameterRole parameter);
[[nodiscard]] RecipeOperand weight_grad(ParameterRole parameter);
/// Each token's position in its document: the third row of the tokens.
[[nodiscard]] RecipeOperand document_positions(const Sizes& sizes);
/// All of the compute stream's workspace.
[[nodiscard]] RecipeOperand stream_workspace();
/// The same operand taken from another place.
[[nodiscard]] RecipeOperand from(Source source, RecipeOperand operand);
/// The operand is made into another value when it has been read (OperandUse::yields).
[[nodiscard]] RecipeOperand rewritten(RecipeOperand operand);
[[nodiscard]] RecipeOperand strided(RecipeOperand operand, Shape strides, std::int64_t offset = 0);
/// An operand of which the table says nothing.
[[nodiscard]] RecipeOperand shaped(RecipeOperand operand, Access access, DType dtype, Shape shape);

/// y[rows, outputs] = x[rows, inputs] * weight[outputs, inputs]^T
/// and in the columns of each adapter + scale * (x * A^T) * B^T (core/model/lora.hpp).
struct Linear {
  ParameterRole weight = ParameterRole::qkv;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::vector<LoraTarget> adapters{};
};

/// The bias of a layer norm's weight; nothing where the model has RMS norms, or for norms that are
/// none of the residual's.
[[nodiscard]] std::optional<ParameterRole> norm_bias(const ModelShape& model, ParameterRole weight);

/// What a unit leaves to the next: its rows alone or, where the next unit norms them first, rows
/// that lack the last addition.
[[nodiscard]] std::string stream_name(const ModelShape& model);

/// Collects a recipe. A tensor is declared by the first kernel that names it: as many elements as
/// its operand has, scratch as workspace, all else as activation, in a slot class of its own name.
/// What differs from that is declared before, by tensor().
class Builder {
 public:
  explicit Builder(const PlanConfig& plan_config) : config(plan_config), sizes(plan_config) {}

  /// In a slot class of its own name where it states none.
  void tensor(RecipeTensor tensor);

  /// Adds a kernel of the current phase. Shapes, dtypes, accesses and FLOPs are those of its kind's
  /// row, with the attributes that are given here, sorted by name.
  void kernel(std::string name, KernelKind kind, std::vector<Attribute> attributes,
              std::vector<RecipeOperand> operands,
              std::optional<ParameterRole> gradient_of = std::nullopt);

  /// Adds an all_to_all over the ranks of an axis: equal parts of the operands, which state their
  /// dtype and shape, go to each.
  void exchange(std::string name, Axis axis, RecipeOperand input, RecipeOperand output,
                std::optional<ParameterRole> gradient_of = std::nullopt);

  /// The adapters beside the layer's matrix.
  [[nodiscard]] Linear with_adapters(Linear layer) const;
  // Adapters' products follow the matrix's own. What A makes of the input is kept for backward; its
  // gradient is made beside the input's and kept for that of A.

  /// out[rows, n] = in[rows, k] * weight[n, k]^T  (+ bias)
  void gemm_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                    RecipeOperand in, RecipeOperand out,
                    std::optional<ParameterRole> bias = std::nullopt);
  /// d_in[rows, k] = (or +=) d_out[rows, n] * weight[n, k]
  void gemm_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                  RecipeOperand d_out, RecipeOperand d_in, bool adds = false);
  /// d_weight[n, k] = (or +=) d_out[rows, n]^T * in[rows, k]
  void gemm_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                  RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight, bool adds = false);
  /// residual_out = residual (+ delta); normed = (skip +) residual_out * rstd * weight. Layer
  /// norms, which are those with a role of a bias, take the mean away first and add the bias; their
  /// mean lies in a tensor of rstd's name with ".mean".
  /// Rows are as wide as the hidden state, or `cols`.
  void norm_forward(const std::string& name, ParameterRole role, std::vector<RecipeOperand> inputs,
                    std::vector<RecipeOperand> outputs, std::int64_t cols = 0);
  /// The bias's gradient: sums of the columns of d_output, by way of a tensor `partials`.
  void bias_grad(const std::string& name, ParameterRole role, RecipeOperand d_output,
                 std::int64_t cols, const std::string& partials);
  /// d_residual (+)= gradient through the norm, which writes the normed rows over d_normed where
  /// that one is rewritten; then the weight's gradient from partial sums.
  struct NormBackward {
    std::string name;
    ParameterRole role;
    RecipeOperand d_normed;
    RecipeOperand input;  ///< the norm's input rows
    RecipeOperand rstd;
    RecipeOperand d_residual;
    bool adds = true;       ///< to d_residual; or it is written
    std::int64_t cols = 0;  ///< 0: the hidden state's
  };
  void norm_backward(NormBackward norm);
  /// With what the model's norms have beside: in their last place by name.
  [[nodiscard]] std::vector<Attribute> norm_attributes(std::vector<Attribute> attributes) const;
  /// Second stage: of the partials' [norm_rows, cols] that begin at that element.
  void norm_weight_grad(const std::string& name, ParameterRole role, const std::string& partials,
                        std::int64_t cols, std::int64_t begin = 0);
  /// First stages of column sums, which take turns in one place.
  void declare_partials(std::string name, std::int64_t elements);

  const PlanConfig& config;
  const Sizes sizes;
  UnitRecipe recipe;
  std::vector<RecipeOp>* target = &recipe.forward;
  Phase phase = Phase::forward;
  std::string slot_class;  ///< of tensors that kernels declare, instead of their names

 private:
  /// An adapter's own columns of rows of the whole layer.
  [[nodiscard]] static RecipeOperand columns_of(const LoraTarget& adapter, const Linear& layer,
                                                RecipeOperand rows);
  /// The product of B, or one of its two gradients: scaled.
  [[nodiscard]] std::vector<Attribute> b_attributes(GemmKind kind, const LoraTarget& adapter,
                                                    std::int64_t rows, bool adds) const;
  [[nodiscard]] Linear layer_a(const LoraTarget& adapter) const;
  [[nodiscard]] static std::string lora_name(const LoraTarget& adapter);

  void fill(RecipeOperand& operand, const OperandSpec& spec, const Kernel& kernel) const;
  void declare(const RecipeOperand& operand);

  std::map<ParameterRole, std::string> hidden_;  ///< by A: the tensor that it made last
};

}  // namespace mfsdp::recipe
