#include "verify/proof/values/configured_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"
#include "verify/proof/values/lora_steps.hpp"

namespace mfsdp {
namespace {

using Roles = std::uint64_t;  ///< a bit for each

constexpr Roles bit(ParameterRole role) { return Roles{1} << static_cast<unsigned>(role); }

/// The parameters of a unit of that kind; of a block with experts, or a dense one, with or without
/// an indexer.
Roles roles_of(UnitKind kind, const PlanConfig& config, bool has_experts, bool has_indexer) {
  const ModelShape& model = config.model;
  const FamilyTraits& traits = model.traits();
  Roles final_norm = bit(ParameterRole::final_norm);
  if (traits.layer_norms) final_norm |= bit(ParameterRole::final_norm_bias);
  Roles embedding = bit(ParameterRole::embedding);
  if (!traits.rotates) embedding |= bit(ParameterRole::position_embedding);
  switch (kind) {
    case UnitKind::embedding: return embedding;
    case UnitKind::head: return final_norm | bit(ParameterRole::head);
    case UnitKind::embedding_and_head: return embedding | final_norm;
    case UnitKind::block: break;
  }
  Roles roles = bit(ParameterRole::attention_out);
  if (!traits.latent_attention)
    roles |= bit(ParameterRole::qkv);
  else
    roles |= bit(ParameterRole::kv_a) | bit(ParameterRole::kv_a_norm) | bit(ParameterRole::kv_b) |
             (model.query_latent == 0 ? bit(ParameterRole::q)
                                      : bit(ParameterRole::q_a) | bit(ParameterRole::q_a_norm) |
                                            bit(ParameterRole::q_b));
  if (has_indexer)
    roles |= bit(ParameterRole::index_q) | bit(ParameterRole::index_k) |
             bit(ParameterRole::index_k_norm) | bit(ParameterRole::index_k_norm_bias) |
             bit(ParameterRole::index_weights);
  if (has_experts && model.sigmoid_routing) roles |= bit(ParameterRole::router_correction);
  roles |= has_experts ? bit(ParameterRole::router) | bit(ParameterRole::experts_gate_up) |
                             bit(ParameterRole::experts_down)
                       : bit(ParameterRole::gate_up) | bit(ParameterRole::down);
  if (has_experts && model.shared_intermediate != 0)
    roles |= bit(ParameterRole::shared_gate_up) | bit(ParameterRole::shared_down);
  if (has_experts && model.has_gated_shared()) roles |= bit(ParameterRole::shared_gate);
  if (traits.input_norms) roles |= bit(ParameterRole::input_norm) | bit(ParameterRole::post_norm);
  if (traits.layer_norms)
    roles |= bit(ParameterRole::input_norm_bias) | bit(ParameterRole::post_norm_bias);
  if (traits.biases) {
    roles |= bit(ParameterRole::attention_out_bias);
    roles |= has_experts
                 ? bit(ParameterRole::router_bias) | bit(ParameterRole::experts_gate_up_bias) |
                       bit(ParameterRole::experts_down_bias)
                 : bit(ParameterRole::gate_up_bias) | bit(ParameterRole::down_bias);
  }
  if (traits.sinks) roles |= bit(ParameterRole::sinks);
  if (model.qkv_bias) roles |= bit(ParameterRole::qkv_bias);
  if (model.qk_norm) roles |= bit(ParameterRole::q_norm) | bit(ParameterRole::k_norm);
  if (model.output_norms)
    roles |= bit(ParameterRole::attention_output_norm) | bit(ParameterRole::mlp_output_norm);
  const LoraSteps adapters(config);
  for (const ParameterRole role : adapters.roles()) roles |= bit(role);
  return roles;
}

/// Units by position; nothing where the positions are not 0, 1, 2, ...
std::optional<std::vector<const PlanUnit*>> in_forward_order(const Program& program) {
  std::vector<const PlanUnit*> units(program.units.size(), nullptr);
  for (const PlanUnit& unit : program.units) {
    if (unit.position < 0 || std::cmp_greater_equal(unit.position, units.size()) ||
        units[static_cast<std::size_t>(unit.position)] != nullptr)
      return std::nullopt;
    units[static_cast<std::size_t>(unit.position)] = &unit;
  }
  return units;
}

}  // namespace

bool takes_tokens(const Plan& plan) {
  return std::ranges::any_of(ops_of(plan), [](const Op& op) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    return kernel != nullptr && (kernel->kind == KernelKind::embedding_forward ||
                                 kernel->kind == KernelKind::token_copy);
  });
}

