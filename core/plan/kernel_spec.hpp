// The table of kernel kinds, for the code that plans, prices, checks and runs kernels.
//
//   gemm, forward    input T[m, k], weight T[n, k], output T[m, n]      2 m n k FLOPs
//   swiglu_forward   gate_up T[rows, 2 cols], `product` T[rows, cols]
//
// A kind is stated once: by its line below and its call struct in core/plan/kernels, from which its
// row follows, and how executors read an op (kernel_calls.hpp). Proof
// (verify/proof/values/model_steps.cpp) and checker (verify/checker/model.cpp) have statements of
// their own, on purpose.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

struct Kernel;

/// Every kind of kernel: its name, and its call struct in core/plan/kernels, which describes the
/// computation. Kinds may share one.
#define MFSDP_KERNEL_KINDS(KIND)                               \
  KIND(accumulate, AccumulateForm)                             \
  KIND(add_bias, AddBias)                                      \
  KIND(add_rows, AddRows)                                      \
  KIND(amax, Amax)                                             \
  KIND(amax_history, AmaxHistory)                              \
  KIND(arrival_order, ArrivalOrder)                            \
  KIND(attention_backward, AttentionBackward)                  \
  KIND(attention_forward, AttentionForward)                    \
  KIND(attention_merge, AttentionMerge)                        \
  KIND(bias_grad, ColumnSums)                                  \
  KIND(cast, CastForm)                                         \
  KIND(cast_blocks, CastBlocks)                                \
  KIND(cast_scaled, CastScaled)                                \
  KIND(combine_rows, CombineRows)                              \
  KIND(cross_entropy, CrossEntropyGradient)                    \
  KIND(cross_entropy_loss, CrossEntropyLoss)                   \
  KIND(dequantise, Dequantise)                                 \
  KIND(embedding_backward, EmbeddingBackward)                  \
  KIND(embedding_forward, EmbeddingForward)                    \
  KIND(expert_bias_dots, ExpertBiasDots)                       \
  KIND(expert_bias_forward, ExpertBiasForward)                 \
  KIND(expert_bias_gradient, ExpertBiasGradient)               \
  KIND(expert_order, ExpertOrder)                              \
  KIND(geglu_backward, SwigluBackward)                         \
  KIND(geglu_forward, SwigluForward)                           \
  KIND(gelu_backward, GeluBackward)                            \
  KIND(gelu_forward, GeluForward)                              \
  KIND(gemm, GemmForward)                                      \
  KIND(gemm_blocks, BlockGemmForward)                          \
  KIND(gemm_fp8, Fp8GemmForward)                               \
  KIND(grouped_input_gradient, GroupedInputGradient)           \
  KIND(grouped_product, GroupedForward)                        \
  KIND(grouped_weight_gradient, GroupedWeightGradient)         \
  KIND(join_heads, JoinHeads)                                  \
  KIND(join_key_parts, JoinKeyParts)                           \
  KIND(join_keys, JoinKeys)                                    \
  KIND(latent_heads_backward, LatentHeadsBackward)             \
  KIND(latent_heads_forward, LatentHeadsForward)               \
  KIND(latent_norm_backward, LatentNormBackward)               \
  KIND(latent_norm_forward, LatentNormForward)                 \
  KIND(layer_norm_backward, LayerNormBackward)                 \
  KIND(layer_norm_forward, LayerNormForward)                   \
  KIND(loss_finish, LossFinish)                                \
  KIND(momentum, MomentumForm)                                 \
  KIND(newton_schulz, NewtonSchulz)                            \
  KIND(norm_finish, NormFinishForm)                            \
  KIND(norm_partial, NormPartialForm)                          \
  KIND(norm_weight_grad, NormWeightGradient)                   \
  KIND(peer_order, PeerOrder)                                  \
  KIND(permute_rows, PermuteRows)                              \
  KIND(position_embedding_backward, PositionEmbeddingBackward) \
  KIND(qk_norm_rope_backward, QkNormRopeBackwardCall)          \
  KIND(qk_norm_rope_forward, QkNormRopeForwardCall)            \
  KIND(qk_row_norm_rope_backward, QkRowNormRopeBackwardCall)   \
  KIND(qk_row_norm_rope_forward, QkRowNormRopeForwardCall)     \
  KIND(rms_norm_backward, RmsNormBackward)                     \
  KIND(rms_norm_forward, RmsNormForward)                       \
  KIND(rope_backward, RopeBackward)                            \
  KIND(rope_forward, RopeForward)                              \
  KIND(router_backward, RouterBackward)                        \
  KIND(router_forward, RouterForward)                          \
  KIND(sigmoid_backward, SigmoidBackward)                      \
  KIND(sigmoid_forward, SigmoidForward)                        \
  KIND(sink_backward, SinkBackward)                            \
  KIND(sink_forward, SinkForward)                              \
  KIND(softmax_parts, SoftmaxParts)                            \
  KIND(split_heads, SplitHeads)                                \
  KIND(split_key_parts, SplitKeyParts)                         \
  KIND(sum_ranks, SumRanks)                                    \
  KIND(swiglu_backward, SwigluBackward)                        \
  KIND(swiglu_forward, SwigluForward)                          \
  KIND(swiglu_forward_cast, SwigluForwardCast)                 \
  KIND(take_keys, TakeKeys)                                    \
  KIND(token_copy, TokenCopy)                                  \
  KIND(transpose, Transpose)                                   \
  KIND(update, UpdateForm)                                     \
  KIND(weighted_swiglu_backward, WeightedSwigluBackward)       \
  KIND(weighted_swiglu_forward, WeightedSwigluForward)         \
  KIND(zero_padding, ZeroPaddingForm)

