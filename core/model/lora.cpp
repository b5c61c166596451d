#include "core/model/lora.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

using P = ParameterRole;

constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kB = ".lora_B.weight";

/// Attention like Llama's: GEMMs without biases, after a norm.
bool attends_as_llama(const FamilyTraits& traits) {
  return traits.input_norms && !traits.layer_norms && !traits.latent_attention;
}

}  // namespace

std::vector<LoraTarget> lora_targets(const ModelShape& shape) {
  if (!attends_as_llama(shape.traits())) return {};
  if (shape.residual_multiplier.num != 0) return {};  // adapters' output would have two factors
  const std::int64_t query = shape.attention_width();
  const std::int64_t key = checked_mul(shape.kv_heads, shape.head_dim);
  const std::int64_t hidden = shape.hidden;
  const std::int64_t inner = shape.intermediate;
  const LoraTarget out{"o_proj",
                       "self_attn.o_proj",
                       P::attention_out,
                       P::attention_out_lora_a,
                       P::attention_out_lora_b,
                       0,
                       hidden,
                       query};
  const LoraTarget down{"down_proj", "mlp.down_proj", P::down, P::down_lora_a, P::down_lora_b,
                        0,           hidden,          inner};
  if (shape.fused_weights)
    return {{"qkv_proj", "self_attn.qkv_proj", P::qkv, P::qkv_lora_a, P::qkv_lora_b, 0,
             shape.qkv_width(), hidden},
            out,
            {"gate_up_proj", "mlp.gate_up_proj", P::gate_up, P::gate_up_lora_a, P::gate_up_lora_b,
             0, 2 * inner, hidden},
            down};
  std::vector<LoraTarget> targets{
      {"q_proj", "self_attn.q_proj", P::qkv, P::q_lora_a, P::q_lora_b, 0, query, hidden},
      {"k_proj", "self_attn.k_proj", P::qkv, P::k_lora_a, P::k_lora_b, query, key, hidden},
      {"v_proj", "self_attn.v_proj", P::qkv, P::v_lora_a, P::v_lora_b, query + key, key, hidden},
      out};
  if (shape.experts != 0) return targets;  // no adapters in models' MLPs with experts
  targets.insert(
      targets.end(),
      {{"gate_proj", "mlp.gate_proj", P::gate_up, P::gate_lora_a, P::gate_lora_b, 0, inner, hidden},
       {"up_proj", "mlp.up_proj", P::gate_up, P::up_lora_a, P::up_lora_b, inner, inner, hidden},
       down});
  return targets;
}

std::vector<LoraTarget> lora_targets(const ModelShape& shape,
                                     const std::vector<std::string>& names) {
  std::vector<LoraTarget> targets = lora_targets(shape);
  std::erase_if(targets, [&](const LoraTarget& target) {
    return std::ranges::find(names, target.name) == names.end();
  });
  return targets;
}

std::vector<std::string> default_lora_targets(const ModelShape& shape) {
  if (shape.fused_weights) return {"qkv_proj"};
  return {"q_proj", "v_proj"};
}

void add_lora(Model& model, std::int64_t rank, const std::vector<std::string>& names) {
  const std::vector<LoraTarget> targets = lora_targets(model.shape, names);
  std::vector<Parameter> parameters;
  parameters.reserve(model.parameters.size() +
                     2 * targets.size() * static_cast<std::size_t>(model.shape.layers));
  for (Unit& unit : model.units) {
    DType dtype = DType::bf16;
    for (std::size_t& index : unit.parameters) {
      parameters.push_back(std::move(model.parameters[index]));
      index = parameters.size() - 1;
      dtype = parameters.back().dtype;
    }
    if (unit.kind != UnitKind::block) continue;
    const auto add = [&](const LoraTarget& target, std::string_view part, P role,
                         std::vector<std::int64_t> shape) {
      std::string name = "model." + unit.name + ".";
      name.append(target.module).append(part);
      unit.parameters.push_back(parameters.size());
      parameters.push_back({.name = std::move(name),
                            .role = role,
                            .shape = std::move(shape),
                            .parts = {},
                            .dtype = dtype,
                            .unit = unit.id,
                            .decay = true});
    };
    for (const LoraTarget& target : targets) {
      add(target, kA, target.a, {rank, target.inputs});
      add(target, kB, target.b, {target.outputs, rank});
    }
  }
  model.parameters = std::move(parameters);
}

bool is_lora(std::string_view name) { return name.ends_with(kA) || name.ends_with(kB); }

bool is_lora(ParameterRole role) {
  switch (role) {
    case P::q_lora_a:
    case P::q_lora_b:
    case P::k_lora_a:
    case P::k_lora_b:
    case P::v_lora_a:
    case P::v_lora_b:
    case P::qkv_lora_a:
    case P::qkv_lora_b:
    case P::attention_out_lora_a:
    case P::attention_out_lora_b:
    case P::gate_lora_a:
    case P::gate_lora_b:
    case P::up_lora_a:
    case P::up_lora_b:
    case P::gate_up_lora_a:
    case P::gate_up_lora_b:
    case P::down_lora_a:
    case P::down_lora_b: return true;
    default: return false;
  }
}

}  // namespace mfsdp
