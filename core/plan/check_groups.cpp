#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/check.hpp"
#include "core/plan/index.hpp"
#include "core/plan/nf4.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

/// The axes of more than one rank; others do not shard.
std::vector<Axis> several(std::vector<Axis> axes, const Mesh& mesh) {
  std::erase_if(axes, [&](Axis axis) { return mesh.size(axis) == 1; });
  return axes;
}

std::string names_of(const std::vector<Axis>& axes) {
  return fmt::format(
      "[{}]",
      fmt::join(axes | std::views::transform([](Axis axis) { return to_string(axis); }), ", "));
}

class GroupCheck {
 public:
  explicit GroupCheck(const Program& program)
      : program_(program),
        groups_(program.groups),
        dense_(cuts_of(program.config)),
        experts_(expert_cuts_of(program.config)) {}

  Result<void> run() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b)
      if (program_.buffers[b].holds)
        MFSDP_TRY(check_contents(program_.buffers[b], fmt::format("buffers[{}].holds", b)));
    MFSDP_TRY(check_tensor_ranks());
    for (std::size_t g = 0; g < program_.groups.size(); ++g)
      MFSDP_TRY(check_group(program_.groups[g], fmt::format("groups[{}]", g)));
    return {};
  }

 private:
  [[nodiscard]] const PlanConfig& config() const { return program_.config; }
  [[nodiscard]] const Mesh& mesh() const { return program_.config.mesh; }

  static Result<void> check_placement(const Placement& placement, const std::string& where) {
    for (std::size_t i = 0; i < placement.size(); ++i) {
      const AxisPlacement& on = placement[i];
      const std::string place = fmt::format("{}[{}]", where, i);
      if (std::ranges::count(placement, on.axis, &AxisPlacement::axis) > 1)
        return fail(place + ".axis", fmt::format("{} is repeated", to_string(on.axis)));
      if (on.dim.has_value() != (on.kind == PlacementKind::shard))
        return fail(place + ".dim", on.dim ? "expected only of kind shard" : "missing");
    }
    return {};
  }

  // ---- buffers --------------------------------------------------------------------------------

  /// Whether the configured optimizer, or the one for parameters that it does not support, keeps a
  /// state of that name.
  [[nodiscard]] bool is_kept(std::string_view state) const {
    const auto keeps = [&](Optimizer optimizer) {
      const std::vector<KeptState> kept = config().kept_states(optimizer);
      return std::ranges::find(kept, state, &KeptState::name) != kept.end();
    };
    return keeps(config().optimizer) ||
           (orthogonalises(config().optimizer) && keeps(Optimizer::adamw));
  }

  Result<void> check_contents(const Buffer& buffer, const std::string& where) {
    const Contents& holds = *buffer.holds;
    const bool is_state = holds.kind == ContentKind::optimizer_state;
    if (holds.state.empty() == is_state)
      return fail(where + ".state", is_state ? "missing" : "expected only of kind optimizer_state");
    if (is_state && !is_kept(holds.state))
      return fail(where + ".state", fmt::format("{} keeps no state '{}'",
                                                to_string(config().optimizer), holds.state));
    if (holds.dealt && holds.kind != ContentKind::direction && holds.kind != ContentKind::gradient)
      return fail(where + ".dealt", "expected only of kind direction or gradient");
    MFSDP_TRY(check_placement(holds.placement, where + ".placement"));
    for (std::size_t i = 0; i < holds.groups.size(); ++i) {
      const HeldGroup& held = holds.groups[i];
      std::int64_t elements = program_.groups[groups_[held.group]].elements;
      for (const Axis axis : flat_axes(holds.placement)) elements /= mesh().size(axis);
      elements = ceil_div(elements, block_of_state(holds.state));
      const bool stored = program_.groups[groups_[held.group]].quantised &&
                          holds.kind == ContentKind::parameter && buffer.dtype == DType::uint8;
      const std::int64_t bytes =
          stored ? nf4_bytes(elements) : bytes_of(elements, buffer.dtype).value;
      const std::int64_t end = checked_add(held.offset, bytes);
      if (end > buffer.size.value)
        return fail(fmt::format("{}.groups[{}]", where, i),
                    fmt::format("ends at byte {} of buffer '{}', which has {}", end, buffer.name,
                                buffer.size.value));
    }
    return {};
  }

  // ---- tensor parallelism ---------------------------------------------------------------------

  [[nodiscard]] static bool is_cut_by(const Group& group, Axis axis) {
    return std::ranges::find(group.shard, axis, &AxisPlacement::axis) != group.shard.end();
  }

  /// Ranks on tp have parts of weights, and each element of a state on one of them.
  [[nodiscard]] Result<void> check_tensor_ranks() const {
    if (mesh().size(Axis::tp) == 1) return {};
    const auto is_cut = [](const Group& group) { return is_cut_by(group, Axis::tp); };
    if (std::ranges::none_of(program_.groups, is_cut))
      return fail("config.mesh", "has ranks on tp, but no group is cut along tp");
    if (config().exact_sums || orthogonalises(config().optimizer))
      return fail("config.mesh", "has ranks on tp: expected neither exact sums nor Muon");
    return {};
  }

  // ---- groups ---------------------------------------------------------------------------------

  Result<void> check_group(const Group& group, const std::string& where) const {
    MFSDP_TRY(check_optimizer(group, where));
    if (group.quantised && (config().base_dtype == BaseDType::compute || group.requires_grad ||
                            group.chunk % kNf4Elements != 0))
      return fail(where + ".quantised",
                  fmt::format("expected only of frozen groups with chunks of {} elements, under "
                              "config.base_dtype nf4",
                              kNf4Elements));
    if (group.fp8 && (!config().fp8_gather || !group.requires_grad || group.quantised ||
                      group.parameters.size() != 1 || group.parameters[0].shape.size() != 2))
      return fail(where + ".fp8",
                  "expected only of groups of one matrix that train, under config.fp8_gather");
    for (const auto& [placement, name] :
         {std::pair{&group.weight, ".weight"}, std::pair{&group.gradient, ".gradient"},
          std::pair{&group.state, ".state"}, std::pair{&group.shard, ".shard"}})
      MFSDP_TRY(check_placement(*placement, where + name));
    for (const AxisPlacement& on : group.shard) {
      const std::int64_t dims = on.axis == Axis::ep ? 1 : on.axis == Axis::tp ? 2 : 0;
      const auto lacks_it = [&](const PlacedParameter& p) {
        return std::ssize(p.shape) <= *on.dim;
      };
      if (group.shard.size() > 1 || on.kind != PlacementKind::shard || *on.dim < 0 ||
          *on.dim >= dims || std::ranges::any_of(group.parameters, lacks_it))
        return fail(where + ".shard",
                    "expected parameters that are cut along their first dim over ep, or along one "
                    "of their first two over tp");
    }
    MFSDP_TRY(check_room(group, where));
    MFSDP_TRY(check_shards(group, where));
    return check_cuts(group, where);
  }

  Result<void> check_optimizer(const Group& group, const std::string& where) const {
    if (group.optimizer.has_value() != group.requires_grad)
      return fail(where + ".optimizer",
                  group.requires_grad ? "missing" : "expected none where requires_grad is false");
    const Optimizer configured = config().optimizer;
    const bool beside = orthogonalises(configured) && group.optimizer == Optimizer::adamw;
    if (group.optimizer && *group.optimizer != configured && !beside)
      return fail(where + ".optimizer",
                  fmt::format("expected {}, as config.optimizer has, got {}", to_string(configured),
                              to_string(*group.optimizer)));
    return {};
  }

  Result<void> check_room(const Group& group, const std::string& where) const {
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      const PlacedParameter& parameter = group.parameters[p];
      if (checked_add(parameter.offset, parameter.elements()) > group.elements)
        return fail(fmt::format("{}.parameters[{}]", where, p), "ends outside its group");
      if (config().state_dtype == StateDtype::blockwise8 && group.optimizer &&
          parameter.offset % kStateBlock != 0)
        return fail(fmt::format("{}.parameters[{}].offset", where, p),
                    fmt::format("expected a multiple of the {} elements that share a scale with "
                                "config.state_dtype blockwise8, got {}",
                                kStateBlock, parameter.offset));
    }
    if (group.used_elements() > group.elements)
      return fail(where + ".parameters", "hold more elements than their group");
    return {};
  }

  /// Shards have equal sizes and consist of whole chunks.
  Result<void> check_shards(const Group& group, const std::string& where) const {
    std::int64_t shards = 1;
    for (const Axis axis : group.cut) shards = checked_mul(shards, mesh().size(axis));
    if (group.elements % shards != 0)
      return fail(where + ".elements",
                  fmt::format("expected a multiple of the {} parts that `cut` makes", shards));
    const std::int64_t shard = group.elements / shards;
    if (group.chunk < 1 || shard % group.chunk != 0)
      return fail(where + ".chunk",
                  fmt::format("expected a number of elements that divides the {} of each of its {} "
                              "shards, got {}",
                              shard, shards, group.chunk));
    return {};
  }

  /// Groups are sharded along the axes of the strategies, in their order.
  Result<void> check_cuts(const Group& group, const std::string& where) const {
    const bool dealt = is_cut_by(group, Axis::ep);
    const Cuts& cuts = dealt ? experts_ : dense_;
    const auto check = [&](std::vector<Axis> stated, const std::vector<Axis>& configured,
                           const char* field) -> Result<void> {
      stated = several(std::move(stated), mesh());
      // Parameters that are whole on tp may be sharded along it too, after all other axes.
      if (!is_cut_by(group, Axis::tp) && !stated.empty() && stated.back() == Axis::tp)
        stated.pop_back();
      if (stated == configured) return {};
      const Strategy strategy = dealt ? config().strategy_of_experts() : config().strategy;
      return fail(
          where + field,
          fmt::format("expected {} to be cut, as config.{} {} with config.outer_strategy "
                      "{} has it on this mesh, got {}",
                      names_of(configured),
                      dealt && config().expert_strategy ? "expert_strategy" : "strategy",
                      to_string(strategy), to_string(config().outer_strategy), names_of(stated)));
    };
    MFSDP_TRY(check(group.cut, cuts.layout, ".cut"));
    // Weights whose casts are gathered are the main ones.
    const Placement& weight = group.fp8 ? cuts.state : cuts.weight;
    MFSDP_TRY(check(flat_axes(group.weight), flat_axes(weight), ".weight"));
    MFSDP_TRY(check(flat_axes(group.gradient), flat_axes(cuts.gradient), ".gradient"));
    return check(flat_axes(group.state), flat_axes(cuts.state), ".state");
  }

  const Program& program_;
  IdIndex<GroupId> groups_;
  Cuts dense_;
  Cuts experts_;
};

}  // namespace

Result<void> check_groups(const Program& program) { return GroupCheck(program).run(); }

}  // namespace mfsdp