enum class KernelKind {
#define MFSDP_ENUMERATOR(name, call) name,
  MFSDP_KERNEL_KINDS(MFSDP_ENUMERATOR)
#undef MFSDP_ENUMERATOR
};

template <>
struct Names<KernelKind> {
#define MFSDP_NAME(name, call) std::string_view(#name),
  static constexpr std::array values{MFSDP_KERNEL_KINDS(MFSDP_NAME)};
#undef MFSDP_NAME
};

inline constexpr std::size_t kKernelKinds = Names<KernelKind>::values.size();

/// The three GEMMs of a linear layer: attribute "kind" of a GEMM. m is the number of tokens, n the
/// output features, k the input features:
///   forward           y[m, n]  = x[m, k]    w[n, k]^T (+ bias[n])
///   input_gradient    dx[m, k] = dy[m, n]   w[n, k]
///   weight_gradient   dw[n, k] = dy[m, n]^T x[m, k]   (+ dw)
/// The result of the GEMM is multiplied by attribute "scale", if present, before anything is added.
/// y and dy may be columns of wider rows.
enum class GemmKind { forward, input_gradient, weight_gradient };

/// The attribute's value.
[[nodiscard]] constexpr std::int64_t number_of(GemmKind kind) {
  return static_cast<std::int64_t>(kind);
}

/// `scratch`: the bytes are the op's own while it runs; what they held before and hold after is
/// undefined. Conflicts like a write, but is not traffic that every algorithm must pay.
enum class Access { read, write, read_write, scratch };

constexpr auto value_names(Access) { return name_array("read", "write", "read_write", "scratch"); }

/// How a kernel accesses an operand.
enum class OperandUse {
  reads,
  writes,
  updates,  ///< reads, then writes
  adds,     ///< writes; where attribute "beta" is 1, adds to what was there
  yields,   ///< reads; where the plan lets it write too, what was read is made into another value
  scratch
};

/// How a plan states an operand of that use; what `yields` may be stated as read_write too. `adds`:
/// attribute "beta" is 1.
[[nodiscard]] Access access_of(OperandUse use, bool adds);

