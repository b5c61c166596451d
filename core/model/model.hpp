// A decoder-only transformer: its shape, its units and their parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/family.hpp"

namespace mfsdp {

/// How RoPE's frequencies are scaled for longer contexts (core/runtime/rope_table.hpp).
enum class RopeKind {
  llama3,   ///< low frequencies are divided, high ones kept, those between blended; factor 1: none
  linear,   ///< all frequencies are divided by one factor
  yarn,     ///< as llama3, blended by the frequency's index; cosines and sines are scaled too
  longrope  ///< each frequency has its own factor
};

constexpr auto value_names(RopeKind) { return name_array("llama3", "linear", "yarn", "longrope"); }

/// Scaling of RoPE; factor 1 of Llama 3.1's means none.
struct RopeScaling {
  RopeKind kind = RopeKind::llama3;
  Rational factor{1, 1};
  /// Rotations in the original context: below the first a frequency is divided by the whole factor,
  /// above the second it is kept. YaRN's names are beta_slow and beta_fast.
  Rational low_freq_factor{1, 1};
  Rational high_freq_factor{1, 1};
  std::int64_t original_max_seq_len = 0;
  Rational attention_factor{0, 1};  ///< of cosines and sines; 0: by the kind's formula
  /// LongRoPE's factor of each frequency, for sequences within the original context and longer
  /// ones.
  std::vector<Rational> short_factors{};
  std::vector<Rational> long_factors{};
  Rational score_magnitude{0, 1};  ///< YaRN's mscale_all_dim; query_scalar includes it
  bool exact_range = false;        ///< YaRN does not round the bounds of its blend

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Everything that a plan depends on in a model; the model's name is not part of it.
struct ModelShape {
  Family family = Family::llama;
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t max_seq_len = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  Activation activation = Activation::silu;
  bool output_norms = false;            ///< norms after attention and MLP, before the residual add
  bool zero_centered_norms = false;     ///< norms multiply by 1 + weight
  bool scaled_embedding = false;        ///< the embedding's output is multiplied by sqrt(hidden)
  Rational embedding_multiplier{0, 1};  ///< of the embedding's output; 0: none but that root
  Rational residual_multiplier{0, 1};   ///< of what attention and MLP add to the residual; 0: none
  Rational logit_multiplier{0, 1};      ///< of output logits; 0: none
  Rational rms_norm_eps{1, 100000};     ///< also of layer norms
  Rational rope_theta{10000, 1};
  RopeScaling rope_scaling;
  /// Elements of a head that RoPE rotates: the first ones, in latent attention the last; 0: all.
  std::int64_t rotary_dim = 0;
  std::int64_t value_dim = 0;      ///< of a head's values; 0: head_dim
  std::int64_t query_latent = 0;   ///< elements of the latent vector of queries; 0: there is none
  std::int64_t kv_latent = 0;      ///< of keys and values, without the rotated part
  Rational latent_norm_eps{0, 1};  ///< of norms of latent vectors; 0: rms_norm_eps
  /// Heads of the indexer that chooses tokens for sparse attention; 0: there is none. A plan has
  /// its parameters, which never train, and attention over the whole sequence.
  std::int64_t index_heads = 0;
  std::int64_t index_dim = 0;                       ///< elements of a head of the indexer
  std::vector<std::int64_t> shared_index_layers{};  ///< without an indexer of their own; ascending
  Rational local_rope_theta{0, 1};  ///< of sliding-window layers, unscaled; 0: as all others
  /// Layers without RoPE, ascending: their angles are 0.
  std::vector<std::int64_t> nope_layers{};
  /// Tokens that a query sees in sliding-window layers, its own included.
  std::int64_t sliding_window = 0;
  std::vector<std::int64_t> sliding_layers{};  ///< ascending; empty where there is no window
  Rational query_scalar{0, 1};  ///< attention logits are divided by its root; 0 means head_dim
  Rational score_cap{0, 1};     ///< softcap of attention logits, cap * tanh(s / cap); 0: none
  Rational logit_cap{0, 1};     ///< softcap of output logits; 0: none
  bool fused_weights = false;   ///< checkpoints fuse query, key and value, and gate and up, too
  // Experts: MLPs of which a router chooses some for each token.
  std::int64_t experts = 0;  ///< of a block with experts; 0: all blocks are dense
  std::int64_t experts_per_token = 0;
  std::int64_t expert_intermediate = 0;      ///< of one expert; `intermediate` is of dense blocks
  std::int64_t shared_intermediate = 0;      ///< of the shared expert; 0: there is none
  std::vector<std::int64_t> dense_layers{};  ///< of a model with experts; ascending
  bool normalised_routing = false;           ///< the weights of a token's experts sum to 1
  Rational router_aux_loss{0, 1};            ///< coefficient of the load-balancing loss; 0: none
  Rational router_z_loss{0, 1};              ///< coefficient of the router z-loss; 0: none
  /// Clamped SwiGLU of experts: (up + 1) * gate * sigmoid(alpha * gate), with gate at most the
  /// limit and up within +- the limit. 0: plain SwiGLU.
  Rational swiglu_limit{0, 1};
  std::int64_t router_groups = 0;  ///< equal groups of experts, chosen before experts; 0: none
  std::int64_t chosen_groups = 0;  ///< groups per token, ranked by their best expert or best two
  /// Weights are sigmoids of the logits; experts are chosen by weight plus a correction of each
  /// expert, which has no gradient. Else weights are a softmax, and experts are chosen by them.
  bool sigmoid_routing = false;
  Rational routed_scale{0, 1};  ///< factor of all routing weights; 0: none
  Rational swiglu_alpha{0, 1};

