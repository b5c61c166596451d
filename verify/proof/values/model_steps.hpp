// The computation of a model, for the proof of values: for each kernel of a step, the values
// that it reads and makes. Written from the mathematics and not from the planner's recipes, so that
// a fault of those is not proved right by itself.
//
//   x    = mid' + mlp_out' (input; ' is the block before)     mid     = x + attention_out
//   qkv  = norm(x) * W                                        gate_up = norm(mid) * W
//   attention = softmax(rope(query) rope(key)) value          mlp_out = swiglu(gate_up) * W
//
// Models with output norms have attention_out = norm(raw attention_out), mlp_out = norm(raw
// mlp_out). Those without input norms have these alone, qkv = x * W and gate_up = mid * W, and x is
// made by the block before: the sum of its mid and mlp_out. Without RoPE attention takes qkv as it
// is; without a gate the activation is that of gate_up alone.
//
// With experts a token's row of norm(mid) goes to some of them, and mlp_out is the sum of their
// outputs, each times its weight:
//
//   router_logits = norm(mid) * W  -> indices, weights -> ends, order, places
//   dispatched = norm(mid) by order     gate_up = dispatched * W of each row's expert
//   `product` = swiglu(gate_up) * weight  expert_out = `product` * W   mlp_out = sums by places
//
// With expert parallelism, experts have the rows of all ranks of ep: ranks send rows to each other
// (kExchanged). dispatched, gate_up, `product` and expert_out hold the received rows, by expert.
//
// A value belongs to an owner, which is a place in forward order (0 the embedding, 1 to L the
// blocks, L + 1 final norm and head), and to a microbatch. A value that is computed again, in another
// buffer or over another value, is the same value: recomputation gives the values of forward.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/model/model.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// `d_` is the gradient of what follows. `normed1` and `rstd1` of the head are the final norm's.
enum class Value : std::uint8_t {
  unknown,    ///< of a kernel that is no step of a model
  excused,    ///< of an op that has a finding: it passes for whatever is wanted
  outside,    ///< what lies in a buffer that no op writes
  host_data,  ///< what the host put into the source of a copy
  tokens,     ///< ids, then labels, then positions in documents
  input,
  normed1,
  rstd1,
  qkv,
  query_key,  ///< rotated, and normed where the model does that
  qk_rstd,
  attention,
  log_sum_exp,
  attention_out,
  mid,
  normed2,
  rstd2,
  gate_up,
  product,
  mlp_out,
  logits,
  d_logits,
  d_output,  ///< gradient of the next owner's input
  d_product,
  d_gate_up,
  d_normed2,
  d_mid,
  d_attention,
  d_rotated,  ///< gradient of query and key after RoPE
  d_qkv,
  d_normed1,
  partials1,  ///< of the gradient of the input norm, or the final one
  partials2,  ///< of the norm after attention
  qk_partials,
  raw_attention_out,  ///< before its norm, in models that norm what is added
  attention_out_rstd,
  raw_mlp_out,
  mlp_out_rstd,
  d_raw_attention_out,
  d_raw_mlp_out,
  attention_out_partials,
  mlp_out_partials,
  mean1,  ///< of layer norms, beside rstd1
  mean2,
  // Experts: which a token has, and its rows in their order; gate_up and `product` have rows.
  router_logits,
  expert_indices,
  expert_weights,
  expert_counts,
  expert_counts_of_sequences,  ///< of all ranks of cp, which have parts of them
  row_ends,
  row_order,
  row_places,
  dispatched,
  row_weights,
  expert_out,
  d_expert_out,
  d_row_weights,
  d_dispatched,
  d_expert_weights,
  d_router_logits,
  d_normed2_experts,  ///< that of the experts, short of the router's
  // An expert that all tokens share, and sums without its gradients and its gate's.
  shared_logits,
  shared_weights,
  shared_gate_up,
  shared_product,
  mlp_out_shared,
  d_shared_product,
  d_shared_gate_up,
  d_shared_weights,
  d_shared_logits,
  d_normed2_routed,
  d_normed2_shared,
  // Expert parallelism: rows by expert, then in blocks for ranks (row_order and row_places are those
  // of the blocks); values that ranks send and receive; received rows by expert.
  chosen_ends,
  chosen_order,
  chosen_places,
  sent_counts,
  sent,
  sent_weights,
  received_counts,
  received,
  received_weights,
  received_order,
  received_places,
  leaving,
  returned,
  d_returned,
  d_leaving,
  d_received,
  d_received_weights,
  d_sent,
  d_sent_weights,
  // Attention without sinks, and the rows whose sum is their gradient; values before experts' biases.
  attention_unsunk,
  log_sum_exp_unsunk,
  d_sinks,
  gate_up_unbiased,
  expert_out_unbiased,
  d_row_weights_unbiased,
  // Latent attention.
  q_latent,
  q_latent_normed,
  q_latent_rstd,
  latent_query,
  kv_latent,
  kv_latent_normed,
  kv_latent_rstd,
  key_value,
  d_latent_query,
  d_key_value,
  d_turned,
  d_kv_normed,
  d_kv_latent,
  d_q_normed,
  d_q_latent,
  d_normed1_keys,  ///< that of keys and values
  q_latent_partials,
  kv_latent_partials,
  // Adapters (lora_steps.hpp): the output of A for each layer (lora_q and lora_gate also of fused
  // layers); its gradients; sums to which adapters have not been added yet.
  lora_q,
  lora_k,
  lora_v,
  lora_attention_out,
  lora_gate,
  lora_up,
  lora_down,
  d_lora_q,
  d_lora_k,
  d_lora_v,
  d_lora_attention_out,
  d_lora_gate,
  d_lora_up,
  d_lora_down,
  qkv_base,
  attention_out_base,
  gate_up_base,
  mlp_out_base,
  d_normed1_base,
  d_normed1_first,
  d_normed1_second,
  d_normed2_base,
  d_normed2_first,
  d_attention_base,
  d_product_base,
  log_probs,  ///< of labels
  // Context parallelism: rows of a rank's tokens by groups of heads; rows of whole sequences with
  // the heads of one group, for which attention, query_key, d_rotated and log_sum_exp are too.
  qkv_groups,
  qkv_sequences,
  attention_sequences,
  attention_groups,
  d_attention_groups,
  d_attention_sequences,
  d_qkv_sequences,
  d_qkv_groups,
  // Keys and values, first those of a rank's tokens, then those of all tokens of the sequence.
  own_keys,
  all_keys,
  d_query,
  d_all_keys,  ///< a rank's term, of its queries
  d_own_keys,
  // Keys and values of one rank at a time, which go around; what is made with the keys of some
  // ranks.
  held_keys,
  attention_part,
  log_sum_exp_part,
  d_query_part,
  d_held_keys,
  // The softmax of each row: over the part of the vocabulary that a rank of tp has, and the parts of
  // all ranks.
  own_softmax,
  all_softmax,
  attention_out_unbiased,  ///< the sum of terms of ranks of tp
  // More ranks of tp than heads of keys: a rank's columns of keys and values, those of all ranks, and
  // qkv with whole heads, of which query_key and d_rotated are too.
  key_part,
  key_parts,
  qkv_heads,
  d_qkv_heads,
  d_key_parts,  ///< a rank's term
  d_key_part,
  // Weights whose casts FP8 GEMMs read (fp8_steps.hpp).
  qkv_weight,
  attention_out_weight,
  gate_up_weight,
  down_weight,
  no_amax  ///< 0, before a step's largest magnitudes
};