/// Types of elements that go together in one kernel.
enum class Element {
  compute,    ///< T: any floating type, the same throughout the kernel
  statistic,  ///< S: fp32, or fp64 beside fp64
  gradient,   ///< G: any floating type, but fp64 beside fp64 alone
  partial,    ///< fp32, or int64 where sums are exact
  fp32,
  int32,
  fp8,     ///< F: either FP8 type, each operand its own
  codes,   ///< fp8_e4m3 or fp4_e2m1x2
  scales,  ///< of blocks: fp32, e8m0 or fp8_e4m3
  bytes
};

inline constexpr std::array kFp8Types{DType::fp8_e4m3, DType::fp8_e5m2};
inline constexpr std::array kCodeTypes{DType::fp8_e4m3, DType::fp4_e2m1x2};
inline constexpr std::array kScaleTypes{DType::fp32, DType::e8m0, DType::fp8_e4m3};

/// The dtypes of which an operand of that element states one, because the kernel's other operands do
/// not determine it; none of other elements.
[[nodiscard]] constexpr std::span<const DType> dtypes_of(Element element) {
  switch (element) {
    case Element::fp8: return kFp8Types;
    case Element::codes: return kCodeTypes;
    case Element::scales: return kScaleTypes;
    default: return {};
  }
}

/// Whether that dtype is one of dtypes_of().
[[nodiscard]] constexpr bool is_one_of(Element element, DType dtype) {
  const std::span<const DType> all = dtypes_of(element);
  return std::ranges::find(all, dtype) != all.end();
}

/// times * first * second. A name is an attribute's, or stands for whatever the first operand with
/// it has there.
struct Dim {
  std::string_view first = {};
  std::string_view second = {};
  std::int64_t times = 1;

  constexpr Dim() = default;
  constexpr Dim(const char* name) : first(name) {}
  constexpr Dim(const char* one, const char* other) : first(one), second(other) {}
  constexpr Dim(std::int64_t number, const char* name = "") : first(name), times(number) {}
};

/// {"rows", {2, "cols"}}: two dims; the second is twice the value of "cols".
struct Dims {
  std::array<Dim, 4> all = {};
  std::size_t count = 0;

  constexpr Dims(std::initializer_list<Dim> dims) {
    for (const Dim& dim : dims) all[count++] = dim;
  }
};

struct OperandSpec {
  std::string_view role;
  Element element = Element::compute;
  OperandUse use = OperandUse::reads;
  std::array<Dim, 4> shape = {};
  std::size_t dims = 0;
  bool strided = false;   ///< need not be contiguous
  bool columns = false;   ///< or rows of wider ones, of which it is some columns
  bool optional = false;  ///< may be left out
};

/// The kind of gradient sum that a kernel computes, which --exact-sums treats differently.
enum class GradientSum {
  none,
  of_rank,    ///< over the tokens of a rank
  of_ranks,   ///< over ranks and microbatches
  of_squares  ///< the norm's
};

struct KernelSpec {
  KernelKind kind = KernelKind::gemm;
  std::optional<GemmKind> variant = {};
  /// The operands beside its workspace; those of one role are in order. None: any operands.
  std::vector<OperandSpec> operands = {};
  std::vector<std::string_view> attributes = {};           ///< required, sorted
  std::vector<std::string_view> optional_attributes = {};  ///< sorted
  std::vector<std::string_view> rank_attributes = {};      ///< of these: may differ by rank, sorted

  /// Multiplications and additions of a call, from its attributes; null: they count for nothing.
  std::int64_t (*flops)(const Kernel& kernel) = nullptr;
  /// The part of `flops` that counts as a model's FLOPs (for MFU): without recomputation.
  Rational model_share = {.num = 1};
  /// The least bytes of its operand "workspace": the space that a GPU's kernels need beside their
  /// operands, so that the plan contains all memory. Null: it needs none, or any size will do.
  std::int64_t (*workspace)(const Kernel& kernel) = nullptr;

  GradientSum sum = GradientSum::none;
  /// The attribute that counts the rows which --exact-sums has it take piece by piece, as its bits
  /// depend on how many it is given. Empty: they do not.
  std::string_view pieces = {};
  bool rows_are_sums = false;  ///< its rows are pieces' sums already: a piece is one row
};