  friend bool operator==(const ModelShape&, const ModelShape&) = default;

  [[nodiscard]] const FamilyTraits& traits() const { return traits_of(family); }
  [[nodiscard]] std::int64_t value_head_dim() const {
    return value_dim != 0 ? value_dim : head_dim;
  }
  /// Columns of query, key and value heads: (heads + kv_heads) * head_dim, then the values'.
  [[nodiscard]] std::int64_t qkv_width() const {
    return (heads + kv_heads) * head_dim + kv_heads * value_head_dim();
  }
  [[nodiscard]] Rational latent_eps() const {
    return latent_norm_eps.num != 0 ? latent_norm_eps : rms_norm_eps;
  }
  /// Columns of the attention output: heads * value_head_dim.
  [[nodiscard]] std::int64_t attention_width() const { return heads * value_head_dim(); }
  /// Elements that a head gets from the latent vector: its key without the rotated part, its value.
  [[nodiscard]] std::int64_t key_value_dim() const {
    return head_dim - rotary_dim + value_head_dim();
  }
  [[nodiscard]] bool has_gated_shared() const {
    return shared_intermediate != 0 && !traits().names.shared_gate.empty();
  }
  /// Columns of the MLP's first projection: gate and up, or up alone.
  [[nodiscard]] std::int64_t gate_up_width() const {
    return traits().gated ? 2 * intermediate : intermediate;
  }
  /// Elements of the weight of the query or key norm; `of_heads`: query or key heads.
  [[nodiscard]] std::int64_t qk_norm_width(std::int64_t of_heads) const {
    return traits().whole_qk_norms ? of_heads * head_dim : head_dim;
  }
  /// Elements of a head that RoPE rotates.
  [[nodiscard]] std::int64_t rotated_dim() const { return rotary_dim != 0 ? rotary_dim : head_dim; }
  [[nodiscard]] bool slides(std::int64_t layer) const;
  /// Whether some layers have a table of angles of their own, and whether that layer is one.
  [[nodiscard]] bool has_other_rope() const {
    return local_rope_theta.num != 0 || !nope_layers.empty();
  }
  [[nodiscard]] bool has_other_rope(std::int64_t layer) const;
  [[nodiscard]] bool has_experts(std::int64_t layer) const;
  [[nodiscard]] bool has_indexer(std::int64_t layer) const;
  /// The factor of the embedding's output: embedding_multiplier, or sqrt(hidden) rounded to that
  /// dtype; 0: none.
  [[nodiscard]] Rational embedding_scale(DType dtype) const;
  /// The window of a layer in sequences of that length; 0 where it covers all tokens.
  [[nodiscard]] std::int64_t window_of(bool sliding, std::int64_t seq_len) const {
    return sliding && sliding_window < seq_len ? sliding_window : 0;
  }
};

enum class UnitKind { embedding, block, head, embedding_and_head };

constexpr auto value_names(UnitKind) {
  return name_array("embedding", "block", "head", "embedding_and_head");
}

/// A parameter's role in its unit; the recipe finds its weights by role.
enum class ParameterRole {
  embedding,              ///< [vocab, hidden]; also the head's matrix when tied
  input_norm,             ///< [hidden]
  qkv,                    ///< [qkv_width, hidden]: query, key, value rows in this order
  qkv_bias,               ///< [qkv_width]
  q_norm,                 ///< [head_dim], or [heads * head_dim] of norms over all heads
  k_norm,                 ///< [head_dim] or [kv_heads * head_dim]
  attention_out,          ///< [hidden, heads * head_dim]
  post_norm,              ///< [hidden]
  gate_up,                ///< [2 * intermediate, hidden]: gate rows, then up rows, or up alone
  down,                   ///< [hidden, intermediate]
  final_norm,             ///< [hidden]
  head,                   ///< [vocab, hidden]
  attention_output_norm,  ///< [hidden]: after attention, before the residual is added
  mlp_output_norm,        ///< [hidden]: after the MLP, before the residual is added
  position_embedding,     ///< [max_seq_len, hidden]
  input_norm_bias,        ///< [hidden], as those of the other norms
  post_norm_bias,
  final_norm_bias,
  attention_out_bias,  ///< [hidden]
  gate_up_bias,        ///< one per row of gate_up
  down_bias,           ///< [hidden]
  router,              ///< [experts, hidden]
  /// [experts * 2 * expert_intermediate, hidden]: for each expert gate rows, then up rows, or
  /// alternating gate and up rows (interleaved_experts).
  experts_gate_up,
  experts_down,          ///< [experts * hidden, expert_intermediate]
  shared_gate_up,        ///< [2 * shared_intermediate, hidden]
  shared_down,           ///< [hidden, shared_intermediate]
  shared_gate,           ///< [1, hidden]
  sinks,                 ///< [heads]
  router_bias,           ///< [experts]
  experts_gate_up_bias,  ///< [experts * 2 * expert_intermediate], one per row of experts_gate_up
  experts_down_bias,     ///< [experts * hidden]
  // Latent attention: from a row to the latent vector and from there to heads.
  q,                  ///< [heads * head_dim, hidden]; or the next three
  q_a,                ///< [query_latent, hidden]
  q_a_norm,           ///< [query_latent]
  q_b,                ///< [heads * head_dim, query_latent]
  kv_a,               ///< [kv_latent + rotary_dim, hidden]
  kv_a_norm,          ///< [kv_latent]
  kv_b,               ///< [heads * key_value_dim, kv_latent]
  router_correction,  ///< [experts]; never trained
  // The indexer of sparse attention; never trained.
  index_q,            ///< [index_heads * index_dim, query_latent]
  index_k,            ///< [index_dim, hidden]
  index_k_norm,       ///< [index_dim]
  index_k_norm_bias,  ///< [index_dim]
  index_weights,      ///< [index_heads, hidden]
  // Adapters (core/model/lora.hpp): A [rank, inputs] and B [outputs, rank].
  q_lora_a,
  q_lora_b,
  k_lora_a,
  k_lora_b,
  v_lora_a,
  v_lora_b,
  qkv_lora_a,
  qkv_lora_b,
  attention_out_lora_a,
  attention_out_lora_b,
  gate_lora_a,
  gate_lora_b,
  up_lora_a,
  up_lora_b,
  gate_up_lora_a,
  gate_up_lora_b,
  down_lora_a,
  down_lora_b
};

constexpr auto value_names(ParameterRole) {
  return name_array(
      "embedding", "input_norm", "qkv", "qkv_bias", "q_norm", "k_norm", "attention_out",
      "post_norm", "gate_up", "down", "final_norm", "head", "attention_output_norm",
      "mlp_output_norm", "position_embedding", "input_norm_bias", "post_norm_bias",
      "final_norm_bias", "attention_out_bias", "gate_up_bias", "down_bias", "router",
      "experts_gate_up", "experts_down", "shared_gate_up", "shared_down", "shared_gate", "sinks",
      "router_bias", "experts_gate_up_bias", "experts_down_bias", "q", "q_a", "q_a_norm", "q_b",
      "kv_a", "kv_a_norm", "kv_b", "router_correction", "index_q", "index_k", "index_k_norm",
      "index_k_norm_bias", "index_weights", "q_lora_a", "q_lora_b", "k_lora_a", "k_lora_b",
      "v_lora_a", "v_lora_b", "qkv_lora_a", "qkv_lora_b", "attention_out_lora_a",
      "attention_out_lora_b", "gate_lora_a", "gate_lora_b", "up_lora_a", "up_lora_b",
      "gate_up_lora_a", "gate_up_lora_b", "down_lora_a", "down_lora_b");
}

/// The factor of the GEMMs with that matrix, forward and backward; 0: none.
[[nodiscard]] Rational gemm_multiplier(const ModelShape& shape, ParameterRole matrix);

/// A checkpoint tensor inside a fused parameter: its name and its rows of dim 0. In families whose
/// checkpoints have all experts as one tensor (interleaved_experts) each part is one expert's.
struct ParameterPart {
  std::string name;
  std::int64_t rows = 0;

