// Building blocks that the recipes share.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/lora.hpp"
#include "core/plan/fp8_blocks.hpp"
#include "core/recipe/recipe.hpp"

namespace mfsdp::recipe {

/// Sizes that the kernels of a recipe share.
struct Sizes {
  explicit Sizes(const PlanConfig& config);

  std::int64_t tokens;        ///< T
  std::int64_t tensor_ranks;  ///< ranks of tp; sizes below are those of one of them
  std::int64_t rows;          ///< of a rank between blocks: tokens / tensor_ranks
  std::int64_t head_groups;   ///< ranks that have other heads of attention, and equally many
  std::int64_t attended;      ///< tokens whose queries attention has
  std::int64_t keyed;         ///< tokens whose keys it has: those of whole sequences
  bool gathers_keys;          ///< ranks share sequences, and each has its queries and all keys
  bool passes_keys;           ///< or the keys of one rank at a time
  std::int64_t hidden;        ///< h
  std::int64_t intermediate;  ///< f
  std::int64_t qkv;           ///< Q
  std::int64_t attention;     ///< A
  std::int64_t vocab;         ///< V
  std::int64_t norm_rows;     ///< rows of a norm's partial weight gradients
  std::int64_t heads;         ///< of queries in attention
  std::int64_t key_holders;   ///< ranks of tp that hold one head of keys together; 1: whole heads
  std::int64_t kv_heads;      ///< likewise, of keys
  std::int64_t rotated;       ///< both
  std::int64_t qkv_row;       ///< columns of a row of attention's queries, keys and values
  std::int64_t head_dim;
  std::int64_t rotated_dim;  ///< elements of a head that RoPE rotates
  DType compute;
  DType statistic;  ///< of rows, and of partial sums

  /// The value of a named dim for which the kernel has no attribute: "seq", "head_dim", "rotated",
  /// "rotated_dim", "value_dim", "qkv_width", "key_value_width", "queries", "keys",
  /// "places", "partial_rows", "vocab", "positions", "sequences".
  [[nodiscard]] std::int64_t named(std::string_view dim) const;

 private:
  std::int64_t seq_;
  std::int64_t value_dim_;
  std::int64_t positions_;
  std::int64_t sequences_;
};

using Shape = std::vector<std::int64_t>;

// Operands. Their shape, dtype and access are filled in from the kernel's row in
// core/plan/kernel_spec.hpp.

/// A tensor of this unit; by default its name is the role.
[[nodiscard]] RecipeOperand on(std::string role, std::string tensor = {});
/// A parameter, or its gradient.
[[nodiscard]] RecipeOperand weight(ParameterRole parameter);
[[nodiscard]] RecipeOperand weight_grad(ParameterRole parameter);
/// Each token's position in its document: the third row of the tokens.
[[nodiscard]] RecipeOperand document_positions(const Sizes& sizes);
/// All of the compute stream's workspace.
[[nodiscard]] RecipeOperand stream_workspace();
/// The operand with another source.
[[nodiscard]] RecipeOperand from(Source source, RecipeOperand operand);
/// The operand with another role.
[[nodiscard]] RecipeOperand as(std::string role, RecipeOperand operand);
[[nodiscard]] RecipeOperand of_dtype(RecipeOperand operand, DType dtype);
/// The operand, which the kernel overwrites with another value after reading (OperandUse::yields).
[[nodiscard]] RecipeOperand rewritten(RecipeOperand operand);
[[nodiscard]] RecipeOperand strided(RecipeOperand operand, Shape strides, std::int64_t offset = 0);
/// "qkv" of the ops "qkv", "qkv.again", "qkv.dgrad" and "qkv.wgrad".
[[nodiscard]] std::string layer_of(const std::string& name);
/// An operand that is not in the table.
[[nodiscard]] RecipeOperand shaped(RecipeOperand operand, Access access, DType dtype, Shape shape);

/// y[rows, outputs] = x[rows, inputs] * weight[outputs, inputs]^T
/// and in the columns of each adapter + scale * (x * A^T) * B^T (core/model/lora.hpp).
struct Linear {
  ParameterRole weight = ParameterRole::qkv;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  std::vector<LoraTarget> adapters{};
};

/// The layer's weight as the input of a kernel.
[[nodiscard]] RecipeOperand weight_input(const Linear& layer);

/// The role of a layer norm's bias; none for RMS norms and for norms outside the residual stream.
[[nodiscard]] std::optional<ParameterRole> norm_bias(const ModelShape& model, ParameterRole weight);

/// The name of a unit's output: its rows or, where the next unit begins with a norm, rows without
/// the last addition.
[[nodiscard]] std::string stream_name(const ModelShape& model);

/// Whether a block casts the gradient of the residual by the largest magnitude of that tensor;
/// `by_amax`: its casts read largest magnitudes of the tensors themselves. With output norms it casts
/// what their backward makes of the gradient.
[[nodiscard]] inline bool casts_residual_gradient(const ModelShape& model, bool by_amax) {
  return by_amax && !model.output_norms;
}

/// Builds a recipe. The first kernel that names a tensor declares it: with the operand's elements,
/// scratch as workspace and others as activation, in a slot class named as the tensor. tensor()
/// declares exceptions before.
class Builder {
 public:
  explicit Builder(const PlanConfig& plan_config) : config(plan_config), sizes(plan_config) {}

