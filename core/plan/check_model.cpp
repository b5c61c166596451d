#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/plan/check.hpp"
#include "core/plan/config_fields.hpp"
#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {
namespace {

Result<void> check_parameter(const PlacedParameter& placed, const Group& group,
                             const Parameter& parameter, const PlanConfig& config,
                             const std::string& where) {
  if (placed.role != parameter.role)
    return fail(where + ".role",
                fmt::format("expected {}, as config.model has '{}', got {}",
                            to_string(parameter.role), placed.name, to_string(placed.role)));
  if (const auto shape = whole_shape(placed.shape, group.shard, config.mesh);
      shape != parameter.shape)
    return fail(where + ".shape",
                fmt::format("expected [{}], as config.model has '{}', got [{}]",
                            fmt::join(parameter.shape, ", "), placed.name, fmt::join(shape, ", ")));
  if (const bool decays = config.decays(parameter.name, parameter.decay); placed.decay != decays)
    return fail(where + ".decay",
                fmt::format("expected {} of '{}', got {}", decays, placed.name, placed.decay));
  if (const auto rate = config.rate_of(parameter.name); placed.rate != rate) {
    const auto text = [](const std::optional<Rational>& value) {
      return value ? fmt::format("{}/{}", value->num, value->den) : "none";
    };
    return fail(where + ".rate", fmt::format("expected {}, as config.lr_scale has of '{}', got {}",
                                             text(rate), placed.name, text(placed.rate)));
  }
  return {};
}

/// Packed parameters begin at multiples of 64 elements; those of megatron_fsdp at multiples of a
/// row (core/shard/flat_layout.hpp).
Result<void> check_layout(const Group& group, const PlanConfig& config, const std::string& where) {
  const std::int64_t unit =
      std::max(kWidestChunk, config.state_dtype == StateDtype::blockwise8 ? kStateBlock : 1);
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const PlacedParameter& placed = group.parameters[p];
    const bool packed = config.layout == LayoutRule::packed;
    if (packed && placed.offset % unit != 0)
      return fail(fmt::format("{}.parameters[{}].offset", where, p),
                  fmt::format("expected a multiple of {}, as config.layout packed has it, got {}",
                              unit, placed.offset));
    const std::int64_t row =
        placed.shape.empty() ? 1 : product_of(std::span(placed.shape).subspan(1));
    if (!packed && row > 0 && group.chunk % row != 0)
      return fail(where + ".chunk",
                  fmt::format("expected a multiple of the {} elements of a row of '{}', as "
                              "config.layout {} has it, got {}",
                              row, placed.name, to_string(config.layout), group.chunk));
  }
  return {};
}

/// Checks that units are those of the configured model, each once, in any order.
Result<void> check_units(const Program& program, const Model& model) {
  if (program.units.size() != model.units.size())
    return fail("units", fmt::format("expected {}, as config.model has, got {}", model.units.size(),
                                     program.units.size()));
  std::vector<bool> taken(model.units.size(), false);
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const PlanUnit& unit = program.units[u];
    const std::string where = fmt::format("units[{}]", u);
    if (unit.position < 0 || std::cmp_greater_equal(unit.position, model.units.size()))
      return fail(where + ".position", fmt::format("expected 0 to {}, as config.model has, got {}",
                                                   model.units.size() - 1, unit.position));
    const auto position = static_cast<std::size_t>(unit.position);
    if (taken[position])
      return fail(where + ".position", fmt::format("{} appears twice", unit.position));
    taken[position] = true;
    if (unit.kind != model.units[position].kind)
      return fail(
          where + ".kind",
          fmt::format("expected {}, as config.model has at position {}, got {}",
                      to_string(model.units[position].kind), position, to_string(unit.kind)));
  }
  return {};
}

/// By the position of their unit and their role there.
using ByRole = std::map<std::pair<std::int64_t, ParameterRole>, const Parameter*>;

/// Matches a plan's parameters, which may have other names, with the model's. None if the plan has
/// another model.
std::optional<ByRole> matched_by_role(const Program& program, const IdIndex<UnitId>& units,
                                      const Model& model) {
  ByRole all;
  for (const Parameter& parameter : model.parameters)
    if (!all.emplace(std::pair(parameter.unit.value, parameter.role), &parameter).second)
      return std::nullopt;
  std::set<ByRole::key_type> placed;
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters) {
      const ByRole::key_type key{program.units[units[group.unit]].position, parameter.role};
      if (!all.contains(key) || !placed.insert(key).second) return std::nullopt;
    }
  return placed.size() == all.size() ? std::optional(std::move(all)) : std::nullopt;
}