  friend bool operator==(const ParameterPart&, const ParameterPart&) = default;
};

/// One parameter in the layout of the kernels. Fused ones (qkv, gate_up) list the checkpoint's
/// tensors in order; others have no parts and have the checkpoint's name.
struct Parameter {
  std::string name;
  ParameterRole role = ParameterRole::embedding;
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::vector<ParameterPart> parts;
  DType dtype = DType::bf16;
  UnitId unit;
  bool decay = false;  ///< weight decay applies: matrices only
  /// Checkpoints hold it, or each expert's part of it, as [inputs, outputs]. `shape` is [outputs,
  /// inputs] nevertheless.
  bool transposed = false;

  [[nodiscard]] std::int64_t elements() const;
  /// Elements of one row: all dims but the first; 1 for a vector.
  [[nodiscard]] std::int64_t row_elements() const;
};

/// Whether the parameter never has a gradient.
[[nodiscard]] bool never_trains(std::string_view name);

/// Parameters that are gathered as one. Units are in forward order.
struct Unit {
  UnitId id;
  std::string name;  ///< "embedding", "layers.3", "head", "embedding_head"
  UnitKind kind = UnitKind::block;
  std::vector<std::size_t> parameters;  ///< indices into Model::parameters
};

struct Model {
  ModelShape shape;
  std::vector<Unit> units;
  std::vector<Parameter> parameters;  ///< in unit order, then layout order

  [[nodiscard]] std::int64_t parameter_count() const;
  /// Parameters without the experts that a token does not choose.
  [[nodiscard]] std::int64_t active_parameter_count() const;
};

/// The units and parameters of a shape. Layout order in a block: [input_norm], qkv, [qkv_bias],
/// [q_norm, k_norm], attention_out, [attention_output_norm], [post_norm], gate_up, down,
/// [mlp_output_norm]; with experts router, experts_gate_up, experts_down, [shared_gate_up,
/// shared_down, shared_gate] in place of gate_up and down; a bias follows its weight, the table of
/// positions follows the embedding. With tied embeddings the embedding and the final norm form one
/// unit, first in order. Parameters have dtype `dtype`.
[[nodiscard]] Model make_model(const ModelShape& shape, DType dtype);

/// make_model(shape).parameter_count(), but fast even with thousands of experts.
[[nodiscard]] std::int64_t parameter_count(const ModelShape& shape);

}  // namespace mfsdp