/// GEMMs of casts: in FP8 or FP4.
[[nodiscard]] constexpr bool is_cast_gemm(KernelKind kind) {
  return kind == KernelKind::gemm_fp8 || kind == KernelKind::gemm_blocks;
}

/// GEMMs of a linear layer, which have an attribute "kind".
[[nodiscard]] constexpr bool is_gemm(KernelKind kind) {
  return kind == KernelKind::gemm || is_cast_gemm(kind);
}

/// The row of a kernel's kind; of a GEMM that of its attribute "kind". Null for a GEMM of no kind.
[[nodiscard]] const KernelSpec* spec_of(const Kernel& kernel);
[[nodiscard]] const KernelSpec& spec_of(KernelKind kind,
                                        std::optional<GemmKind> variant = std::nullopt);

/// A GEMM's attribute "kind". Nothing for other kernels, and for other numbers.
[[nodiscard]] std::optional<GemmKind> gemm_kind(const Kernel& kernel);

/// Rows that permute_rows writes and combine_rows reads: attribute "m" if it is present, of which
/// some are unused; else one row for each expert of each token.
[[nodiscard]] std::int64_t room_of(const Kernel& kernel);

/// The number of experts' rows for a kernel's costs: attribute "balanced_rows", which is the number
/// if all experts get equally many; m if it is absent.
[[nodiscard]] std::int64_t usual_rows(const Kernel& kernel);

/// The least bytes of a kernel's operand "workspace"; 0 if it needs none.
[[nodiscard]] std::int64_t least_workspace(const Kernel& kernel);

/// Bytes: a workspace begins at a multiple of it in its buffer.
inline constexpr std::int64_t kWorkspaceAlignment = 256;

/// Workspace of cuDNN's attention in forward and backward, for every shape.
inline constexpr std::int64_t kAttentionWorkspaceBytes = 256;

/// Scores of causal attention in a sequence, times 2: without a window (0) seq * seq, as the half
/// above the diagonal is left out; else window * (2 seq - window), of queries that see the `window`
/// tokens up to their own.
[[nodiscard]] std::int64_t attention_pairs(std::int64_t seq, std::int64_t window);

/// Attention kernels that have as many pairs each of a rank's queries: the parts of a sequence
/// where this one has the keys of one part, else 1.
[[nodiscard]] std::int64_t steps_of_attention(const Kernel& kernel);

/// The sizes of causal attention.
struct AttentionSizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;     ///< of queries
  std::int64_t kv_heads = 1;  ///< each serves heads / kv_heads query heads
  std::int64_t seq = 1;
  std::int64_t head_dim = 1;
  bool deterministic = false;  ///< equal calls give equal bits
  DType compute = DType::bf16;
};

/// Workspace of attention's backward beside its operands, in bytes, as cuDNN 9.14 asks for it in
/// bf16 and fp16 (gpu_backend/cuda compares it with the engines' own numbers):
///   256, and
///   where heads share keys, dK and dV per query head: 2 * ceil(T * A * 2, 128), and
///   with deterministic sums, scores: batch * heads * ceil(seq, 64) * ceil(seq, 128) * 2,
/// with T = batch * seq tokens, A = heads * head_dim, and ceil(n, m) n rounded up to a multiple of
/// m. At T = 8192 and 32 heads of 128 over 8 that is 134,217,984 and 4,429,185,280. Kernels of
/// wider dtypes are none of cuDNN's: 256 alone.
[[nodiscard]] std::int64_t attention_backward_workspace(const AttentionSizes& sizes);

/// Scratch with which a GPU's whole grid adds up two numbers in a fixed order: two doubles for each
/// of at most 1024 blocks, and an 8-byte counter of finished blocks. Undefined before a kernel, as
/// all scratch, so the kernel must zero the counter first.
inline constexpr std::int64_t kSumWorkspaceBytes = 1024LL * 2 * 8 + 8;

}  // namespace mfsdp