  /// Declares a tensor; by default its slot class is its name.
  void tensor(RecipeTensor tensor);

  /// Adds a kernel to the current phase. Shapes, dtypes, accesses and FLOPs follow from its kind's
  /// row and the attributes, which are sorted by name.
  void kernel(std::string name, KernelKind kind, std::vector<Attribute> attributes,
              std::vector<RecipeOperand> operands,
              std::optional<ParameterRole> gradient_of = std::nullopt);

  /// Adds an all_to_all over the ranks of an axis. The operands state their dtype and shape; each
  /// rank gets an equal part.
  void exchange(std::string name, Axis axis, RecipeOperand input, RecipeOperand output,
                std::optional<ParameterRole> gradient_of = std::nullopt);
  /// Gathers each rank's `part` over an axis to `all`, in the order of ranks. The operands state
  /// their dtype and shape.
  void gather_parts(const std::string& name, Axis axis, RecipeOperand part, RecipeOperand all);
  /// Sends `input` to the next rank of an axis, and receives that of the one before. The operands
  /// state their dtype and shape.
  void pass_on(const std::string& name, Axis axis, RecipeOperand input, RecipeOperand output);
  /// Sums each rank's term of `all` over an axis, and leaves a rank its `part`.
  void sum_parts(const std::string& name, Axis axis, RecipeOperand all, RecipeOperand part);

  // Between blocks a rank of tp has the rows of other tokens (sequence parallelism). Inside it has
  // all rows, of its heads or features.

  /// Whether ranks of tp share what a block computes.
  [[nodiscard]] bool shares_blocks() const { return sizes.tensor_ranks > 1; }
  /// Sums int32 counts of each rank's rows over an axis, an all_reduce.
  void sum_counts(const std::string& name, Axis axis, RecipeOperand part, RecipeOperand all);
  /// Gathers a rank's rows [rows, hidden] to those of all tokens [T, hidden], an all_gather.
  void whole_rows(const std::string& name, RecipeOperand rows, const std::string& whole);
  /// Sums terms [T, hidden] and leaves a rank its rows [rows, hidden], a reduce_scatter.
  void row_sums(const std::string& name, const std::string& terms, RecipeOperand rows);

