// Families of models: which recipe computes their blocks, and what Hugging Face's classes of a
// model_type fix or assume beside config.json.
//
// To add a family that computes as one of these do: its row in family.cpp; what foreign_types.cpp
// and not_modelled.cpp said of it goes. One whose blocks are made otherwise has a name here too,
// and a row of traits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

/// Whose recipe (core/recipe/recipe.hpp) a model follows.
enum class Family {
  llama,    ///< RMSNorm before grouped-query attention with RoPE, and before SwiGLU
  gpt2,     ///< LayerNorm, biases, learned positions, an MLP without a gate
  olmo2,    ///< norms only of what attention and MLP add, and of all queries or keys of a token
  mixtral,  ///< Llama's blocks with experts of other names in checkpoints
  olmoe,    ///< experts, and norms of all queries or keys of a token
  gpt_oss,  ///< experts, sinks beside attention's scores, biases, a clamped SwiGLU
  deepseek  ///< experts, and queries, keys and values by way of latent vectors
};

template <>
struct Names<Family> {
  static constexpr std::array<std::string_view, 7> values{"llama", "gpt2",    "olmo2",   "mixtral",
                                                          "olmoe", "gpt_oss", "deepseek"};
};

/// What checkpoints call the modules of a model; "" where the family has no such module. A block's
/// stand behind `blocks`, its number and a dot.
struct ModuleNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = {};
  std::string_view final_norm = "model.norm";
  std::string_view head = "lm_head";
  std::string_view blocks = "model.layers.";
  std::string_view input_norm = "input_layernorm";
  std::string_view attention = "self_attn.";
  std::string_view qkv = "qkv_proj";  ///< of `attention`, as the next is
  std::string_view attention_out = "o_proj";
  std::string_view post_norm = "post_attention_layernorm";
  std::string_view mlp = "mlp.";
  std::string_view class_mlp = {};  ///< where transformers 5 calls `mlp` otherwise than files do
  std::string_view gate_up = "gate_up_proj";  ///< of `mlp`, as all from here on are
  std::string_view down = "down_proj";
  std::string_view router = "gate";
  std::string_view experts = "experts.";       ///< then an expert's number and a dot
  std::string_view expert_gate = "gate_proj";  ///< of an expert, as the next two are
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared_expert = "shared_expert.";    ///< of `mlp`, as the next is
  std::string_view shared_gate = "shared_expert_gate";  ///< "": every token has it whole
};

/// In what a family's models differ from Llama's, whatever their shape.
struct FamilyTraits {
  Family family = Family::llama;
  bool layer_norms = false;  ///< LayerNorm with weight and bias in place of RMSNorm
  bool biases = false;       ///< of the projections behind attention and in the MLP, and of experts
  /// Attention's weights of a query sum to less than 1: each head has a number of its own, a score
  /// of no token.
  bool sinks = false;
  bool gated = true;            ///< the MLP's activation is multiplied by another projection
  bool rotates = true;          ///< RoPE; else a table of positions is added to the embedding
  bool input_norms = true;      ///< before attention and MLP
  bool whole_qk_norms = false;  ///< norms of query and key go over all of a token's heads
  bool only_experts = false;    ///< every layer has experts
  /// Keys and values are made of one latent vector a token, but for a part of each key, which
  /// turns and is all heads'; queries of one too, or of the token's row.
  bool latent_attention = false;
  bool transposed_weights = false;  ///< checkpoints hold matrices of blocks as [inputs, outputs]
  /// Rows of an expert's gate and up stand in turn, and checkpoints hold all experts' matrices as
  /// one tensor [experts, inputs, outputs].
  bool interleaved_experts = false;
  ModuleNames names = {};
};

[[nodiscard]] const FamilyTraits& traits_of(Family family);

/// What the MLP does to its gate before it multiplies, or to all it has: x * sigmoid(x), or GELU in
/// its tanh form.
enum class Activation { silu, gelu_tanh };

template <>
struct Names<Activation> {
  static constexpr std::array<std::string_view, 2> values{"silu", "gelu_tanh"};
};

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

