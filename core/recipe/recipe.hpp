// The computation of a unit, forward and backward, as data: kernels, and collectives between them.
// A recipe names tensors; the schedule assigns buffers and places collectives. A tensor lives until
// its last use: if backward reads it, it is saved for backward.
//
// Shapes: T tokens of a microbatch, h hidden, f intermediate, Q columns of fused qkv,
// A = heads * head_dim, V vocabulary. Activations have the compute dtype unless noted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/config.hpp"
#include "core/plan/op.hpp"
#include "core/plan/placement.hpp"

namespace mfsdp {

/// The owner of an operand's tensor.
enum class Source {
  tensor,        ///< of this unit
  previous,      ///< of the unit whose output is this unit's input
  microbatch,    ///< shared by all units of a microbatch
  global,        ///< persistent, of the whole program
  weight,        ///< a parameter of this unit, in compute dtype; or its cast to FP8
  weight_scale,  ///< the scale of that cast, fp32 [1]
  weight_grad    ///< its gradient
};

struct RecipeOperand {
  std::string role;
  Access access = Access::read;
  Source source = Source::tensor;
  std::string name{};                                  ///< of the tensor; unused for weights
  ParameterRole parameter = ParameterRole::embedding;  ///< for weight, its scale and its gradient
  bool adds = false;          ///< written or, if attribute "beta" is 1, added to
  bool rewritten = false;     ///< overwritten with another value after it was read
  DType dtype = DType::bf16;  ///< the schedule sets it for weight_grad
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< elements; empty means contiguous
  std::int64_t offset = 0;              ///< elements from the tensor's start
  std::int64_t of_block = 0;            ///< elements further on for each block before
  bool trains = false;                  ///< of the plan that trains alone
};

/// Attribute "beta" of a kernel that writes a weight gradient: 0 writes, 1 adds to the gradient of
/// this microbatch.
struct RecipeKernel {
  KernelKind kind = KernelKind::gemm;
  std::vector<Attribute> attributes;
  std::int64_t flops = 0;
};

/// A collective over the ranks of one mesh axis, from operand "input" to operand "output", which
/// have one dtype.
struct RecipeCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Axis axis = Axis::tp;
  Reduction reduction = Reduction::none;
  std::int64_t count = 0;  ///< as in Collective
};

/// A kernel or a collective over named operands.
struct RecipeOp {
  std::string name;
  Phase phase = Phase::forward;
  std::vector<RecipeOperand> operands;
  /// The parameter whose gradient this op computes; the op is left out if that is frozen.
  std::optional<ParameterRole> gradient_of{};
  std::variant<RecipeKernel, RecipeCollective> body;

  [[nodiscard]] const RecipeKernel* kernel() const { return std::get_if<RecipeKernel>(&body); }
};

/// The properties of a recipe's tensor.
struct RecipeTensor {
  std::string name;
  Source source = Source::tensor;  ///< tensor or microbatch
  DType dtype = DType::bf16;
  std::int64_t elements = 0;  ///< over all ranks
  Placement placement{};      ///< of the part on a rank
  Category category = Category::activation;
  /// Tensors of one class and category take turns in the slots of `double_buffer`.
  std::string slot_class{};
};

struct UnitRecipe {
  std::vector<RecipeTensor> tensors;
  std::vector<RecipeOp> forward;
  std::vector<RecipeOp> backward;
  std::vector<RecipeOp> eval;  ///< runs instead of `backward` in the eval plan
};

/// Names of persistent device buffers in recipes.
namespace global {
/// int32 [2, T]: ids, labels; with document_mask [3, T], then positions.
inline constexpr std::string_view tokens = "tokens";
inline constexpr std::string_view rope_table = "rope_table";  ///< fp32 [seq_len, rotated_dim]
/// The table of sliding-window layers, where it differs.
inline constexpr std::string_view local_rope_table = "local_rope_table";
inline constexpr std::string_view gemm_workspace = "gemm_workspace";
inline constexpr std::string_view loss_sums = "loss_sums";  ///< statistic dtype [2]: loss, tokens
inline constexpr std::string_view loss_scale =
    "loss_scale";  ///< fp32 [4]: core/plan/loss_scale.hpp
inline constexpr std::string_view amax_history = "amax_history";  ///< core/plan/fp8.hpp
}  // namespace global

/// Bytes of the workspace that the kernels of the compute stream share: GEMMs may use all of it,
/// attention's forward kAttentionWorkspaceBytes, cross-entropy kSumWorkspaceBytes.
inline constexpr std::int64_t kGemmWorkspaceBytes = 32LL << 20;

/// Differences between the blocks of a model. `first`: its input is the embedding's output, and no
/// residual is added. `slides`: its attention has a sliding window. `other_rope`: it has the second
/// table of angles.
struct BlockKind {
  bool first = false;
  Recompute recompute = Recompute::none;
  bool slides = false;
  bool other_rope = false;
  bool experts = false;     ///< in place of a dense MLP
  bool fp8 = false;         ///< its linear layers multiply in FP8
  bool amax_below = false;  ///< those of the block before do, and cast by their own amax
  // With FP8, where a step needs the most memory: more passes over bytes in place of memory.
  bool transposes_d_output = false;  ///< casts of the gradient of gate_up, one after the other
  bool parts_d_product = false;      ///< has the gradient of SwiGLU's output in parts

  friend bool operator==(const BlockKind&, const BlockKind&) = default;
};

/// The recipes of an engine for a family, one for each kind of unit.
struct FamilyRecipe {
  std::string_view engine;
  Family family = Family::llama;
  UnitRecipe (*embedding)(const PlanConfig& config) = nullptr;
  UnitRecipe (*block)(const PlanConfig& config, const BlockKind& kind) = nullptr;
  UnitRecipe (*head)(const PlanConfig& config) = nullptr;
};

inline constexpr std::string_view kOwnEngine = "mfsdp";

/// The recipes in recipes.cpp; null where that engine has none for the family.
[[nodiscard]] const FamilyRecipe* find_recipe(std::string_view engine, Family family);

/// The recipes of our own engine, which has every family.
[[nodiscard]] const FamilyRecipe& own_recipe(Family family);

/// tokens -> "mid" [T, h].
[[nodiscard]] UnitRecipe embedding_recipe(const PlanConfig& config);

/// One block.
[[nodiscard]] UnitRecipe block_recipe(const PlanConfig& config, const BlockKind& kind);

/// Final norm, then head and cross-entropy in chunks of tokens, backward included, so that only the
/// logits of one chunk are live.
[[nodiscard]] UnitRecipe head_recipe(const PlanConfig& config);

}  // namespace mfsdp