  /// The adapters of a layer's matrix, as a rank of tp has them. Hidden rows of those whose A is cut
  /// are terms, as the matrix' outputs are.
  [[nodiscard]] Linear with_adapters(Linear layer) const;
  // GEMMs of adapters follow that of the matrix. The output of A is kept for backward; its gradient
  // is computed with the input's and kept for the gradient of A.

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
  /// norms, which have a bias, also subtract the mean and add the bias; the mean is in a tensor
  /// named after rstd with ".mean". Rows have `cols` columns, by default those of the hidden state.
  void norm_forward(const std::string& name, ParameterRole role, std::vector<RecipeOperand> inputs,
                    std::vector<RecipeOperand> outputs, std::int64_t cols = 0);
  /// The bias's gradient: sums of the columns of d_output [rows, cols], through a tensor `partials`.
  void bias_grad(const std::string& name, ParameterRole role, RecipeOperand d_output,
                 std::int64_t rows, std::int64_t cols, const std::string& partials);
  /// d_residual (+)= the gradient through the norm. Where d_normed is rewritten, the normed rows
  /// replace it. Then the weight's gradient is computed from partial sums.
  struct NormBackward {
    std::string name;
    ParameterRole role;
    RecipeOperand d_normed;
    RecipeOperand input;  ///< the norm's input rows
    RecipeOperand rstd;
    RecipeOperand d_residual;
    bool adds = true;         ///< to d_residual; else d_residual is written
    std::int64_t cols = 0;    ///< 0: those of the hidden state
    bool takes_amax = false;  ///< of d_residual, which an FP8 GEMM reads
  };
  void norm_backward(NormBackward norm);
  /// The attributes with those that all norms of the model have.
  [[nodiscard]] std::vector<Attribute> norm_attributes(std::vector<Attribute> attributes) const;
  /// Second stage of column sums: of the partials' [norm_rows, cols] from that element on.
  void norm_weight_grad(const std::string& name, ParameterRole role, const std::string& partials,
                        std::int64_t cols, std::int64_t begin = 0);
  /// Partial column sums, which all share one slot.
  void declare_partials(std::string name, std::int64_t elements);

  const PlanConfig& config;
  const Sizes sizes;
  UnitRecipe recipe;
  std::vector<RecipeOp>* target = &recipe.forward;
  Phase phase = Phase::forward;
  std::string slot_class;  ///< of tensors that kernels declare, instead of their names
  /// The operand `amax` of the kernel that makes a tensor. Casts of the tensor then use it; those of
  /// other tensors have a kernel `amax` of their own.
  [[nodiscard]] RecipeOperand amax_of(const RecipeOperand& made);
  /// A later kernel, or one of another unit, has that operand.
  void expect_amax_of(const RecipeOperand& made);

  // FP8 (fp8.cpp). Layers that gemm_forward, gemm_dgrad and gemm_wgrad know by name multiply in FP8:
  // what they read is cast once, with a scale from its largest magnitude.
  bool fp8 = false;
  /// Whether casts of those layers read the tensor's own largest magnitude.
  [[nodiscard]] bool casts_by_amax() const { return fp8 && takes_amaxes(config.fp8); }
  bool keeps_transposed = false;  ///< casts of inputs in forward, for weight gradients
  /// The cast of the gradient of that layer's output is transposed where it is needed: one more pass
  /// over bytes, in place of memory for a gradient and both casts at once.
  std::optional<ParameterRole> transposes_d_output{};
  /// Casts SwiGLU's output again from its input, for the weight gradient of `layer`.
  void cast_product(const std::string& layer, const RecipeOperand& gate_up, std::int64_t rows,
                    std::int64_t cols);
  /// SwiGLU's input, from which its output is cast in forward too: that output and its cast are not
  /// there at once.
  std::optional<RecipeOperand> product_source{};
  /// d_in of a layer for some rows after the other, each in a tensor of its own. `use(first row, name)`
  /// adds what reads it.
  void dgrad_in_parts(const std::string& name, const Linear& layer, std::int64_t rows,
                      RecipeOperand d_out, const std::string& d_in,
                      const std::function<void(std::int64_t, const std::string&)>& use);

 private:
  void collective(const std::string& name, RecipeCollective body, RecipeOperand input,
                  RecipeOperand output, std::optional<ParameterRole> gradient_of = std::nullopt);
  /// The columns of an adapter in rows of the whole layer.
  [[nodiscard]] static RecipeOperand columns_of(const LoraTarget& adapter, const Linear& layer,
                                                RecipeOperand rows);
  /// A layer's GEMM, or one of its two gradients, with the model's multiplier of that matrix.
  [[nodiscard]] std::vector<Attribute> layer_attributes(GemmKind kind, const Linear& layer,
                                                        std::int64_t rows, bool adds) const;
  /// The scaled GEMM of B, or one of its two gradients.
  [[nodiscard]] std::vector<Attribute> b_attributes(GemmKind kind, const LoraTarget& adapter,
                                                    std::int64_t rows, bool adds) const;
  [[nodiscard]] Linear layer_a(const LoraTarget& adapter) const;
  [[nodiscard]] static std::string lora_name(const LoraTarget& adapter);

