#include "verify/proof/model_steps.hpp"

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

/// Of models with output norms, and of those alone.
constexpr std::array kWithOutputNorms{
    forward(P::attention_out, attention, raw_attention_out),
    forward(P::down, product, raw_mlp_out),
    input_gradient(P::attention_out, d_raw_attention_out, d_attention),
    input_gradient(P::down, d_raw_mlp_out, d_product),
    weight_gradient(P::attention_out, d_raw_attention_out, attention),
    weight_gradient(P::down, d_raw_mlp_out, product),
    output_norm(P::attention_output_norm, raw_attention_out, attention_out, attention_out_rstd),
    output_norm(P::mlp_output_norm, raw_mlp_out, mlp_out, mlp_out_rstd),
    output_norm_backward(P::attention_output_norm, d_mid, raw_attention_out, attention_out_rstd,
                         d_raw_attention_out, attention_out_partials),
    output_norm_backward(P::mlp_output_norm, d_output, raw_mlp_out, mlp_out_rstd, d_raw_mlp_out,
                         mlp_out_partials),
    ModelStep{K::norm_weight_grad,
              0,
              P::attention_output_norm,
              {reads("partials", attention_out_partials)}},
    ModelStep{K::norm_weight_grad, 0, P::mlp_output_norm, {reads("partials", mlp_out_partials)}},
};

/// Of models without.
constexpr std::array kWithoutOutputNorms{
    forward(P::attention_out, attention, attention_out),
    forward(P::down, product, mlp_out),
    input_gradient(P::attention_out, d_mid, d_attention),
    input_gradient(P::down, d_output, d_product),
    weight_gradient(P::attention_out, d_mid, attention),
    weight_gradient(P::down, d_output, product),
};

/// Of all. Grouped by kind; the head's matrix has the role `head`, also where it is the
/// embedding's.
constexpr std::array kSteps{
    ModelStep{K::attention_backward,
              0,
              {},
              {reads("query", query_key), reads("key", query_key, Part::key),
               reads("value", qkv, Part::value), reads("output", attention),
               reads("d_output", d_attention), reads("log_sum_exp", log_sum_exp),
               makes("d_qkv", d_rotated, Part::unrotated), kInDocuments}},
    ModelStep{K::attention_forward,
              0,
              {},
              {reads("query", query_key), reads("key", query_key, Part::key),
               reads("value", qkv, Part::value), makes("output", attention),
               makes("log_sum_exp", log_sum_exp), kInDocuments}},
    ModelStep{K::bias_grad, 0, P::qkv_bias, {reads("d_output", d_qkv)}},
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
    ModelStep{K::geglu_backward,
              0,
              {},
              {turns("gate_up", of(gate_up), of(d_gate_up)),
               turns("d_product", of(d_product), of(product))}},
    ModelStep{K::geglu_forward, 0, {}, {reads("gate_up", gate_up), makes("product", product)}},
    forward(P::gate_up, normed2, gate_up),
    forward(P::head, normed1, logits, true),
    forward(P::qkv, normed1, qkv),
    input_gradient(P::gate_up, d_gate_up, d_normed2),
    input_gradient(P::head, d_logits, d_normed1, true),
    input_gradient(P::qkv, d_qkv, d_normed1),
    weight_gradient(P::gate_up, d_gate_up, normed2),
    weight_gradient(P::head, d_logits, normed1, true),
    weight_gradient(P::qkv, d_qkv, normed1),
    ModelStep{K::norm_weight_grad, 0, P::input_norm, {reads("partials", partials1)}},
    ModelStep{K::norm_weight_grad, 0, P::final_norm, {reads("partials", partials1)}},
    ModelStep{K::norm_weight_grad, 0, P::post_norm, {reads("partials", partials2)}},
    ModelStep{K::norm_weight_grad, 0, P::q_norm, {reads("partials", qk_partials)}},
    ModelStep{
        K::norm_weight_grad, 0, P::k_norm, {reads("partials", qk_partials, Part::second_half)}},
    ModelStep{K::qk_norm_rope_backward,
              0,
              P::q_norm,
              {turns("d_query_key", of(d_rotated), of(d_qkv)), reads("query_key", qkv),
               reads("rope_table", outside), reads("rstd", qk_rstd), makes("partials", qk_partials),
               kInDocuments}},
    ModelStep{K::qk_norm_rope_forward,
              0,
              P::q_norm,
              {reads("query_key", qkv), reads("rope_table", outside), makes("output", query_key),
               makes("rstd", qk_rstd), kInDocuments}},
    ModelStep{
        K::rms_norm_backward,
        0,
        P::input_norm,
        {turns("d_normed", of(d_normed1), of(normed1)), reads("input", input), reads("rstd", rstd1),
         turns("d_residual", of(d_mid), before(d_output)), makes("partials", partials1)}},
    ModelStep{
        K::rms_norm_backward,
        0,
        P::final_norm,
        {turns("d_normed", of(d_normed1), of(normed1)), reads("input", input), reads("rstd", rstd1),
         turns("d_residual", kNothing, before(d_output)), makes("partials", partials1)}},
    ModelStep{
        K::rms_norm_backward,
        0,
        P::post_norm,
        {turns("d_normed", of(d_normed2), of(normed2)), reads("input", mid), reads("rstd", rstd2),
         turns("d_residual", of(d_output), of(d_mid)), makes("partials", partials2)}},
    ModelStep{K::rms_norm_forward,
              0,
              P::input_norm,
              {reads("residual", input), makes("normed", normed1), makes("rstd", rstd1)}},
    ModelStep{K::rms_norm_forward,
              1,
              P::input_norm,
              {turns("residual", before(mid), kNothing), turns("delta", before(mlp_out), kNothing),
               makes("residual_out", input), makes("normed", normed1), makes("rstd", rstd1)}},
    ModelStep{K::rms_norm_forward,
              1,
              P::final_norm,
              {turns("residual", before(mid), kNothing), turns("delta", before(mlp_out), kNothing),
               makes("residual_out", input), makes("normed", normed1), makes("rstd", rstd1)}},
    ModelStep{K::rms_norm_forward,
              1,
              P::post_norm,
              {reads("residual", input), reads("delta", attention_out), makes("residual_out", mid),
               makes("normed", normed2), makes("rstd", rstd2)}},
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
    ModelStep{K::swiglu_backward,
              0,
              {},
              {turns("gate_up", of(gate_up), of(d_gate_up)),
               turns("d_product", of(d_product), of(product))}},
    ModelStep{K::swiglu_forward, 0, {}, {reads("gate_up", gate_up), makes("product", product)}},
};

