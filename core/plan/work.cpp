#include "core/plan/work.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

/// Ranks of pp have other blocks for the same tokens; ranks of all other axes have other tokens.
bool splits_tokens(const MeshAxis& on) { return on.axis != Axis::pp; }

}  // namespace

std::int64_t ranks_on(const std::vector<Axis>& axes, const Mesh& mesh) {
  std::int64_t ranks = 1;
  for (const Axis axis : axes) ranks = checked_mul(ranks, mesh.size(axis));
  return ranks;
}

std::int64_t data_ranks(const Mesh& mesh) {
  return ranks_on({Axis::dp_outer, Axis::dp_shard}, mesh);
}

std::int64_t data_index(const Mesh& mesh, std::int64_t rank) {
  return mesh.index(rank, Axis::dp_outer) * mesh.size(Axis::dp_shard) +
         mesh.index(rank, Axis::dp_shard);
}

std::int64_t sequence_parts(const Mesh& mesh) { return mesh.size(Axis::cp); }

std::int64_t sequence_part(const Mesh& mesh, std::int64_t rank) {
  return mesh.index(rank, Axis::cp);
}

std::vector<Axis> token_axes(const Mesh& mesh) { return data_axes(mesh, {}); }

std::vector<Axis> loss_axes(const Mesh& mesh) {
  std::vector<Axis> axes = token_axes(mesh);
  std::erase(axes, Axis::tp);
  return axes;
}

std::optional<std::int64_t> tensor_dim(ParameterRole role) {
  switch (role) {
    case ParameterRole::embedding:
    case ParameterRole::gate_up:
    case ParameterRole::head:
    case ParameterRole::kv_b:
    case ParameterRole::q_b:
    case ParameterRole::qkv:
    case ParameterRole::qkv_bias:
    case ParameterRole::sinks:
    case ParameterRole::q_lora_b:
    case ParameterRole::k_lora_b:
    case ParameterRole::v_lora_b:
    case ParameterRole::qkv_lora_b:
    case ParameterRole::gate_lora_b:
    case ParameterRole::up_lora_b:
    case ParameterRole::gate_up_lora_b: return 0;
    case ParameterRole::attention_out:
    case ParameterRole::attention_out_lora_a:
    case ParameterRole::down:
    case ParameterRole::down_lora_a: return 1;
    default: return std::nullopt;
  }
}

Placement expert_shard() { return {{.axis = Axis::ep, .kind = PlacementKind::shard, .dim = 0}}; }

std::vector<Axis> data_axes(const Mesh& mesh, const Placement& shard) {
  const auto cuts = [&](Axis axis) {
    return std::ranges::any_of(shard, [&](const AxisPlacement& cut) {
      return cut.axis == axis && cut.kind == PlacementKind::shard;
    });
  };
  const bool of_experts = std::ranges::any_of(
      mesh.experts, [&](const MeshAxis& on) { return on.axis != Axis::pp && cuts(on.axis); });
  std::vector<Axis> axes;
  for (const MeshAxis& on : of_experts ? mesh.experts : mesh.dense)
    if (splits_tokens(on) && !cuts(on.axis)) axes.push_back(on.axis);
  return axes;
}

}  // namespace mfsdp