/// Checks that groups have each parameter of the configured model once, with its properties. A plan
/// that was written by hand may have other names, or another model.
Result<void> check_parameters(const Program& program, const Model& model) {
  std::unordered_map<std::string_view, const Parameter*> missing;
  for (const Parameter& parameter : model.parameters) missing.emplace(parameter.name, &parameter);
  const auto is_known = [&](const PlacedParameter& placed) {
    return missing.contains(placed.name);
  };
  const bool by_hand = std::ranges::none_of(program.groups, [&](const Group& group) {
    return std::ranges::any_of(group.parameters, is_known);
  });
  const IdIndex<UnitId> units(program.units);
  const std::optional<ByRole> by_role =
      by_hand ? matched_by_role(program, units, model) : std::optional<ByRole>();
  if (by_hand && !by_role) return {};
  MFSDP_TRY(check_units(program, model));
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    const std::int64_t position = program.units[units[group.unit]].position;
    MFSDP_TRY(check_layout(group, program.config, fmt::format("groups[{}]", g)));
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      const PlacedParameter& placed = group.parameters[p];
      const std::string where = fmt::format("groups[{}].parameters[{}]", g, p);
      const auto found = missing.find(
          by_role ? std::string_view(by_role->at({position, placed.role})->name) : placed.name);
      if (found == missing.end())
        return fail(where + ".name",
                    fmt::format("config.model has no (other) parameter '{}'", placed.name));
      MFSDP_TRY(check_parameter(placed, group, *found->second, program.config, where));
      if (std::cmp_not_equal(found->second->unit.value, position))
        return fail(fmt::format("groups[{}].unit", g),
                    fmt::format("expected the unit of position {}, as config.model has '{}', got "
                                "that of {}",
                                found->second->unit.value, placed.name, position));
      if (program.config.is_frozen(found->second->name) == group.requires_grad)
        return fail(fmt::format("groups[{}].requires_grad", g),
                    fmt::format("expected {} of '{}', as config.freeze has it",
                                !group.requires_grad, placed.name));
      missing.erase(found);
    }
  }
  return {};
}

/// Checks that recompute full has exactly the blocks that recompute attention before its backward.
Result<void> check_recompute(const Program& program) {
  const IdIndex<UnitId> units(program.units);
  std::map<UnitId, std::pair<bool, bool>> attention;  // by block: has a backward, is recomputed
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan)) {
      const auto* kernel = std::get_if<Kernel>(&op.body);
      if (kernel == nullptr || !op.unit) continue;
      auto& [backward, again] = attention[*op.unit];
      backward = backward || kernel->kind == KernelKind::attention_backward;
      again =
          again || (kernel->kind == KernelKind::attention_forward && op.phase == Phase::recompute);
    }
  const RecomputePolicy& policy = program.config.recompute;
  for (const auto& [id, is] : attention) {
    const auto& [backward, again] = is;
    const PlanUnit& unit = program.units[units[id]];
    const auto blocks_before = std::ranges::count_if(program.units, [&](const PlanUnit& other) {
      return other.kind == UnitKind::block && other.position < unit.position;
    });
    const bool full = policy.kind == Recompute::full &&
                      (policy.full_blocks == 0 || blocks_before < policy.full_blocks);
    if (backward && again != full)
      return fail("config.recompute",
                  fmt::format("is {}, but attention of unit '{}' is {}recomputed",
                              flag_text(policy), unit.name, again ? "" : "not "));
  }
  return {};
}

/// The number of ranks that have different elements of a group's parameters.
std::int64_t shards_of(const Group& group, const Mesh& mesh) {
  std::int64_t shards = 1;
  for (const AxisPlacement& on : group.shard) shards = checked_mul(shards, mesh.size(on.axis));
  return shards;
}

std::int64_t microbatches_of(const Plan& plan) {
  std::int64_t in_all = 0;
  for (const Segment& segment : plan.segments)
    in_all = checked_add(in_all, checked_mul(segment.microbatches, segment.repeat));
  return in_all;
}

}  // namespace

Result<void> check_model(const Program& program) {
  std::int64_t elements = 0;
  for (const Group& group : program.groups)
    elements = checked_add(
        elements, checked_mul(group.used_elements(), shards_of(group, program.config.mesh)));
  const Model model = make_model(program.config);
  const std::int64_t expected = model.parameter_count();
  if (elements != expected)
    return fail("groups",
                fmt::format("hold {} parameters where config.model has {}", elements, expected));
  MFSDP_TRY(check_parameters(program, model));
  MFSDP_TRY(check_recompute(program));
  const Plan* train = program.find_plan(PlanRole::train);
  if (train == nullptr) return fail("plans", "expected a plan of role train");
  if (const std::int64_t in_all = microbatches_of(*train); in_all != program.config.microbatches)
    return fail("config.microbatches",
                fmt::format("expected {} as the segments of plan \"{}\" have, got {}", in_all,
                            train->name, program.config.microbatches));
  for (const Plan& plan : program.plans)
    if (const std::int64_t in_all = microbatches_of(plan); &plan != train && in_all > 1)
      return fail("plans", fmt::format("the segments of plan \"{}\" have {} microbatches, expected "
                                       "one",
                                       plan.name, in_all));
  return {};
}

}  // namespace mfsdp