constexpr std::size_t kVariants = 3;
constexpr std::size_t kParameters = Names<ParameterRole>::values.size() + 1;  ///< and none

constexpr std::size_t place_of(KernelKind kind, std::size_t variant, std::optional<P> parameter) {
  const std::size_t p = parameter ? static_cast<std::size_t>(*parameter) + 1 : 0;
  return (static_cast<std::size_t>(kind) * kVariants + variant) * kParameters + p;
}

/// 1 + the position of each step.
template <std::size_t n>
constexpr auto positions_of(const std::array<ModelStep, n>& steps) {
  std::array<std::uint8_t, Names<KernelKind>::values.size() * kVariants * kParameters> positions{};
  for (std::size_t s = 0; s < n; ++s)
    positions[place_of(steps[s].kind, static_cast<std::size_t>(steps[s].variant),
                       steps[s].parameter)] = static_cast<std::uint8_t>(s + 1);
  return positions;
}
constexpr auto kPositions = positions_of(kSteps);
constexpr auto kPositionsWith = positions_of(kWithOutputNorms);
constexpr auto kPositionsWithout = positions_of(kWithoutOutputNorms);

}  // namespace

const ModelStep* find_step(const ModelShape& model, KernelKind kind, std::int64_t variant,
                           std::optional<ParameterRole> parameter) {
  if (variant < 0 || variant >= static_cast<std::int64_t>(kVariants)) return nullptr;
  const std::size_t place = place_of(kind, static_cast<std::size_t>(variant), parameter);
  if (const std::uint8_t position = kPositions[place]; position != 0) return &kSteps[position - 1U];
  if (model.output_norms) {
    const std::uint8_t position = kPositionsWith[place];
    return position == 0 ? nullptr : &kWithOutputNorms[position - 1U];
  }
  const std::uint8_t position = kPositionsWithout[place];
  return position == 0 ? nullptr : &kWithoutOutputNorms[position - 1U];
}

}  // namespace mfsdp
