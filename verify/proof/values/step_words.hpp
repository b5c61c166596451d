// The words that tables of the model's steps are written with (model_steps.cpp has the tables that
// are not of attention or experts, and which models have which).
#pragma once

#include <string_view>

#include "verify/proof/values/model_steps.hpp"

namespace mfsdp::steps {

using enum Value;
using K = KernelKind;
using P = ParameterRole;

constexpr OwnedValue of(Value value) { return {.value = value}; }
constexpr OwnedValue before(Value value) { return {.value = value, .shift = -1}; }
constexpr OwnedValue next(Value value) { return {.value = value, .shift = 1}; }
inline constexpr OwnedValue kNothing{};

constexpr Flow reads(std::string_view role, Value value, Part part = Part::rows) {
  return {.role = role, .reads = of(value), .writes = kNothing, .part = part};
}
constexpr Flow makes(std::string_view role, Value value, Part part = Part::rows) {
  return {.role = role, .reads = kNothing, .writes = of(value), .part = part};
}
constexpr Flow replaces(std::string_view role, OwnedValue from, OwnedValue to) {
  return {.role = role, .reads = from, .writes = to};
}

/// Positions: the begin of each query's document, and the RoPE angle of its token.
inline constexpr Flow kInDocuments = reads("positions", tokens, Part::positions);

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
  return {
      K::rms_norm_backward,
      0,
      norm,
      {replaces("d_normed", of(d_normed), of(normed)), reads("input", input), reads("rstd", rstd),
       replaces("d_residual", d_after, d_before), makes("partials", partials)}};
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

}  // namespace mfsdp::steps