constexpr auto value_names(Value) {
  return name_array(
      "what is not known", "what is wrong", "what nothing writes", "the host's data", "tokens",
      "input", "normed1", "rstd1", "qkv", "query_key", "qk_rstd", "attention", "log_sum_exp",
      "attention_out", "mid", "normed2", "rstd2", "gate_up", "product", "mlp_out", "logits",
      "d_logits", "d_output", "d_product", "d_gate_up", "d_normed2", "d_mid", "d_attention",
      "d_rotated", "d_qkv", "d_normed1", "partials1", "partials2", "qk_partials",
      "raw attention_out", "attention_out_rstd", "raw mlp_out", "mlp_out_rstd",
      "gradient of raw attention_out", "gradient of raw mlp_out",
      "partials of attention_out's norm", "partials of mlp_out's norm", "mean1", "mean2",
      "the router's logits", "tokens' experts", "weights of tokens' experts", "counts of experts",
      "counts of experts of whole sequences", "ends of experts' rows", "order of experts' rows",
      "places of experts' rows", "rows of experts", "weights of experts' rows",
      "outputs of experts", "gradient of outputs of experts",
      "gradient of the weights of experts' rows", "gradient of rows of experts",
      "gradient of the weights of tokens' experts", "gradient of the router's logits",
      "d_normed2 without the router's", "the shared expert's logit", "the shared expert's weight",
      "gate_up of the shared expert", "activation of the shared expert",
      "mlp_out without chosen experts", "gradient of the shared expert's activation",
      "gradient of the shared expert's gate_up", "gradient of the shared expert's weight",
      "gradient of the shared expert's logit", "d_normed2 without the shared expert's",
      "d_normed2 without the shared gate's", "ends of rows by expert", "order of rows by expert",
      "places of rows by expert", "counts of rows for ranks", "rows for ranks",
      "weights of rows for ranks", "counts of rows of ranks", "rows of ranks",
      "weights of rows of ranks", "order of rows of ranks", "places of rows of ranks",
      "outputs of experts for other ranks", "outputs of other ranks' experts",
      "gradient of outputs of other ranks' experts",
      "gradient of outputs of experts for other ranks", "gradient of rows of ranks",
      "gradient of the weights of rows of ranks", "gradient of rows for ranks",
      "gradient of the weights of rows for ranks", "attention without sinks",
      "log_sum_exp without sinks", "gradients of sinks by rows",
      "gate_up of experts without biases", "outputs of experts without biases",
      "gradient of the weights of experts' rows without the biases'",
      "the latent vector of queries", "the normed latent vector of queries",
      "rstd of the latent vector of queries", "queries of the latent vector",
      "the latent vector of keys and values", "the normed latent vector of keys and values",
      "rstd of the latent vector of keys and values", "keys and values of the latent vector",
      "gradient of queries of the latent vector",
      "gradient of keys and values of the latent vector", "gradient of the rotated part of keys",
      "gradient of the normed latent vector of keys and values",
      "gradient of the latent vector of keys and values",
      "gradient of the normed latent vector of queries", "gradient of the latent vector of queries",
      "d_normed1 without the queries'", "partials of the latent vector of queries",
      "partials of the latent vector of keys and values", "adapters' rows of query",
      "adapters' rows of key", "adapters' rows of value", "adapters' rows of attention_out",
      "adapters' rows of gate", "adapters' rows of up", "adapters' rows of down",
      "gradient of adapters' rows of query", "gradient of adapters' rows of key",
      "gradient of adapters' rows of value", "gradient of adapters' rows of attention_out",
      "gradient of adapters' rows of gate", "gradient of adapters' rows of up",
      "gradient of adapters' rows of down", "qkv without adapters",
      "attention_out without adapters", "gate_up without adapters", "mlp_out without adapters",
      "d_normed1 without adapters", "d_normed1 with one adapter's", "d_normed1 with two adapters'",
      "d_normed2 without adapters", "d_normed2 with one adapter's", "d_attention without adapters",
      "d_product without adapters", "log-probabilities of labels", "qkv by groups of heads",
      "qkv of whole sequences", "attention of whole sequences", "attention by groups of heads",
      "d_attention by groups of heads", "d_attention of whole sequences",
      "d_qkv of whole sequences", "d_qkv by groups of heads", "keys and values of a rank's tokens",
      "keys and values of all tokens", "gradient of queries",
      "a rank's term of the gradient of keys and values of all tokens",
      "gradient of keys and values of a rank's tokens", "keys and values of one rank's tokens",
      "part of attention", "part of log_sum_exp", "part of the gradient of queries",
      "terms of the gradient of keys and values of one rank's tokens", "part of a softmax",
      "parts of a softmax", "attention_out without its bias", "a rank's part of keys and values",
      "parts of keys and values", "qkv of whole heads", "d_qkv of whole heads",
      "a rank's term of the gradient of parts of keys and values",
      "gradient of a rank's part of keys and values", "the weight of qkv",
      "the weight of attention_out", "the weight of gate_up", "the weight of down",
      "no largest magnitude");
}

