#include "verify/proof/values/lora_steps.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace mfsdp {
namespace {

using enum Value;
using K = KernelKind;
using P = ParameterRole;

constexpr OwnedValue adapter_value(Value value) { return {.value = value}; }

/// A matrix that may have adapters: the values around it.
struct Around {
  P matrix;
  Value in;
  Value out;
  Value base;  ///< its own output, where adapters add to it
  Value d_out;
  /// The gradient of its input: its own, then with each adapter's but the last one's.
  std::array<Value, 3> unfinished;
  Value d_in;
};

struct Layer {
  std::string_view name;
  P matrix, a, b;
  Value hidden, d_hidden;
};

constexpr std::array kLayers{
    Layer{"q_proj", P::qkv, P::q_lora_a, P::q_lora_b, lora_q, d_lora_q},
    Layer{"k_proj", P::qkv, P::k_lora_a, P::k_lora_b, lora_k, d_lora_k},
    Layer{"v_proj", P::qkv, P::v_lora_a, P::v_lora_b, lora_v, d_lora_v},
    Layer{"qkv_proj", P::qkv, P::qkv_lora_a, P::qkv_lora_b, lora_q, d_lora_q},
    Layer{"o_proj", P::attention_out, P::attention_out_lora_a, P::attention_out_lora_b,
          lora_attention_out, d_lora_attention_out},
    Layer{"gate_proj", P::gate_up, P::gate_lora_a, P::gate_lora_b, lora_gate, d_lora_gate},
    Layer{"up_proj", P::gate_up, P::up_lora_a, P::up_lora_b, lora_up, d_lora_up},
    Layer{"gate_up_proj", P::gate_up, P::gate_up_lora_a, P::gate_up_lora_b, lora_gate, d_lora_gate},
    Layer{"down_proj", P::down, P::down_lora_a, P::down_lora_b, lora_down, d_lora_down},
};

/// `terms`: ranks of tp sum what they make before the bias is added.
Around around(P matrix, const ModelShape& model, bool terms) {
  const bool normed = model.output_norms;
  const bool adds_bias_later = terms && model.traits().biases;
  switch (matrix) {
    case P::qkv:
      return {matrix,   normed1, qkv,
              qkv_base, d_qkv,   {d_normed1_base, d_normed1_first, d_normed1_second},
              d_normed1};
    case P::attention_out:
      return {matrix,
              attention,
              normed            ? raw_attention_out
              : adds_bias_later ? attention_out_unbiased
                                : attention_out,
              attention_out_base,
              normed ? d_raw_attention_out : d_mid,
              {d_attention_base},
              d_attention};
    case P::gate_up:
      return {matrix,       normed2,   gate_up,
              gate_up_base, d_gate_up, {d_normed2_base, d_normed2_first},
              d_normed2};
    default:
      return {P::down,
              product,
              normed ? raw_mlp_out : mlp_out,
              mlp_out_base,
              normed ? d_raw_mlp_out : d_output,
              {d_product_base},
              d_product};
  }
}

/// Columns of a layer's part of the rows that its matrix makes.
LoraSteps::Columns columns(const Layer& layer, const ModelShape& model) {
  const std::int64_t query = model.heads * model.head_dim;
  const std::int64_t key = model.kv_heads * model.head_dim;
  const std::int64_t inner = model.intermediate;
  if (layer.name == "q_proj") return {0, query};
  if (layer.name == "k_proj") return {query, query + key};
  if (layer.name == "v_proj") return {query + key, query + 2 * key};
  if (layer.name == "gate_proj") return {0, inner};
  if (layer.name == "up_proj") return {inner, 2 * inner};
  if (layer.name == "qkv_proj") return {0, query + 2 * key};
  if (layer.name == "gate_up_proj") return {0, 2 * inner};
  return {0, model.hidden};
}

std::int64_t width(P matrix, const ModelShape& model) {
  if (matrix == P::qkv) return (model.heads + 2 * model.kv_heads) * model.head_dim;
  return matrix == P::gate_up ? 2 * model.intermediate : model.hidden;
}

ModelStep gemm_step(std::int64_t kind, P parameter, Flow first, Flow second) {
  return {K::gemm, kind, parameter, {first, second}};
}

/// The model's own step, whose result adapters have yet to add to.
ModelStep unfinished_step(const ModelShape& model, std::int64_t kind, P matrix, Value made,
                          Part part) {
  ModelStep step = *find_step(model, K::gemm, kind, matrix);
  for (Flow& flow : step.flows) {
    if (flow.role.empty() || flow.writes.value == unknown) continue;
    flow.writes = adapter_value(made);
    flow.part = part;
  }
  return step;
}

}  // namespace

