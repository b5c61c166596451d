// What a unit computes, forward and backward, as data: kernels, and collectives between them. A
// recipe names tensors; the schedule gives them buffers, and collectives their place in time. What
// a tensor is saved for follows from its last use: a tensor that only forward touches dies there,
// one that backward reads lives until then.
//
// Shapes: T tokens of a microbatch, h hidden, f intermediate, Q columns of fused qkv,
// A = heads * head_dim, V vocabulary. All activations are compute dtype unless said otherwise.
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

/// Whose tensor an operand is.
enum class Source {
  tensor,      ///< of this unit
  previous,    ///< of the unit whose output is this unit's input
  microbatch,  ///< shared by all units of a microbatch
  global,      ///< persistent, of the whole program
  weight,      ///< a parameter of this unit, in compute dtype
  weight_grad  ///< its gradient
};

struct RecipeOperand {
  std::string role;
  Access access = Access::read;
  Source source = Source::tensor;
  std::string name{};                                  ///< of the tensor; unused for weights
  ParameterRole parameter = ParameterRole::embedding;  ///< for weight and weight_grad
  bool adds = false;          ///< written or, where attribute "beta" is 1, added to
  bool rewritten = false;     ///< made into another value when it has been read
  DType dtype = DType::bf16;  ///< for weight_grad the schedule sets it
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< elements; empty means contiguous
  std::int64_t offset = 0;              ///< elements from the tensor's start
};

/// Attribute "beta" on a kernel that writes a weight gradient: 0 writes, 1 adds to what this
/// microbatch wrote before.
struct RecipeKernel {
  KernelKind kind = KernelKind::gemm;
  std::vector<Attribute> attributes;
  std::int64_t flops = 0;
};

/// Over the ranks of one mesh axis, from the operand "input" to the operand "output", which have
/// one dtype.
struct RecipeCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Axis axis = Axis::tp;
  Reduction reduction = Reduction::none;
  std::int64_t count = 0;  ///< as Collective counts
};

/// A kernel or a collective over named operands.
struct RecipeOp {
  std::string name;
  Phase phase = Phase::forward;
  std::vector<RecipeOperand> operands;
  /// The parameter whose gradient this op is for; left out where that one is frozen.
  std::optional<ParameterRole> gradient_of{};
  std::variant<RecipeKernel, RecipeCollective> body;

  [[nodiscard]] const RecipeKernel* kernel() const { return std::get_if<RecipeKernel>(&body); }
};

/// What a recipe's tensor is.
struct RecipeTensor {
  std::string name;
  Source source = Source::tensor;  ///< tensor or microbatch
  DType dtype = DType::bf16;
  std::int64_t elements = 0;  ///< of all of it
  Placement placement{};      ///< what of it a rank has
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

/// Persistent device buffers that recipes refer to by these names.
namespace global {
/// int32 [2, T]: ids, labels; with document_mask [3, T], then positions.
inline constexpr std::string_view tokens = "tokens";
inline constexpr std::string_view rope_table = "rope_table";  ///< fp32 [seq_len, rotated_dim]
/// Likewise of layers that slide, where these turn otherwise.
inline constexpr std::string_view local_rope_table = "local_rope_table";
inline constexpr std::string_view gemm_workspace = "gemm_workspace";
inline constexpr std::string_view loss_sums = "loss_sums";  ///< statistic dtype [2]: loss, tokens
inline constexpr std::string_view loss_scale =
    "loss_scale";  ///< fp32 [4]: core/plan/loss_scale.hpp
}  // namespace global

/// Bytes of the workspace that the compute stream's kernels have one after the other: GEMMs as much
/// of it as they want, attention's forward kAttentionWorkspaceBytes, cross-entropy
/// kSumWorkspaceBytes.
inline constexpr std::int64_t kGemmWorkspaceBytes = 32LL << 20;

/// In what blocks of a model differ. `first`: its input is the embedding's output and no residual
/// is added. `slides`: its attention is that of the model's layers that slide.
struct BlockKind {
  bool first = false;
  Recompute recompute = Recompute::none;
  bool slides = false;
  bool experts = false;  ///< in place of a dense MLP

  friend bool operator==(const BlockKind&, const BlockKind&) = default;
};

/// How an engine computes a family's models: a recipe for each kind of unit.
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

/// Our own engine's, which has every family: std::logic_error else.
[[nodiscard]] const FamilyRecipe& own_recipe(Family family);

/// tokens -> "mid" [T, h].
[[nodiscard]] UnitRecipe embedding_recipe(const PlanConfig& config);

/// One block.
[[nodiscard]] UnitRecipe block_recipe(const PlanConfig& config, const BlockKind& kind);

/// Final norm, then head and cross-entropy in chunks of tokens, backward included: the logits of
/// one chunk exist at a time.
[[nodiscard]] UnitRecipe head_recipe(const PlanConfig& config);

}  // namespace mfsdp