/// The form in which a value is held. A cast is of one FP8 type, which its scale is for.
enum class ValueForm : std::uint8_t {
  whole,  ///< the value itself
  amax,
  amax_of_shard,  ///< of a rank's shard of a weight
  e4m3,
  e4m3_t,  ///< transposed
  e4m3_scale,
  e5m2,
  e5m2_t,
  e5m2_scale,
  // Delayed scaling (amax_values.cpp). A step counts as their microbatch.
  next_amax,     ///< of this step, so far and on this rank
  reduced_amax,  ///< of this step, on all ranks
  kept_amax,     ///< of earlier steps, for this one
  // Scales of blocks.
  codes,
  codes_t,
  block_scales,
  block_scales_t,
  tensor_scale
};

constexpr auto value_names(ValueForm) {
  return name_array("whole", "largest magnitude", "largest magnitude of a shard", "E4M3 cast",
                    "transposed E4M3 cast", "scale of the E4M3 cast", "E5M2 cast",
                    "transposed E5M2 cast", "scale of the E5M2 cast",
                    "largest magnitude of this step", "largest magnitude of this step on all ranks",
                    "largest magnitude of earlier steps", "cast with scales of blocks",
                    "transposed cast with scales of blocks", "scales of the cast's blocks",
                    "scales of the transposed cast's blocks", "scale of the whole tensor");
}

