// Families of models: the recipe of their blocks, and what Hugging Face's class of a model_type
// fixes or assumes when config.json has no such field.
//
// To add a family whose blocks equal those of a family here: add its row in family.cpp and remove
// its rows in foreign_types.cpp and not_modelled.cpp. A family with other blocks also needs a name
// here and a row of traits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

/// The recipe of a model's blocks (core/recipe/recipe.hpp).
enum class Family {
  llama,       ///< RMSNorm before grouped-query attention with RoPE, and before SwiGLU
  gpt2,        ///< LayerNorm, biases, learned positions, an MLP without a gate
  olmo2,       ///< norms after attention and MLP only; norms over all query or key heads of a token
  mixtral,     ///< Llama's blocks with experts; checkpoints use other names for these
  olmoe,       ///< experts; norms over all query or key heads of a token
  gpt_oss,     ///< experts, attention sinks, biases, a clamped SwiGLU
  deepseek,    ///< experts and latent attention (MLA)
  minimax_m2,  ///< experts routed by sigmoids; norms over all query or key heads of a token
  glm4_moe     ///< experts routed by sigmoids, shared ones without a gate, the first layers dense
};

constexpr auto value_names(Family) {
  return name_array("llama", "gpt2", "olmo2", "mixtral", "olmoe", "gpt_oss", "deepseek",
                    "minimax_m2", "glm4_moe");
}

/// Names of modules in checkpoints; "" where the family has no such module. Names of a block's
/// modules follow `blocks`, the block's number and a dot.
struct ModuleNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = {};
  std::string_view final_norm = "model.norm";
  std::string_view head = "lm_head";
  std::string_view blocks = "model.layers.";
  std::string_view input_norm = "input_layernorm";
  std::string_view attention = "self_attn.";
  std::string_view qkv = "qkv_proj";  ///< inside `attention`, as the next one
  std::string_view attention_out = "o_proj";
  std::string_view post_norm = "post_attention_layernorm";
  std::string_view mlp = "mlp.";
  std::string_view class_mlp = {};  ///< transformers 5's name of `mlp`, where checkpoints differ
  std::string_view gate_up = "gate_up_proj";  ///< inside `mlp`, as all that follow
  std::string_view down = "down_proj";
  std::string_view router = "gate";
  std::string_view router_correction = "gate.e_score_correction_bias";
  std::string_view experts = "experts.";       ///< followed by an expert's number and a dot
  std::string_view expert_gate = "gate_proj";  ///< inside an expert, as the next two
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared_expert = "shared_expert.";    ///< inside `mlp`, as the next one
  std::string_view shared_gate = "shared_expert_gate";  ///< "": the shared expert has no gate
};

/// How a family's models differ from Llama's, independent of their shape.
struct FamilyTraits {
  Family family = Family::llama;
  bool layer_norms = false;     ///< LayerNorm with weight and bias in place of RMSNorm
  bool biases = false;          ///< in the attention output projection, the MLP and experts
  bool sinks = false;           ///< attention sinks: each head has one more logit, without a value
  bool gated = true;            ///< the MLP's activation is multiplied by a second projection
  bool rotates = true;          ///< RoPE; else learned positions are added to the embedding
  bool input_norms = true;      ///< before attention and MLP
  bool whole_qk_norms = false;  ///< norms of query and key go over all heads of a token
  bool only_experts = false;    ///< every layer has experts
  /// MLA: keys and values are computed from one latent vector per token, except the rotated part of
  /// the key, which all heads share. Queries come from a latent vector too, or from the hidden row.
  bool latent_attention = false;
  bool transposed_weights = false;  ///< checkpoints hold matrices of blocks as [inputs, outputs]
  /// Gate and up rows of an expert alternate, and checkpoints hold the matrices of all experts as
  /// one tensor [experts, inputs, outputs].
  bool interleaved_experts = false;
  ModuleNames names = {};
};

[[nodiscard]] const FamilyTraits& traits_of(Family family);

/// Activation of the MLP (of its gate, if it has one): x * sigmoid(x), or GELU in its tanh form.
enum class Activation { silu, gelu_tanh };

constexpr auto value_names(Activation) { return name_array("silu", "gelu_tanh"); }

/// The kernels of an MLP that multiplies its activated gate by another projection.
struct GatedKernels {
  const char* name;  ///< of their ops
  KernelKind forward;
  KernelKind backward;
};
[[nodiscard]] constexpr GatedKernels gated_kernels(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return {"geglu", KernelKind::geglu_forward, KernelKind::geglu_backward};
    case Activation::silu: break;
  }
  return {"swiglu", KernelKind::swiglu_forward, KernelKind::swiglu_backward};
}

/// Selects the layers with a sliding window where config.json has no layer_types.
enum class SlidingRule {
  none,
  all,       ///< all layers, even if layer_types exists
  switched,  ///< layers from max_window_layers on, if use_sliding_window is true
  pattern    ///< all but every n-th layer
};