LoraSteps::LoraSteps(const PlanConfig& config) {
  const FamilyTraits& traits = config.model.traits();
  const bool as_llama = traits.input_norms && !traits.layer_norms && !traits.latent_attention;
  if (config.lora_rank <= 0 || !as_llama) return;
  const ModelShape& model = config.model;
  for (const P matrix : {P::qkv, P::attention_out, P::gate_up, P::down}) {
    if (model.experts != 0 && (matrix == P::gate_up || matrix == P::down)) continue;
    std::vector<const Layer*> layers;
    for (const Layer& layer : kLayers)
      if (layer.matrix == matrix &&
          std::ranges::find(config.lora_targets, layer.name) != config.lora_targets.end())
        layers.push_back(&layer);
    const Around at = around(matrix, model, config.mesh.size(Axis::tp) > 1);
    if (layers.empty() || layers.size() > at.unfinished.size()) continue;
    widths_.emplace_back(matrix, width(matrix, model));
    steps_.push_back(unfinished_step(model, 0, matrix, at.base, Part::adapted));
    steps_.push_back(unfinished_step(model, 1, matrix, at.unfinished[0], Part::rows));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = *layers[i];
      const Value before = at.unfinished[i];
      const Value after = i + 1 < layers.size() ? at.unfinished[i + 1] : at.d_in;
      const auto reads = [](std::string_view role, Value value, Part part = Part::rows) {
        return Flow{.role = role, .reads = adapter_value(value), .part = part};
      };
      const auto makes = [](std::string_view role, Value value) {
        return Flow{.role = role, .writes = adapter_value(value)};
      };
      const auto replaces = [](std::string_view role, Value from, Value to, Part part) {
        return Flow{
            .role = role, .reads = adapter_value(from), .writes = adapter_value(to), .part = part};
      };
      const Flow gradient = reads("d_output", at.d_out, Part::adapter);
      for (const ModelStep& step :
           {gemm_step(0, l.a, reads("input", at.in), makes("output", l.hidden)),
            gemm_step(0, l.b, reads("input", l.hidden),
                      replaces("output", at.base, at.out, Part::adapter)),
            gemm_step(1, l.b, gradient, makes("d_input", l.d_hidden)),
            gemm_step(1, l.a, reads("d_output", l.d_hidden),
                      replaces("d_input", before, after, Part::rows)),
            gemm_step(2, l.b, gradient, reads("input", l.hidden)),
            gemm_step(2, l.a, reads("d_output", l.d_hidden), reads("input", at.in))})
        steps_.push_back(step);
      roles_.insert(roles_.end(), {l.a, l.b});
      adapters_.push_back({matrix, l.b, columns(l, model)});
    }
  }
}

const ModelStep* LoraSteps::find(KernelKind kind, std::int64_t variant,
                                 std::optional<ParameterRole> parameter) const {
  for (const ModelStep& step : steps_)
    if (step.kind == kind && step.variant == variant && step.parameter == parameter) return &step;
  return nullptr;
}

bool LoraSteps::is_scaled(std::optional<ParameterRole> parameter) const {
  return parameter && std::ranges::find(adapters_, *parameter, &Adapter::b) != adapters_.end();
}

LoraSteps::Columns LoraSteps::columns_of(ParameterRole b) const {
  const auto found = std::ranges::find(adapters_, b, &Adapter::b);
  return found == adapters_.end() ? Columns{} : found->columns;
}

std::vector<LoraSteps::Columns> LoraSteps::left_alone(ParameterRole matrix) const {
  const auto all = std::ranges::find(widths_, matrix, &std::pair<P, std::int64_t>::first);
  if (all == widths_.end()) return {};
  std::vector<Columns> gaps;
  std::int64_t at = 0;
  for (const Adapter& adapter : adapters_) {
    if (adapter.matrix != matrix) continue;
    if (adapter.columns.begin > at) gaps.push_back({at, adapter.columns.begin});
    at = adapter.columns.end;
  }
  if (at < all->second) gaps.push_back({at, all->second});
  return gaps;
}

}  // namespace mfsdp