/// Whether it is a weight, whose casts are of a step and not of a microbatch.
[[nodiscard]] constexpr bool is_weight(Value value) {
  return value >= Value::qkv_weight && value <= Value::down_weight;
}

/// A value of the step's owner, or of its neighbour. `unknown`: none.
struct OwnedValue {
  Value value = Value::unknown;
  std::int8_t shift = 0;  ///< of the owner
  ValueForm form = ValueForm::whole;

  friend bool operator==(const OwnedValue&, const OwnedValue&) = default;
};

/// Where in the value an operand begins.
enum class Part : std::uint8_t {
  rows,         ///< at its first row, or that of the chunk
  labels,       ///< of tokens
  positions,    ///< of tokens; an operand of models whose documents are masked, and of no others
  key,          ///< columns after the query's
  value,        ///< columns after query and key
  own_value,    ///< columns after key, where there is no query
  part_value,   ///< columns after query and a part of a key
  second_half,  ///< as long as the operand itself
  keys_half,    ///< after rows as wide as all query heads, where its own are as wide as key heads
  /// Made: d_rotated, but d_qkv (with cp that of whole sequences) in the value's columns, which are
  /// not rotated.
  unrotated,
  adapter,  ///< at its layer's first column
  adapted   ///< made: what adapters add to in their columns, and the whole sum in all others
};

struct Flow {
  std::string_view role;
  OwnedValue reads = {};
  OwnedValue writes = {};
  Part part = Part::rows;
};

inline constexpr std::size_t kMostFlows = 9;

struct ModelStep {
  KernelKind kind = KernelKind::gemm;
  /// GEMM: its attribute "kind". Norm: 1 adds two inputs, 2 adds its output to another.
  /// permute_rows: 0 with weights, 1 recomputed, 2 gradients; rows that were received or are sent
  /// back: 3 with weights, 4 with gradients of weights, 5 sent back, 6 recomputed, 7 gradients.
  /// combine_rows: 1 with gradients of weights. Weighted activation: 1 of the shared expert. Biases
  /// of experts: 1 times the weights of rows. Loss: 1 with log-probabilities, 2 of parts of a softmax; its gradient: 1
  /// of these. Groups of heads: 1 without columns of keys and values.
  std::int64_t variant = 0;
  std::optional<ParameterRole> parameter{};  ///< whose weights it reads or whose gradient it makes
  std::array<Flow, kMostFlows> flows{};      ///< operands without a value are left out
  bool chunk = false;                        ///< of some rows, not all tokens
};

[[nodiscard]] constexpr ModelStep model_step(KernelKind kind, std::int64_t variant,
                                             std::same_as<Flow> auto... flows) {
  return {.kind = kind, .variant = variant, .flows = {flows...}};
}
[[nodiscard]] constexpr ModelStep model_step(KernelKind kind, std::int64_t variant,
                                             ParameterRole parameter,
                                             std::same_as<Flow> auto... flows) {
  return {.kind = kind, .variant = variant, .parameter = parameter, .flows = {flows...}};
}

/// Whether ranks divide more than the batch: the experts of a block, the tokens of a sequence, a
/// block's weights. Ranks that divide tokens exchange heads, or keys.
struct Divided {
  bool experts = false;
  bool sequences = false;
  bool keys = false;  ///< each has all heads, with queries of its own tokens
  bool ring = false;  ///< and the keys of one rank at a time
  bool blocks = false;
  bool heads = false;  ///< of keys, each over several ranks
};

/// The step of a kernel that touches this parameter, or none, first. Null: the model has none.
[[nodiscard]] const ModelStep* find_step(const ModelShape& model, KernelKind kind,
                                         std::int64_t variant,
                                         std::optional<ParameterRole> parameter,
                                         const Divided& divided = {});

}  // namespace mfsdp
