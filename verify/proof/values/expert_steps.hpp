// The steps of experts: routers, the order of rows, GEMMs, a shared expert. With expert parallelism
// expert_parallel_steps.hpp has the steps that differ.
#pragma once

#include "verify/proof/values/step_words.hpp"

namespace mfsdp::steps {

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

inline constexpr std::array kExperts{
    forward(P::router, normed2, router_logits),
    model_step(K::router_forward, 0, reads("logits", router_logits),
               makes("indices", expert_indices), makes("weights", expert_weights)),
    model_step(K::expert_order, 0, reads("indices", expert_indices), makes("ends", row_ends),
               makes("order", row_order), makes("places", row_places)),
    model_step(K::permute_rows, 0, reads("input", normed2), reads("order", row_order),
               reads("weights", expert_weights), makes("row_weights", row_weights),
               makes("output", dispatched)),
    model_step(K::permute_rows, 1, reads("input", normed2), reads("order", row_order),
               makes("output", dispatched)),
    expert_forward(P::experts_gate_up, dispatched, gate_up),
    model_step(K::weighted_swiglu_forward, 0, reads("gate_up", gate_up),
               reads("row_weights", row_weights), reads("ends", row_ends),
               makes("product", product)),
    expert_forward(P::experts_down, product, expert_out),
    model_step(K::combine_rows, 0, reads("input", expert_out), reads("places", row_places),
               makes("output", mlp_out)),
    model_step(K::permute_rows, 2, reads("input", d_output), reads("order", row_order),
               makes("output", d_expert_out)),
    expert_input_gradient(P::experts_down, d_expert_out, d_product),
    model_step(K::weighted_swiglu_backward, 0, replaces("gate_up", of(gate_up), of(d_gate_up)),
               reads("row_weights", row_weights), reads("ends", row_ends),
               replaces("d_product", of(d_product), of(product)),
               makes("d_row_weights", d_row_weights)),
    expert_weight_gradient(P::experts_down, d_expert_out, product),
    expert_input_gradient(P::experts_gate_up, d_gate_up, d_dispatched),
    model_step(K::combine_rows, 1, reads("input", d_dispatched), reads("places", row_places),
               reads("row_weights", d_row_weights), makes("weights", d_expert_weights),
               makes("output", d_normed2_experts)),
    model_step(K::router_backward, 0, reads("logits", router_logits),
               reads("indices", expert_indices), reads("d_weights", d_expert_weights),
               makes("d_logits", d_router_logits)),
    model_step(K::gemm, 1, P::router, reads("d_output", d_router_logits),
               replaces("d_input", of(d_normed2_experts), of(d_normed2))),
    weight_gradient(P::router, d_router_logits, normed2),
    expert_weight_gradient(P::experts_gate_up, d_gate_up, dispatched),
};

/// Changes to the steps above where all tokens share an expert: sums are added to its output, and
/// its gradients to the router's.
inline constexpr ModelStep kAddsToShared =
    model_step(K::combine_rows, 0, reads("input", expert_out), reads("places", row_places),
               replaces("output", of(mlp_out_shared), of(mlp_out)));
inline constexpr ModelStep kRouterBeforeShared =
    model_step(K::gemm, 1, P::router, reads("d_output", d_router_logits),
               replaces("d_input", of(d_normed2_experts), of(d_normed2_routed)));

/// An expert that every token has whole.
inline constexpr std::array kSharedWhole{
    kAddsToShared,
    kRouterBeforeShared,
    forward(P::shared_gate_up, normed2, shared_gate_up),
    model_step(K::weighted_swiglu_forward, 1, reads("gate_up", shared_gate_up),
               makes("product", shared_product)),
    forward(P::shared_down, shared_product, mlp_out_shared),
    input_gradient(P::shared_down, d_output, d_shared_product),
    model_step(K::weighted_swiglu_backward, 1,
               replaces("gate_up", of(shared_gate_up), of(d_shared_gate_up)),
               replaces("d_product", of(d_shared_product), of(shared_product))),
    weight_gradient(P::shared_down, d_output, shared_product),
    model_step(K::gemm, 1, P::shared_gate_up, reads("d_output", d_shared_gate_up),
               replaces("d_input", of(d_normed2_routed), of(d_normed2))),
    weight_gradient(P::shared_gate_up, d_shared_gate_up, normed2),
};

/// The same times a weight of its own.
inline constexpr std::array kShared{
    kAddsToShared,
    kRouterBeforeShared,
    forward(P::shared_gate, normed2, shared_logits),
    model_step(K::sigmoid_forward, 0, reads("input", shared_logits),
               makes("output", shared_weights)),
    forward(P::shared_gate_up, normed2, shared_gate_up),
    model_step(K::weighted_swiglu_forward, 1, reads("gate_up", shared_gate_up),
               reads("row_weights", shared_weights), makes("product", shared_product)),
    forward(P::shared_down, shared_product, mlp_out_shared),
    input_gradient(P::shared_down, d_output, d_shared_product),
    model_step(K::weighted_swiglu_backward, 1,
               replaces("gate_up", of(shared_gate_up), of(d_shared_gate_up)),
               reads("row_weights", shared_weights),
               replaces("d_product", of(d_shared_product), of(shared_product)),
               makes("d_row_weights", d_shared_weights)),
    weight_gradient(P::shared_down, d_output, shared_product),
    model_step(K::sigmoid_backward, 0, reads("output", shared_weights),
               reads("d_output", d_shared_weights), makes("d_input", d_shared_logits)),
    model_step(K::gemm, 1, P::shared_gate_up, reads("d_output", d_shared_gate_up),
               replaces("d_input", of(d_normed2_routed), of(d_normed2_shared))),
    model_step(K::gemm, 1, P::shared_gate, reads("d_output", d_shared_logits),
               replaces("d_input", of(d_normed2_shared), of(d_normed2))),
    weight_gradient(P::shared_gate_up, d_shared_gate_up, normed2),
    weight_gradient(P::shared_gate, d_shared_logits, normed2),
};

constexpr ModelStep adds_biases(P bias, std::int64_t weighted, Value before_bias, Value sum) {
  return {K::expert_bias_forward,
          weighted,
          bias,
          {replaces("output", of(before_bias), of(sum)), reads("ends", row_ends),
           weighted == 0 ? Flow{} : reads("row_weights", row_weights)}};
}
constexpr ModelStep sums_biases(P bias, std::int64_t weighted, Value d_output_of) {
  return {K::expert_bias_gradient,
          weighted,
          bias,
          {reads("d_output", d_output_of), reads("ends", row_ends),
           weighted == 0 ? Flow{} : reads("row_weights", row_weights)}};
}

/// Where router and experts have biases; that of the second GEMM is multiplied by the row's
/// weight.
inline constexpr std::array kExpertBiases{
    expert_forward(P::experts_gate_up, dispatched, gate_up_unbiased),
    adds_biases(P::experts_gate_up_bias, 0, gate_up_unbiased, gate_up),
    expert_forward(P::experts_down, product, expert_out_unbiased),
    adds_biases(P::experts_down_bias, 1, expert_out_unbiased, expert_out),
    model_step(K::weighted_swiglu_backward, 0, replaces("gate_up", of(gate_up), of(d_gate_up)),
               reads("row_weights", row_weights), reads("ends", row_ends),
               replaces("d_product", of(d_product), of(product)),
               makes("d_row_weights", d_row_weights_unbiased)),
    model_step(K::expert_bias_dots, 0, P::experts_down_bias, reads("d_output", d_expert_out),
               reads("ends", row_ends),
               replaces("d_row_weights", of(d_row_weights_unbiased), of(d_row_weights))),
    sums_biases(P::experts_gate_up_bias, 0, d_gate_up),
    sums_biases(P::experts_down_bias, 1, d_expert_out),
    bias_sums(P::router_bias, d_router_logits),
};

/// Where experts are chosen by what each has beside its sigmoid.
inline constexpr std::array kCorrected{
    model_step(K::router_forward, 0, P::router_correction, reads("logits", router_logits),
               makes("indices", expert_indices), makes("weights", expert_weights)),
};

/// Where a loss balances the experts of a sequence.
inline constexpr std::array kBalanced{
    model_step(K::router_forward, 0, reads("logits", router_logits),
               makes("indices", expert_indices), makes("weights", expert_weights),
               makes("counts", expert_counts)),
    model_step(K::router_backward, 0, reads("logits", router_logits),
               reads("indices", expert_indices), reads("d_weights", d_expert_weights),
               reads("counts", expert_counts), makes("d_logits", d_router_logits)),
};

}  // namespace mfsdp::steps