  /// The names of a tensor's casts.
  struct Fp8Casts {
    std::string row{}, transposed{}, scale{};
  };
  /// The tensor's largest magnitude, which casts named so have: its producer's, or that of a kernel.
  void largest_of(const std::string& name, const RecipeOperand& input, std::int64_t rows,
                  std::int64_t cols);
  /// From SwiGLU's input.
  Fp8Casts cast_of_product(const std::string& name, const std::string& amax,
                           const RecipeOperand& gate_up, std::int64_t rows, std::int64_t cols,
                           bool row, bool transposed);
  /// `amax`: the name under which largest_of() has it.
  Fp8Casts cast_of(const std::string& name, const std::string& amax, RecipeOperand input,
                   std::int64_t rows, std::int64_t cols, DType dtype, bool row, bool transposed);
  /// NAME.fp8_t, of rows x cols.
  std::string transpose_of(const std::string& name, RecipeOperand input, std::int64_t rows,
                           std::int64_t cols, Category category);
  /// The weight's casts: gathered ones, or made of the gathered weight.
  struct Fp8Weight {
    RecipeOperand cast, scale;
  };
  Fp8Weight fp8_weight(const std::string& name, const Linear& layer);
  Fp8Weight fp8_weight_t(const std::string& name, const Linear& layer);
  Fp8Casts cast_of_d_output(const std::string& layer_name, const Linear& layer, std::int64_t rows,
                            RecipeOperand d_output, bool transposed);
  [[nodiscard]] std::vector<Attribute> fp8_attributes(GemmKind kind, const Linear& layer,
                                                      std::int64_t rows, bool adds) const;
  void fp8_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                   RecipeOperand in, RecipeOperand out);
  void fp8_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                 RecipeOperand d_out, RecipeOperand d_in, bool adds);
  void fp8_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                 RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight, bool adds);
  // Delayed scaling (fp8_history.cpp). `amax` as above.
  [[nodiscard]] RecipeOperand amax_operand(const std::string& amax) const;
  [[nodiscard]] RecipeOperand next_amax_operand(const std::string& amax) const;
  // Scales of blocks (fp8_blocks.cpp).
  /// The names of a tensor's casts.
  struct BlockCasts {
    std::string row{}, row_scale{}, transposed{}, transposed_scale{}, tensor_scale{};
  };
  /// Casts of a tensor that a GEMM reads, and the role that names them.
  struct BlockOperand {
    std::string role;
    const BlockCasts& casts;
    bool transposed = false;
  };
  BlockCasts cast_blocks_of(const std::string& name, const std::string& first, RecipeOperand input,
                            std::int64_t rows, std::int64_t cols, bool row, bool transposed);
  void blocks_forward(const std::string& name, const Linear& layer, std::int64_t rows,
                      RecipeOperand in, RecipeOperand out);
  void blocks_dgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                    RecipeOperand d_out, RecipeOperand d_in, bool adds);
  void blocks_wgrad(const std::string& name, const Linear& layer, std::int64_t rows,
                    RecipeOperand d_out, RecipeOperand in, RecipeOperand d_weight, bool adds);
  void multiply_blocks(const std::string& name, GemmKind kind, const Linear& layer,
                       std::int64_t rows, bool adds, const std::array<BlockOperand, 2>& multiplied,
                       RecipeOperand result);
  [[nodiscard]] std::vector<Attribute> block_attributes(GemmKind kind, const Linear& layer,
                                                        std::int64_t rows, bool adds) const;
  BlockCasts block_cast_of_d_output(const std::string& layer_name, const Linear& layer,
                                    std::int64_t rows, RecipeOperand d_output);

  void fill(RecipeOperand& operand, const OperandSpec& spec, const Kernel& kernel) const;
  void declare(const RecipeOperand& operand);

  std::map<ParameterRole, std::string> hidden_;     ///< by A: its latest output tensor
  std::map<std::string, Fp8Casts> fp8_casts_;       ///< by tensor: casts that later GEMMs read too
  std::map<std::string, BlockCasts> block_casts_;   ///< likewise
  std::map<std::string, RecipeOperand> made_amax_;  ///< by tensor, of those whose producer takes it
  std::map<std::string, RecipeOperand> amax_;       ///< by the name of casts
};

}  // namespace mfsdp::recipe