/// Names of sizes in a model_type's config.json.
struct HfNames {
  const char* hidden = "hidden_size";
  const char* intermediate = "intermediate_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* positions = "max_position_embeddings";
  const char* epsilon = "rms_norm_eps";
  const char* activation = "hidden_act";
  const char* newer_activation = nullptr;     ///< takes precedence if the file has it
  const char* experts = nullptr;              ///< number of experts; null: the family has none
  const char* newer_experts = nullptr;        ///< transformers 5's name; a file may have both
  const char* expert_intermediate = nullptr;  ///< of an expert; null: `intermediate`
  const char* shared_intermediate = nullptr;  ///< of the shared expert; null: there is none
};

/// Sizes that a class assumes where config.json has no such field; 0: the file must state them.
struct HfSizes {
  std::int64_t vocab = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t positions = 0;
  Rational epsilon{0, 1};
};

/// A model_type of Hugging Face.
struct HfFamily {
  std::string_view model_type;
  std::string_view class_name = {};  ///< transformers' language model: "LlamaForCausalLM"
  Family family = Family::llama;
  HfNames names = {};
  /// Default of the intermediate size, as a multiple of hidden; 0: the file must state the size.
  std::int64_t intermediate_times = 0;
  bool qkv_bias = false;
  bool qk_norm = false;
  /// attention_bias means biases of query, key and value, and use_qk_norm norms of query and key.
  bool states_biases_and_norms = false;
  /// Default of head_dim; 0 means hidden_size / num_attention_heads.
  std::int64_t head_dim = 0;
  /// An absent num_key_value_heads means num_attention_heads. In other families the default is a
  /// constant that fits one model only, so the file must state it.
  bool kv_heads_default_to_heads = false;
  HfSizes sizes = {};
  // Defaults of fields that config.json may omit.
  SlidingRule sliding = SlidingRule::none;
  std::int64_t sliding_window = 4096;   ///< tokens; 0: no window
  std::int64_t max_window_layers = 28;  ///< of rule `switched`
  std::int64_t sliding_pattern = 0;     ///< n of rule `pattern`
  std::int64_t rope_theta = 0;          ///< 0 means 10000
  std::int64_t local_rope_theta = 0;    ///< of sliding-window layers; 0: as all others
  bool partial_rope = false;            ///< RoPE may rotate a part of each head
  Rational rotary_part{1, 1};           ///< default of partial_rotary_factor
  /// RoPE has three positions, which are equal for tokens of text.
  bool multimodal_rope = false;
  /// Default of no_rope_layer_interval: every n-th layer has no RoPE; 0: all have it.
  std::int64_t nope_interval = 0;
  bool unscaled_local_rope = false;  ///< scaling of RoPE leaves out sliding-window layers
  bool scaled_scores = false;        ///< has logit softcaps and query_pre_attn_scalar
  bool has_multipliers = false;      ///< of embedding, attention logits, residual and logits
  std::int64_t score_cap = 0;        ///< 0: none
  std::int64_t logit_cap = 0;        ///< 0: none
  std::int64_t query_scalar = 0;     ///< 0 means head_dim
  Activation activation = Activation::silu;
  bool scaled_embedding = false;  ///< these three as in ModelShape
  bool output_norms = false;
  bool zero_centered_norms = false;
  bool tied_embeddings = false;  ///< default
  /// Checkpoints have query, key and value as one tensor, gate and up as another.
  bool fused_weights = false;
  // Families with experts:
  /// The weights of a token's experts always sum to 1; else norm_topk_prob decides.
  bool always_normalises = false;
  bool dense_layers = false;    ///< layers may be dense (mlp_only_layers, decoder_sparse_step)
  Rational aux_loss{0, 1};      ///< default of router_aux_loss_coef
  Rational swiglu_alpha{0, 1};  ///< of the class's clamped SwiGLU; 0: plain SwiGLU
  std::int64_t swiglu_limit = 0;
  const char* dense_layers_first = nullptr;  ///< number of first dense layers; null: dense_layers
  bool counts_shared = false;                ///< shared_intermediate is a number of expert widths
  bool groups_experts = false;               ///< a token chooses among groups of experts first
  bool sigmoid_routing = false;
  bool sparse_attention = false;  ///< an indexer chooses the tokens that a query sees
  /// Llama 4's attention: in chunks, with norms of queries and keys that have no weights, and logits
  /// that grow with the position.
  bool chunked_attention = false;
  const char* sparse_step = "decoder_sparse_step";  ///< of dense_layers: every n-th has experts
};

/// The model types that are modelled, sorted.
[[nodiscard]] std::span<const HfFamily> hf_families();

/// "deepseek_v2, deepseek_v3, ... or qwen3_vl_text".
[[nodiscard]] std::string hf_family_list();

}  // namespace mfsdp
