#include "verify/proof/values/model_steps.hpp"

#include <span>

#include "verify/proof/values/attention_steps.hpp"
#include "verify/proof/values/context_parallel_steps.hpp"
#include "verify/proof/values/expert_parallel_steps.hpp"
#include "verify/proof/values/expert_steps.hpp"
#include "verify/proof/values/held_key_steps.hpp"

namespace mfsdp {
namespace steps {
namespace {

// ---- steps of all models. The head's matrix has the role `head`, also where it is the
// embedding's.

constexpr std::array kOfAll{
    ModelStep{K::cross_entropy,
              0,
              {},
              {replaces("logits", of(logits), of(d_logits)), reads("labels", tokens, Part::labels)},
              true},
    ModelStep{K::cross_entropy_loss,
              0,
              {},
              {reads("logits", logits), reads("labels", tokens, Part::labels)},
              true},
    ModelStep{K::cross_entropy_loss,
              1,
              {},
              {reads("logits", logits), reads("labels", tokens, Part::labels),
               makes("log_probs", log_probs)},
              true},
    ModelStep{K::softmax_parts,
              0,
              {},
              {reads("logits", logits), reads("labels", tokens, Part::labels),
               makes("output", own_softmax)},
              true},
    ModelStep{K::cross_entropy,
              1,
              {},
              {replaces("logits", of(logits), of(d_logits)), reads("labels", tokens, Part::labels),
               reads("parts", Value::all_softmax)},
              true},
    ModelStep{K::cross_entropy_loss,
              2,
              {},
              {reads("logits", logits), reads("labels", tokens, Part::labels),
               reads("parts", Value::all_softmax)},
              true},
    model_step(K::embedding_backward, 0, P::embedding, reads("tokens", tokens),
               reads("d_output", d_output)),
    model_step(K::embedding_forward, 0, P::embedding, reads("tokens", tokens),
               replaces("output", kNothing, next(input))),
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

constexpr ModelStep kFirstNorm =
    model_step(K::rms_norm_forward, 0, P::input_norm, reads("residual", input),
               makes("normed", normed1), makes("rstd", rstd1));
constexpr ModelStep kInputNorm =
    norm_of_sum(P::input_norm, before(mid), before(mlp_out), input, normed1, rstd1);
constexpr ModelStep kPostNorm =
    norm_of_sum(P::post_norm, of(input), of(attention_out), mid, normed2, rstd2);
/// Reads the sum that was kept: the norm is computed again for a weight gradient.
constexpr ModelStep kPostNormAgain =
    model_step(K::rms_norm_forward, 0, P::post_norm, reads("residual", mid),
               makes("normed", normed2), makes("rstd", rstd2));
constexpr ModelStep kFinalNorm =
    norm_of_sum(P::final_norm, before(mid), before(mlp_out), input, normed1, rstd1);
constexpr ModelStep kInputNormBackward = norm_backward(
    P::input_norm, d_normed1, normed1, input, rstd1, of(d_mid), before(d_output), partials1);
constexpr ModelStep kPostNormBackward =
    norm_backward(P::post_norm, d_normed2, normed2, mid, rstd2, of(d_output), of(d_mid), partials2);
constexpr ModelStep kFinalNormBackward = norm_backward(
    P::final_norm, d_normed1, normed1, input, rstd1, kNothing, before(d_output), partials1);

constexpr std::array kRmsNorms{kFirstNorm,        kInputNorm,        kPostNorm,
                               kPostNormAgain,    kFinalNorm,        kInputNormBackward,
                               kPostNormBackward, kFinalNormBackward};

constexpr std::array kLayerNorms{
    layer_norm(kFirstNorm, mean1),
    layer_norm(kInputNorm, mean1),
    layer_norm(kPostNorm, mean2),
    layer_norm(kPostNormAgain, mean2),
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
          {reads("residual", in), reads("skip", skip), replaces("normed", kNothing, out),
           makes("rstd", rstd)}};
}
/// The input gradient of a projection of the residual: it is added to the residual's.
constexpr ModelStep added_gradient(P weight, Value d_out, OwnedValue after, OwnedValue sum) {
  return {K::gemm, 1, weight, {reads("d_output", d_out), replaces("d_input", after, sum)}};
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
    model_step(K::rms_norm_forward, 0, P::final_norm, reads("residual", input),
               makes("normed", normed1), makes("rstd", rstd1)),
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

/// Where ranks of tp sum terms first, and then add the bias.
constexpr std::array kBiasOfSum{
    forward(P::attention_out, attention, attention_out_unbiased),
    model_step(K::add_bias, 0, P::attention_out_bias,
               replaces("output", of(attention_out_unbiased), of(attention_out))),
};

// ---- the MLP ------------------------------------------------------------------------------------

constexpr ModelStep activates(K kind, std::string_view role) {
  return {kind, 0, {}, {reads(role, gate_up), makes("product", product)}};
}
constexpr ModelStep activates_backward(K kind, std::string_view role) {
  return {kind,
          0,
          {},
          {replaces(role, of(gate_up), of(d_gate_up)),
           replaces("d_product", of(d_product), of(product))}};
}
constexpr std::array kSwiglu{activates(K::swiglu_forward, "gate_up"),
                             activates_backward(K::swiglu_backward, "gate_up")};
constexpr std::array kGeglu{activates(K::geglu_forward, "gate_up"),
                            activates_backward(K::geglu_backward, "gate_up")};
constexpr std::array kGelu{activates(K::gelu_forward, "input"),
                           activates_backward(K::gelu_backward, "input")};

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

/// Before these, with expert parallelism.
constexpr std::array kDealtTables{
    table(expert_parallel::kSharedSteps, [](M model) { return model.shared_intermediate != 0; }),
    table(expert_parallel::kSteps, [](M model) { return model.experts != 0; }),
};

/// In place of these kinds' others, where ranks share sequences.
constexpr StepTable kBalancedSequenceTable = table(
    context_parallel::kBalancedSequences, [](M model) { return model.router_aux_loss.num != 0; });
constexpr std::array kSharedSequenceTables{
    kBalancedSequenceTable,
    table(context_parallel::kSteps, rotates_heads),
    table(context_parallel::kRopeOfSequences,
          [](M model) { return rotates_heads(model) && !model.qk_norm; }),
    table(context_parallel::kHeadNormsOfSequences,
          [](M model) { return model.qk_norm && !model.traits().whole_qk_norms; }),
};

/// The same, where ranks gather keys, and where keys go around.
constexpr std::array kGatheredKeyTables{kBalancedSequenceTable,
                                        table(context_parallel::kGatheredSteps, rotates_heads)};
constexpr std::array kRingTables{kBalancedSequenceTable,
                                 table(context_parallel::kRingSteps, rotates_heads)};

/// The same, where ranks divide a block's weights.
constexpr std::array kSharedBlockTables{
    table(kBiasOfSum, [](M model) { return model.traits().biases && !model.output_norms; }),
};

/// The same, where several ranks hold each head of keys.
constexpr std::array kHeldKeyTables{
    table(held_keys::kSteps, [](M model) { return rotates_heads(model) && !model.traits().sinks; }),
    table(held_keys::kRope, [](M model) { return rotates_heads(model) && !model.qk_norm; }),
    table(held_keys::kHeadNorms,
          [](M model) { return model.qk_norm && !model.traits().whole_qk_norms; }),
};

const ModelStep* find_in(std::span<const StepTable> tables, const ModelShape& model,
                         std::size_t place) {
  for (const StepTable& table : tables)
    if (const std::uint8_t position = table.positions[place]; position != 0 && table.has(model))
      return &table.steps[position - 1U];
  return nullptr;
}

}  // namespace
}  // namespace steps

const ModelStep* find_step(const ModelShape& model, KernelKind kind, std::int64_t variant,
                           std::optional<ParameterRole> parameter, const Divided& divided) {
  if (variant < 0 || variant >= static_cast<std::int64_t>(steps::kVariants)) return nullptr;
  const std::size_t place = steps::place_of(kind, static_cast<std::size_t>(variant), parameter);
  using Tables = std::span<const steps::StepTable>;
  const Tables shared = divided.ring   ? Tables(steps::kRingTables)
                        : divided.keys ? Tables(steps::kGatheredKeyTables)
                                       : Tables(steps::kSharedSequenceTables);
  // No other step attends: one on a rank's tokens would see a part of each sequence.
  if (divided.sequences && context_parallel::is_of_sequences(kind, divided.keys))
    return steps::find_in(shared, model, place);
  const ModelStep* step = nullptr;
  if (divided.heads && held_keys::is_of_heads(kind))
    return steps::find_in(steps::kHeldKeyTables, model, place);
  if (divided.blocks) step = steps::find_in(steps::kSharedBlockTables, model, place);
  if (step != nullptr) return step;
  if (divided.sequences) step = steps::find_in(shared, model, place);
  if (step == nullptr && divided.experts) step = steps::find_in(steps::kDealtTables, model, place);
  return step != nullptr ? step : steps::find_in(steps::kTables, model, place);
}

}  // namespace mfsdp