bool receives(const Plan& plan) {
  return std::ranges::any_of(ops_of(plan), [](const Op& op) {
    const auto* collective = std::get_if<Collective>(&op.body);
    return collective != nullptr && collective->kind == CollectiveKind::recv;
  });
}

bool is_of_model(const Program& program, const ProgramIndex& index) {
  const ModelShape& model = program.config.model;
  const std::size_t ends = model.tied_embeddings ? 1 : 2;
  if (model.layers < 0 || program.units.size() != static_cast<std::uint64_t>(model.layers) + ends)
    return false;
  const auto units = in_forward_order(program);
  if (!units) return false;
  std::vector<Roles> roles(program.units.size(), 0);  // by position
  for (const Group& group : program.groups) {
    const auto unit = index.units.find(group.unit);
    if (!unit) return false;
    Roles& of_unit = roles[static_cast<std::size_t>(program.units[*unit].position)];
    for (const PlacedParameter& parameter : group.parameters) {
      if ((of_unit & bit(parameter.role)) != 0) return false;
      of_unit |= bit(parameter.role);
    }
  }
  std::array<Roles, Names<UnitKind>::values.size()> wanted_roles{};
  for (std::size_t k = 0; k < wanted_roles.size(); ++k)
    wanted_roles[k] = roles_of(static_cast<UnitKind>(k), program.config, false, false);
  std::array<std::array<Roles, 2>, 2> of_blocks{};  // by experts, by indexer
  for (const std::size_t experts : {0, 1})
    for (const std::size_t indexer : {0, 1})
      of_blocks[experts][indexer] =
          roles_of(UnitKind::block, program.config, experts == 1, indexer == 1);
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    UnitKind wanted = UnitKind::block;
    if (u == 0)
      wanted = model.tied_embeddings ? UnitKind::embedding_and_head : UnitKind::embedding;
    else if (u > static_cast<std::uint64_t>(model.layers))
      wanted = UnitKind::head;
    const auto layer = static_cast<std::int64_t>(u) - 1;
    const Roles expected =
        wanted == UnitKind::block
            ? of_blocks[model.has_experts(layer) ? 1 : 0][model.has_indexer(layer) ? 1 : 0]
            : wanted_roles[static_cast<std::size_t>(wanted)];
    if ((*units)[u]->kind != wanted || roles[u] != expected) return false;
  }
  return true;
}

bool computes_model(const Program& program, const ProgramIndex& index) {
  const bool takes_some = std::ranges::any_of(
      program.plans, [](const Plan& plan) { return takes_tokens(plan) || receives(plan); });
  return takes_some && is_of_model(program, index);
}

void check_axes(const Program& program, bool of_model, FindingList& findings) {
  const Mesh& mesh = program.config.mesh;
  const bool follows_tp =
      of_model && std::ranges::any_of(program.groups, [](const Group& group) {
        return std::ranges::find(group.shard, Axis::tp, &AxisPlacement::axis) != group.shard.end();
      });
  for (const auto* grid : {&mesh.dense, &mesh.experts})
    for (const auto& [axis, ranks] : *grid) {
      if (ranks == 1 || !findings.wants("MF113")) continue;
      const bool of_tokens = axis == Axis::cp;
      const bool is_followed = axis == Axis::tp ? follows_tp
                               : of_tokens      ? of_model
                                                : axis != Axis::etp;
      if (is_followed) continue;
      findings.add(
          {.rule = "MF113",
           .message = fmt::format("the mesh has {} ranks on {}, which share {}; the proofs follow "
                                  "only {}",
                                  ranks, to_string(axis),
                                  of_tokens ? "the tokens of a sequence" : "a block's weights",
                                  of_tokens ? "sequences that are whole on each rank"
                                            : "weights that are whole on each rank")});
    }
}

}  // namespace mfsdp