/// Which layers' attention has a window, where config.json does not name them by layer_types.
enum class SlidingRule {
  none,
  all,       ///< whatever layer_types says
  switched,  ///< where use_sliding_window is on: those from max_window_layers on
  pattern    ///< all but every n-th
};

/// What a model_type's config.json calls its sizes.
struct HfNames {
  const char* hidden = "hidden_size";
  const char* intermediate = "intermediate_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* positions = "max_position_embeddings";
  const char* epsilon = "rms_norm_eps";
  const char* activation = "hidden_act";
  const char* newer_activation = nullptr;     ///< counts where it is there
  const char* experts = nullptr;              ///< how many; null: the family has none
  const char* newer_experts = nullptr;        ///< as transformers 5 writes it; may stand beside it
  const char* expert_intermediate = nullptr;  ///< an expert's; null: `intermediate` is
  const char* shared_intermediate = nullptr;  ///< of one that all tokens have; null: there is none
};

/// A model_type of Hugging Face.
struct HfFamily {
  std::string_view model_type;
  std::string_view class_name = {};  ///< transformers' language model: "LlamaForCausalLM"
  Family family = Family::llama;
  HfNames names = {};
  /// Where config.json has no intermediate size: so many times hidden; 0: it has to be stated.
  std::int64_t intermediate_times = 0;
  bool qkv_bias = false;
  bool qk_norm = false;
  /// Where config.json has no head_dim; 0 means hidden_size / num_attention_heads.
  std::int64_t head_dim = 0;
  /// An absent num_key_value_heads means num_attention_heads. Elsewhere it means a constant that
  /// fits one model of the family, so there it has to be stated.
  bool kv_heads_default_to_heads = false;
  // Numbers stand for what config.json does not say.
  SlidingRule sliding = SlidingRule::none;
  std::int64_t sliding_window = 4096;   ///< tokens; 0: no window
  std::int64_t max_window_layers = 28;  ///< of rule `switched`
  std::int64_t sliding_pattern = 0;     ///< n of rule `pattern`
  std::int64_t rope_theta = 0;          ///< 0 means 10000
  std::int64_t local_rope_theta = 0;    ///< of layers that slide; 0: they turn as all others
  bool partial_rope = false;            ///< RoPE may turn a part of each head
  bool scaled_scores = false;           ///< has soft caps and query_pre_attn_scalar
  std::int64_t score_cap = 0;           ///< 0: none
  std::int64_t logit_cap = 0;           ///< 0: none
  std::int64_t query_scalar = 0;        ///< 0 means head_dim
  Activation activation = Activation::silu;
  bool scaled_embedding = false;  ///< as ModelShape has these three
  bool output_norms = false;
  bool zero_centered_norms = false;
  bool tied_embeddings = false;  ///< where config.json does not say
  /// Checkpoints have query, key and value as one tensor, gate and up as another.
  bool fused_weights = false;
  // Of families with experts.
  /// The weights of a token's experts sum to 1: always, or where norm_topk_prob says so.
  bool always_normalises = false;
  bool dense_layers = false;    ///< layers may be dense (mlp_only_layers, decoder_sparse_step)
  Rational aux_loss{0, 1};      ///< where config.json does not say router_aux_loss_coef
  Rational swiglu_alpha{0, 1};  ///< of the clamped SwiGLU, which the class fixes; 0: SwiGLU
  std::int64_t swiglu_limit = 0;
  const char* dense_layers_first = nullptr;  ///< so many layers are dense; null: see dense_layers
  bool counts_shared = false;                ///< shared_intermediate counts experts' widths
  bool groups_experts = false;               ///< experts stand in groups of which a token has some
  bool sigmoid_routing = false;
  /// Published checkpoints are quantised; their shape is that of a model that is not.
  bool quantised_originals = false;
};

/// All that are modelled, sorted by model_type.
[[nodiscard]] std::span<const HfFamily> hf_families();

/// "deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, gpt2, gpt_oss, llama, mistral, mixtral,
/// olmo2, olmoe, phi3, qwen2, qwen2_moe, qwen3 or qwen3_moe".
[[nodiscard]] std::string hf_family_list();

}  // namespace mfsdp
