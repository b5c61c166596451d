#include "verify/proof/model_steps.hpp"

#include <span>

#include "verify/proof/dealt_steps.hpp"

namespace mfsdp {
namespace {

using enum Value;
using K = KernelKind;
using P = ParameterRole;

constexpr OwnedValue of(Value value) { return {.value = value}; }
constexpr OwnedValue before(Value value) { return {.value = value, .shift = -1}; }
constexpr OwnedValue next(Value value) { return {.value = value, .shift = 1}; }
constexpr OwnedValue kNothing{};

constexpr Flow reads(std::string_view role, Value value, Part part = Part::rows) {
  return {.role = role, .reads = of(value), .writes = kNothing, .part = part};
}
constexpr Flow makes(std::string_view role, Value value, Part part = Part::rows) {
  return {.role = role, .reads = kNothing, .writes = of(value), .part = part};
}
constexpr Flow turns(std::string_view role, OwnedValue from, OwnedValue to) {
  return {.role = role, .reads = from, .writes = to};
}

/// Where each query's document begins, and by which angles its token is turned.
constexpr Flow kInDocuments = reads("positions", tokens, Part::positions);

/// out = in * weight^T;  d_in = d_out * weight;  d_weight = d_out^T * in.
constexpr ModelStep forward(P weight, Value in, Value out, bool chunk = false) {
  return {K::gemm, 0, weight, {reads("input", in), makes("output", out)}, chunk};
}
constexpr ModelStep input_gradient(P weight, Value d_out, Value d_in, bool chunk = false) {
  return {K::gemm, 1, weight, {reads("d_output", d_out), makes("d_input", d_in)}, chunk};
}
constexpr ModelStep weight_gradient(P weight, Value d_out, Value in, bool chunk = false) {
  return {K::gemm, 2, weight, {reads("d_output", d_out), reads("input", in)}, chunk};
}

/// The norm of what a projection adds to the residual; the gradient of the residual stays.
constexpr ModelStep output_norm(P norm, Value in, Value out, Value rstd) {
  return {K::rms_norm_forward,
          0,
          norm,
          {reads("residual", in), makes("normed", out), makes("rstd", rstd)}};
}
constexpr ModelStep output_norm_backward(P norm, Value d_out, Value in, Value rstd, Value d_in,
                                         Value partials) {
  return {K::rms_norm_backward,
          0,
          norm,
          {reads("d_normed", d_out), reads("input", in), reads("rstd", rstd),
           makes("d_residual", d_in), makes("partials", partials)}};
}

/// x = norm(...) before attention and MLP; the gradient goes on beside that of the residual.
constexpr ModelStep norm_of_sum(P norm, OwnedValue residual, OwnedValue delta, Value sum,
                                Value normed, Value rstd) {
  return {K::rms_norm_forward,
          1,
          norm,
          {Flow{.role = "residual", .reads = residual}, Flow{.role = "delta", .reads = delta},
           makes("residual_out", sum), makes("normed", normed), makes("rstd", rstd)}};
}
constexpr ModelStep norm_backward(P norm, Value d_normed, Value normed, Value input, Value rstd,
                                  OwnedValue d_after, OwnedValue d_before, Value partials) {
  return {K::rms_norm_backward,
          0,
          norm,
          {turns("d_normed", of(d_normed), of(normed)), reads("input", input), reads("rstd", rstd),
           turns("d_residual", d_after, d_before), makes("partials", partials)}};
}
constexpr ModelStep weight_sums(P norm, Value partials, Part part = Part::rows) {
  return {K::norm_weight_grad, 0, norm, {reads("partials", partials, part)}};
}
/// The same with LayerNorm, which has a mean too.
constexpr ModelStep layer_norm(ModelStep step, Value mean) {
  step.kind = step.kind == K::rms_norm_forward ? K::layer_norm_forward : K::layer_norm_backward;
  std::size_t flow = 0;
  while (!step.flows[flow].role.empty()) ++flow;
  step.flows[flow] = step.kind == K::layer_norm_forward ? makes("mean", mean) : reads("mean", mean);
  return step;
}
constexpr ModelStep bias_sums(P bias, Value d_output) {
  return {K::bias_grad, 0, bias, {reads("d_output", d_output)}};
}

// ---- steps of all models. The head's matrix has the role `head`, also where it is the
// embedding's.

constexpr std::array kOfAll{
    ModelStep{K::cross_entropy,
              0,
              {},
              {turns("logits", of(logits), of(d_logits)), reads("labels", tokens, Part::labels)},
              true},
    ModelStep{K::cross_entropy_loss,
              0,
              {},
              {reads("logits", logits), reads("labels", tokens, Part::labels)},
              true},
    ModelStep{K::embedding_backward,
              0,
              P::embedding,
              {reads("tokens", tokens), reads("d_output", d_output)}},
    ModelStep{K::embedding_forward,
              0,
              P::embedding,
              {reads("tokens", tokens), turns("output", kNothing, next(input))}},
    forward(P::head, normed1, logits, true),
    input_gradient(P::head, d_logits, d_normed1, true),
    weight_gradient(P::head, d_logits, normed1, true),
    bias_sums(P::qkv_bias, d_qkv),
    weight_sums(P::final_norm, partials1),
};

// ---- norms before attention and MLP -------------------------------------------------------------

constexpr std::array kInputNorms{
    forward(P::gate_up, normed2, gate_up),
    forward(P::qkv, normed1, qkv),
    input_gradient(P::gate_up, d_gate_up, d_normed2),
    input_gradient(P::qkv, d_qkv, d_normed1),
    weight_gradient(P::gate_up, d_gate_up, normed2),
    weight_gradient(P::qkv, d_qkv, normed1),
    weight_sums(P::input_norm, partials1),
    weight_sums(P::post_norm, partials2),
};

constexpr ModelStep kFirstNorm{
    K::rms_norm_forward,
    0,
    P::input_norm,
    {reads("residual", input), makes("normed", normed1), makes("rstd", rstd1)}};
constexpr ModelStep kInputNorm =
    norm_of_sum(P::input_norm, before(mid), before(mlp_out), input, normed1, rstd1);
constexpr ModelStep kPostNorm =
    norm_of_sum(P::post_norm, of(input), of(attention_out), mid, normed2, rstd2);
constexpr ModelStep kFinalNorm =
    norm_of_sum(P::final_norm, before(mid), before(mlp_out), input, normed1, rstd1);
constexpr ModelStep kInputNormBackward = norm_backward(
    P::input_norm, d_normed1, normed1, input, rstd1, of(d_mid), before(d_output), partials1);
constexpr ModelStep kPostNormBackward =
    norm_backward(P::post_norm, d_normed2, normed2, mid, rstd2, of(d_output), of(d_mid), partials2);
constexpr ModelStep kFinalNormBackward = norm_backward(
    P::final_norm, d_normed1, normed1, input, rstd1, kNothing, before(d_output), partials1);

constexpr std::array kRmsNorms{kFirstNorm,         kInputNorm,        kPostNorm,         kFinalNorm,
                               kInputNormBackward, kPostNormBackward, kFinalNormBackward};

constexpr std::array kLayerNorms{
    layer_norm(kFirstNorm, mean1),
    layer_norm(kInputNorm, mean1),
    layer_norm(kPostNorm, mean2),
    layer_norm(kFinalNorm, mean1),
    layer_norm(kInputNormBackward, mean1),
    layer_norm(kPostNormBackward, mean2),
    layer_norm(kFinalNormBackward, mean1),
    weight_sums(P::input_norm_bias, partials1, Part::second_half),
    weight_sums(P::post_norm_bias, partials2, Part::second_half),
    weight_sums(P::final_norm_bias, partials1, Part::second_half),
};

// ---- norms of what attention and MLP add --------------------------------------------------------

constexpr std::array kOutputNorms{
    forward(P::attention_out, attention, raw_attention_out),
    forward(P::down, product, raw_mlp_out),
    input_gradient(P::attention_out, d_raw_attention_out, d_attention),
    input_gradient(P::down, d_raw_mlp_out, d_product),
    weight_gradient(P::attention_out, d_raw_attention_out, attention),
    weight_gradient(P::down, d_raw_mlp_out, product),
    output_norm_backward(P::attention_output_norm, d_mid, raw_attention_out, attention_out_rstd,
                         d_raw_attention_out, attention_out_partials),
    output_norm_backward(P::mlp_output_norm, d_output, raw_mlp_out, mlp_out_rstd, d_raw_mlp_out,
                         mlp_out_partials),
    weight_sums(P::attention_output_norm, attention_out_partials),
    weight_sums(P::mlp_output_norm, mlp_out_partials),
};

/// Beside input norms, which add to the residual.
constexpr std::array kBothNorms{
    output_norm(P::attention_output_norm, raw_attention_out, attention_out, attention_out_rstd),
    output_norm(P::mlp_output_norm, raw_mlp_out, mlp_out, mlp_out_rstd),
};

/// Adds the norm of `in` to `skip`.
constexpr ModelStep norm_added(P norm, Value in, Value skip, OwnedValue out, Value rstd) {
  return {K::rms_norm_forward,
          2,
          norm,
          {reads("residual", in), reads("skip", skip), turns("normed", kNothing, out),
           makes("rstd", rstd)}};
}
/// Of a projection of the residual: its gradient is added to that.
constexpr ModelStep added_gradient(P weight, Value d_out, OwnedValue after, OwnedValue sum) {
  return {K::gemm, 1, weight, {reads("d_output", d_out), turns("d_input", after, sum)}};
}

constexpr std::array kOutputNormsAlone{
    forward(P::qkv, input, qkv),
    forward(P::gate_up, mid, gate_up),
    added_gradient(P::gate_up, d_gate_up, of(d_output), of(d_mid)),
    added_gradient(P::qkv, d_qkv, of(d_mid), before(d_output)),
    weight_gradient(P::gate_up, d_gate_up, mid),
    weight_gradient(P::qkv, d_qkv, input),
    norm_added(P::attention_output_norm, raw_attention_out, input, of(mid), attention_out_rstd),
    norm_added(P::mlp_output_norm, raw_mlp_out, mid, next(input), mlp_out_rstd),
    ModelStep{K::rms_norm_forward,
              0,
              P::final_norm,
              {reads("residual", input), makes("normed", normed1), makes("rstd", rstd1)}},
    kFinalNormBackward,
};

constexpr std::array kNoOutputNorms{
    forward(P::attention_out, attention, attention_out),
    forward(P::down, product, mlp_out),
    input_gradient(P::attention_out, d_mid, d_attention),
    input_gradient(P::down, d_output, d_product),
    weight_gradient(P::attention_out, d_mid, attention),
    weight_gradient(P::down, d_output, product),
    bias_sums(P::attention_out_bias, d_mid),
    bias_sums(P::gate_up_bias, d_gate_up),
    bias_sums(P::down_bias, d_output),
};

// ---- attention ----------------------------------------------------------------------------------

constexpr ModelStep attends(Value columns) {
  return {
      K::attention_forward,
      0,
      {},
      {reads("query", columns), reads("key", columns, Part::key), reads("value", qkv, Part::value),
       makes("output", attention), makes("log_sum_exp", log_sum_exp), kInDocuments}};
}
constexpr ModelStep attends_backward(Value columns, Flow d_qkv_made) {
  return {
      K::attention_backward,
      0,
      {},
      {reads("query", columns), reads("key", columns, Part::key), reads("value", qkv, Part::value),
       reads("output", attention), reads("d_output", d_attention),
       reads("log_sum_exp", log_sum_exp), d_qkv_made, kInDocuments}};
}

constexpr std::array kRotated{
    attends(query_key),
    attends_backward(query_key, makes("d_qkv", d_rotated, Part::unrotated)),
};

/// Where each head has a sink.
constexpr std::array kSinks{
    ModelStep{K::attention_forward,
              0,
              {},
              {reads("query", query_key), reads("key", query_key, Part::key),
               reads("value", qkv, Part::value), makes("output", attention_unsunk),
               makes("log_sum_exp", log_sum_exp_unsunk), kInDocuments}},
    ModelStep{K::sink_forward,
              0,
              P::sinks,
              {turns("output", of(attention_unsunk), of(attention)),
               turns("log_sum_exp", of(log_sum_exp_unsunk), of(log_sum_exp))}},
    ModelStep{K::sink_backward,
              0,
              P::sinks,
              {reads("output", attention), reads("d_output", d_attention),
               reads("log_sum_exp", log_sum_exp), makes("d_sinks", d_sinks)}},
    bias_sums(P::sinks, d_sinks),
};

constexpr std::array kPositions{
    attends(qkv),
    attends_backward(qkv, makes("d_qkv", d_qkv)),
    ModelStep{K::position_embedding_backward,
              0,
              P::position_embedding,
              {reads("d_output", d_output), kInDocuments}},
    ModelStep{K::embedding_forward,
              0,
              P::embedding,
              {reads("tokens", tokens), turns("output", kNothing, next(input)), kInDocuments}},
};

constexpr ModelStep added_to_normed1(P parameter, Value d_out) {
  return {K::gemm,
          1,
          parameter,
          {reads("d_output", d_out), turns("d_input", of(d_normed1_keys), of(d_normed1))}};
}

/// Queries, keys and values by way of latent vectors.
constexpr std::array kLatent{
    attends(qkv),
    attends_backward(qkv, makes("d_qkv", d_qkv)),
    // Of queries with a vector of their own, and without.
    forward(P::q_a, normed1, q_latent),
    output_norm(P::q_a_norm, q_latent, q_latent_normed, q_latent_rstd),
    forward(P::q_b, q_latent_normed, latent_query),
    forward(P::q, normed1, latent_query),
    input_gradient(P::q_b, d_latent_query, d_q_normed),
    norm_backward(P::q_a_norm, d_q_normed, q_latent_normed, q_latent, q_latent_rstd, kNothing,
                  of(d_q_latent), q_latent_partials),
    weight_sums(P::q_a_norm, q_latent_partials),
    weight_gradient(P::q_b, d_latent_query, q_latent_normed),
    weight_gradient(P::q_a, d_q_latent, normed1),
    weight_gradient(P::q, d_latent_query, normed1),
    added_to_normed1(P::q_a, d_q_latent),
    added_to_normed1(P::q, d_latent_query),
    // Of keys and values.
    forward(P::kv_a, normed1, kv_latent),
    ModelStep{K::latent_norm_forward,
              0,
              P::kv_a_norm,
              {reads("input", kv_latent), makes("normed", kv_latent_normed),
               makes("rstd", kv_latent_rstd)}},
    forward(P::kv_b, kv_latent_normed, key_value),
    ModelStep{
        K::latent_heads_forward,
        0,
        {},
        {reads("query", latent_query), reads("key_value", key_value), reads("latent", kv_latent),
         reads("rope_table", outside), makes("output", qkv), kInDocuments}},
    ModelStep{
        K::latent_heads_backward,
        0,
        {},
        {reads("d_output", d_qkv), reads("rope_table", outside), makes("d_query", d_latent_query),
         makes("d_key_value", d_key_value), makes("d_turned", d_turned), kInDocuments}},
    input_gradient(P::kv_b, d_key_value, d_kv_normed),
    ModelStep{K::latent_norm_backward,
              0,
              P::kv_a_norm,
              {turns("d_normed", of(d_kv_normed), of(kv_latent_normed)), reads("input", kv_latent),
               reads("rstd", kv_latent_rstd), reads("d_turned", d_turned),
               makes("d_input", d_kv_latent), makes("partials", kv_latent_partials)}},
    weight_sums(P::kv_a_norm, kv_latent_partials),
    weight_gradient(P::kv_b, d_key_value, kv_latent_normed),
    input_gradient(P::kv_a, d_kv_latent, d_normed1_keys),
    weight_gradient(P::kv_a, d_kv_latent, normed1),
};

constexpr std::array kRope{
    ModelStep{K::rope_backward,
              0,
              {},
              {turns("d_query_key", of(d_rotated), of(d_qkv)), reads("rope_table", outside),
               kInDocuments}},
    ModelStep{
        K::rope_forward,
        0,
        {},
        {turns("query_key", of(qkv), of(query_key)), reads("rope_table", outside), kInDocuments}},
};

constexpr ModelStep norms_and_turns(K kind) {
  return {kind,
          0,
          P::q_norm,
          {reads("query_key", qkv), reads("rope_table", outside), makes("output", query_key),
           makes("rstd", qk_rstd), kInDocuments}};
}
constexpr ModelStep norms_and_turns_backward(K kind) {
  return {kind,
          0,
          P::q_norm,
          {turns("d_query_key", of(d_rotated), of(d_qkv)), reads("query_key", qkv),
           reads("rope_table", outside), reads("rstd", qk_rstd), makes("partials", qk_partials),
           kInDocuments}};
}

constexpr std::array kHeadNorms{
    norms_and_turns(K::qk_norm_rope_forward),
    norms_and_turns_backward(K::qk_norm_rope_backward),
    weight_sums(P::q_norm, qk_partials),
    weight_sums(P::k_norm, qk_partials, Part::second_half),
};

constexpr std::array kWholeNorms{
    norms_and_turns(K::qk_row_norm_rope_forward),
    norms_and_turns_backward(K::qk_row_norm_rope_backward),
    weight_sums(P::q_norm, qk_partials),
    weight_sums(P::k_norm, qk_partials, Part::keys_half),
};

// ---- the MLP ------------------------------------------------------------------------------------

constexpr ModelStep activates(K kind, std::string_view role) {
  return {kind, 0, {}, {reads(role, gate_up), makes("product", product)}};
}
constexpr ModelStep activates_backward(K kind, std::string_view role) {
  return {
      kind,
      0,
      {},
      {turns(role, of(gate_up), of(d_gate_up)), turns("d_product", of(d_product), of(product))}};
}
constexpr std::array kSwiglu{activates(K::swiglu_forward, "gate_up"),
                             activates_backward(K::swiglu_backward, "gate_up")};
constexpr std::array kGeglu{activates(K::geglu_forward, "gate_up"),
                            activates_backward(K::geglu_backward, "gate_up")};
constexpr std::array kGelu{activates(K::gelu_forward, "input"),
                           activates_backward(K::gelu_backward, "input")};

// ---- experts ------------------------------------------------------------------------------------

constexpr ModelStep expert_forward(P weight, Value in, Value out) {
  return {K::grouped_product,
          0,
          weight,
          {reads("input", in), reads("ends", row_ends), makes("output", out)}};
}
constexpr ModelStep expert_input_gradient(P weight, Value d_out, Value d_in) {
  return {K::grouped_input_gradient,
          0,
          weight,
          {reads("d_output", d_out), reads("ends", row_ends), makes("d_input", d_in)}};
}
constexpr ModelStep expert_weight_gradient(P weight, Value d_out, Value in) {
  return {K::grouped_weight_gradient,
          0,
          weight,
          {reads("d_output", d_out), reads("input", in), reads("ends", row_ends)}};
}

constexpr std::array kExperts{
    forward(P::router, normed2, router_logits),
    ModelStep{K::router_forward,
              0,
              {},
              {reads("logits", router_logits), makes("indices", expert_indices),
               makes("weights", expert_weights)}},
    ModelStep{K::expert_order,
              0,
              {},
              {reads("indices", expert_indices), makes("ends", row_ends), makes("order", row_order),
               makes("places", row_places)}},
    ModelStep{K::permute_rows,
              0,
              {},
              {reads("input", normed2), reads("order", row_order), reads("weights", expert_weights),
               makes("row_weights", row_weights), makes("output", dispatched)}},
    ModelStep{K::permute_rows,
              1,
              {},
              {reads("input", normed2), reads("order", row_order), makes("output", dispatched)}},
    expert_forward(P::experts_gate_up, dispatched, gate_up),
    ModelStep{K::weighted_swiglu_forward,
              0,
              {},
              {reads("gate_up", gate_up), reads("row_weights", row_weights),
               reads("ends", row_ends), makes("product", product)}},
    expert_forward(P::experts_down, product, expert_out),
    ModelStep{K::combine_rows,
              0,
              {},
              {reads("input", expert_out), reads("places", row_places), makes("output", mlp_out)}},
    ModelStep{K::permute_rows,
              2,
              {},
              {reads("input", d_output), reads("order", row_order), makes("output", d_expert_out)}},
    expert_input_gradient(P::experts_down, d_expert_out, d_product),
    ModelStep{K::weighted_swiglu_backward,
              0,
              {},
              {turns("gate_up", of(gate_up), of(d_gate_up)), reads("row_weights", row_weights),
               reads("ends", row_ends), turns("d_product", of(d_product), of(product)),
               makes("d_row_weights", d_row_weights)}},
    expert_weight_gradient(P::experts_down, d_expert_out, product),
    expert_input_gradient(P::experts_gate_up, d_gate_up, d_dispatched),
    ModelStep{K::combine_rows,
              1,
              {},
              {reads("input", d_dispatched), reads("places", row_places),
               reads("row_weights", d_row_weights), makes("weights", d_expert_weights),
               makes("output", d_normed2_experts)}},
    ModelStep{K::router_backward,
              0,
              {},
              {reads("logits", router_logits), reads("indices", expert_indices),
               reads("d_weights", d_expert_weights), makes("d_logits", d_router_logits)}},
    ModelStep{K::gemm,
              1,
              P::router,
              {reads("d_output", d_router_logits),
               turns("d_input", of(d_normed2_experts), of(d_normed2))}},
    weight_gradient(P::router, d_router_logits, normed2),
    expert_weight_gradient(P::experts_gate_up, d_gate_up, dispatched),
};

/// What changes of the steps above where all tokens share an expert: sums are added to its own, and
/// its gradients behind the router's.
constexpr ModelStep kAddsToShared{K::combine_rows,
                                  0,
                                  {},
                                  {reads("input", expert_out), reads("places", row_places),
                                   turns("output", of(mlp_out_shared), of(mlp_out))}};
constexpr ModelStep kRouterBeforeShared{
    K::gemm,
    1,
    P::router,
    {reads("d_output", d_router_logits),
     turns("d_input", of(d_normed2_experts), of(d_normed2_routed))}};

/// An expert that every token has whole.
constexpr std::array kSharedWhole{
    kAddsToShared,
    kRouterBeforeShared,
    forward(P::shared_gate_up, normed2, shared_gate_up),
    ModelStep{K::weighted_swiglu_forward,
              1,
              {},
              {reads("gate_up", shared_gate_up), makes("product", shared_product)}},
    forward(P::shared_down, shared_product, mlp_out_shared),
    input_gradient(P::shared_down, d_output, d_shared_product),
    ModelStep{K::weighted_swiglu_backward,
              1,
              {},
              {turns("gate_up", of(shared_gate_up), of(d_shared_gate_up)),
               turns("d_product", of(d_shared_product), of(shared_product))}},
    weight_gradient(P::shared_down, d_output, shared_product),
    ModelStep{K::gemm,
              1,
              P::shared_gate_up,
              {reads("d_output", d_shared_gate_up),
               turns("d_input", of(d_normed2_routed), of(d_normed2))}},
    weight_gradient(P::shared_gate_up, d_shared_gate_up, normed2),
};

/// The same times a weight of its own.
constexpr std::array kShared{
    kAddsToShared,
    kRouterBeforeShared,
    forward(P::shared_gate, normed2, shared_logits),
    ModelStep{K::sigmoid_forward,
              0,
              {},
              {reads("input", shared_logits), makes("output", shared_weights)}},
    forward(P::shared_gate_up, normed2, shared_gate_up),
    ModelStep{K::weighted_swiglu_forward,
              1,
              {},
              {reads("gate_up", shared_gate_up), reads("row_weights", shared_weights),
               makes("product", shared_product)}},
    forward(P::shared_down, shared_product, mlp_out_shared),
    input_gradient(P::shared_down, d_output, d_shared_product),
    ModelStep{K::weighted_swiglu_backward,
              1,
              {},
              {turns("gate_up", of(shared_gate_up), of(d_shared_gate_up)),
               reads("row_weights", shared_weights),
               turns("d_product", of(d_shared_product), of(shared_product)),
               makes("d_row_weights", d_shared_weights)}},
    weight_gradient(P::shared_down, d_output, shared_product),
    ModelStep{K::sigmoid_backward,
              0,
              {},
              {reads("output", shared_weights), reads("d_output", d_shared_weights),
               makes("d_input", d_shared_logits)}},
    ModelStep{K::gemm,
              1,
              P::shared_gate_up,
              {reads("d_output", d_shared_gate_up),
               turns("d_input", of(d_normed2_routed), of(d_normed2_shared))}},
    ModelStep{K::gemm,
              1,
              P::shared_gate,
              {reads("d_output", d_shared_logits),
               turns("d_input", of(d_normed2_shared), of(d_normed2))}},
    weight_gradient(P::shared_gate_up, d_shared_gate_up, normed2),
    weight_gradient(P::shared_gate, d_shared_logits, normed2),
};

constexpr ModelStep adds_biases(P bias, std::int64_t weighted, Value before_bias, Value sum) {
  return {K::expert_bias_forward,
          weighted,
          bias,
          {turns("output", of(before_bias), of(sum)), reads("ends", row_ends),
           weighted == 0 ? Flow{} : reads("row_weights", row_weights)}};
}
constexpr ModelStep sums_biases(P bias, std::int64_t weighted, Value d_output_of) {
  return {K::expert_bias_gradient,
          weighted,
          bias,
          {reads("d_output", d_output_of), reads("ends", row_ends),
           weighted == 0 ? Flow{} : reads("row_weights", row_weights)}};
}

/// Where router and experts have biases; that of the second product is multiplied by the row's
/// weight.
constexpr std::array kExpertBiases{
    expert_forward(P::experts_gate_up, dispatched, gate_up_unbiased),
    adds_biases(P::experts_gate_up_bias, 0, gate_up_unbiased, gate_up),
    expert_forward(P::experts_down, product, expert_out_unbiased),
    adds_biases(P::experts_down_bias, 1, expert_out_unbiased, expert_out),
    ModelStep{K::weighted_swiglu_backward,
              0,
              {},
              {turns("gate_up", of(gate_up), of(d_gate_up)), reads("row_weights", row_weights),
               reads("ends", row_ends), turns("d_product", of(d_product), of(product)),
               makes("d_row_weights", d_row_weights_unbiased)}},
    ModelStep{K::expert_bias_dots,
              0,
              P::experts_down_bias,
              {reads("d_output", d_expert_out), reads("ends", row_ends),
               turns("d_row_weights", of(d_row_weights_unbiased), of(d_row_weights))}},
    sums_biases(P::experts_gate_up_bias, 0, d_gate_up),
    sums_biases(P::experts_down_bias, 1, d_expert_out),
    bias_sums(P::router_bias, d_router_logits),
};

/// Where experts are chosen by what each has beside its sigmoid.
constexpr std::array kCorrected{
    ModelStep{K::router_forward,
              0,
              P::router_correction,
              {reads("logits", router_logits), makes("indices", expert_indices),
               makes("weights", expert_weights)}},
};

/// Where a loss balances the experts of a sequence.
constexpr std::array kBalanced{
    ModelStep{K::router_forward,
              0,
              {},
              {reads("logits", router_logits), makes("indices", expert_indices),
               makes("weights", expert_weights), makes("counts", expert_counts)}},
    ModelStep{K::router_backward,
              0,
              {},
              {reads("logits", router_logits), reads("indices", expert_indices),
               reads("d_weights", d_expert_weights), reads("counts", expert_counts),
               makes("d_logits", d_router_logits)}},
};

// ---- which models have which --------------------------------------------------------------------

constexpr std::size_t kVariants = 8;
constexpr std::size_t kParameters = Names<ParameterRole>::values.size() + 1;  ///< and none

constexpr std::size_t place_of(KernelKind kind, std::size_t variant, std::optional<P> parameter) {
  const std::size_t p = parameter ? static_cast<std::size_t>(*parameter) + 1 : 0;
  return (static_cast<std::size_t>(kind) * kVariants + variant) * kParameters + p;
}

/// 1 + the position of each step, by its place.
using Positions =
    std::array<std::uint8_t, Names<KernelKind>::values.size() * kVariants * kParameters>;

template <std::size_t n>
constexpr Positions positions_of(const std::array<ModelStep, n>& steps) {
  Positions positions{};
  for (std::size_t s = 0; s < n; ++s)
    positions[place_of(steps[s].kind, static_cast<std::size_t>(steps[s].variant),
                       steps[s].parameter)] = static_cast<std::uint8_t>(s + 1);
  return positions;
}

/// Some steps, and the models that have them.
struct StepTable {
  const ModelStep* steps;
  Positions positions;
  bool (*has)(const ModelShape& model);
};

template <std::size_t n>
constexpr StepTable table(const std::array<ModelStep, n>& steps,
                          bool (*has)(const ModelShape& model)) {
  return {.steps = steps.data(), .positions = positions_of(steps), .has = has};
}

using M = const ModelShape&;
bool rotates_heads(M model) { return model.traits().rotates && !model.traits().latent_attention; }
bool has_gelu(M model) { return model.activation == Activation::gelu_tanh; }

/// The first that has a step counts: learned positions come before what all lookups are.
constexpr std::array kTables{
    table(kOutputNormsAlone, [](M model) { return !model.traits().input_norms; }),
    table(kInputNorms, [](M model) { return model.traits().input_norms; }),
    table(kRmsNorms,
          [](M model) { return model.traits().input_norms && !model.traits().layer_norms; }),
    table(kLayerNorms, [](M model) { return model.traits().layer_norms; }),
    table(kOutputNorms, [](M model) { return model.output_norms; }),
    table(kBothNorms, [](M model) { return model.output_norms && model.traits().input_norms; }),
    table(kNoOutputNorms, [](M model) { return !model.output_norms; }),
    table(kSinks, [](M model) { return model.traits().sinks; }),
    table(kLatent, [](M model) { return model.traits().latent_attention; }),
    table(kRotated, [](M model) { return rotates_heads(model); }),
    table(kPositions, [](M model) { return !model.traits().rotates; }),
    table(kRope, [](M model) { return rotates_heads(model) && !model.qk_norm; }),
    table(kHeadNorms, [](M model) { return model.qk_norm && !model.traits().whole_qk_norms; }),
    table(kWholeNorms, [](M model) { return model.qk_norm && model.traits().whole_qk_norms; }),
    table(kSwiglu, [](M model) { return model.traits().gated && !has_gelu(model); }),
    table(kGeglu, [](M model) { return model.traits().gated && has_gelu(model); }),
    table(kGelu, [](M model) { return !model.traits().gated; }),
    table(kExpertBiases, [](M model) { return model.experts != 0 && model.traits().biases; }),
    table(kShared, [](M model) { return model.has_gated_shared(); }),
    table(kSharedWhole,
          [](M model) { return model.shared_intermediate != 0 && !model.has_gated_shared(); }),
    table(kCorrected, [](M model) { return model.sigmoid_routing; }),
    table(kBalanced, [](M model) { return model.router_aux_loss.num != 0; }),
    table(kExperts, [](M model) { return model.experts != 0; }),
    table(kOfAll, [](M) { return true; }),
};

/// Before these, where experts are dealt out.
constexpr std::array kDealtTables{
    table(dealt::kSharedSteps, [](M model) { return model.shared_intermediate != 0; }),
    table(dealt::kSteps, [](M model) { return model.experts != 0; }),
};

const ModelStep* find_in(std::span<const StepTable> tables, const ModelShape& model,
                         std::size_t place) {
  for (const StepTable& table : tables)
    if (const std::uint8_t position = table.positions[place]; position != 0 && table.has(model))
      return &table.steps[position - 1U];
  return nullptr;
}

}  // namespace

const ModelStep* find_step(const ModelShape& model, KernelKind kind, std::int64_t variant,
                           std::optional<ParameterRole> parameter, bool deals) {
  if (variant < 0 || variant >= static_cast<std::int64_t>(kVariants)) return nullptr;
  const std::size_t place = place_of(kind, static_cast<std::size_t>(variant), parameter);
  const ModelStep* step = deals ? find_in(kDealtTables, model, place) : nullptr;
  return step != nullptr ? step : find_in(kTables, model, place);
}

}  // namespace mfsdp
