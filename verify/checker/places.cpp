// Where elements of groups lie: the elements that each buffer states to hold, accepted only if its
// size, its dtype and the configuration agree, and the elements that an operand touches.
#include <ranges>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

/// Those on which there are several ranks.
Axes several(const PlanView& view, Axes axes) {
  std::erase_if(axes, [&](const std::string& axis) { return !view.mesh.contains(axis); });
  return axes;
}

/// The axes that a placement cuts. A placement that is not flat gives an axis that no group has.
Axes axes_of(const PlanView& view, const Json& placement) {
  Axes axes;
  for (const Json& on : placement)
    if (on.at("kind") != "flat" || view.mesh.contains(on.at("axis")))
      axes.push_back(on.at("kind") == "flat" ? on.at("axis") : Json("?"));
  return axes;
}

/// The configured one; but beside Muon, which has the matrices of blocks, AdamW all else.
void check_optimizer(const PlanView& view, const Group& group, const std::string& unit) {
  const std::string configured = view.json.at("config").at("optimizer");
  for (const auto& [begin, parameter] : group.parameters) {
    const bool other = configured == "muon" && (unit != "block" || parameter.shape.size() != 2);
    if (group.trains && group.optimizer != (other ? "adamw" : configured))
      refuse("group {}: is updated by another optimizer", view.groups.size());
  }
}

/// A group is cut inside first, along cp as along dp_shard, and outside too where the outer strategy
/// cuts anything; weights, gradients and states along those of these axes whose strategy cuts them.
/// Its shards are whole chunks.
void check_cuts(const PlanView& view, const Group& group, const Json& json) {
  static const std::map<std::string, Int> cuts_of{
      {"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}};
  static const std::map<std::string, Int> cut_from{{"weight", 3}, {"gradient", 2}, {"state", 1}};
  const Json& config = view.json.at("config");
  const bool own = group.of_experts && config.contains("expert_strategy");
  const Int inside = cuts_of.at(config.at(own ? "expert_strategy" : "strategy"));
  const Int outside = cuts_of.at(config.at("outer_strategy"));
  const std::string inner = group.of_experts ? "expt_dp" : "dp_shard";
  const std::string outer = group.of_experts ? "expt_dp_outer" : "dp_outer";
  const auto cut_by = [&](Int inner_least, Int outer_least) {
    Axes axes;
    if (inside >= inner_least) axes.push_back(inner);
    if (inside >= inner_least && !group.of_experts) axes.emplace_back("cp");
    if (outside >= outer_least) axes.push_back(outer);
    return several(view, axes);
  };
  // Groups that all ranks of tp have may be sharded over these too, after all else.
  const auto without_tp = [&](Axes axes) {
    if (!group.tp_dim && !axes.empty() && axes.back() == "tp") axes.pop_back();
    return axes;
  };
  if (without_tp(group.cut) != cut_by(0, 1))
    refuse("group {}: is sharded in another way than the strategy's", view.groups.size());
  for (auto [placed, least] : cut_from) {
    if (group.fp8 && placed == "weight") least = cut_from.at("state");
    if (without_tp(axes_of(view, json.value(placed, Json::array()))) != cut_by(least, least))
      refuse("group {}: its {} is sharded in another way than the strategy's", view.groups.size(),
             placed);
  }
  const Int chunk = json.at("chunk");
  const Int shard = group.elements / parts_of(view, group, std::ssize(group.cut));
  if (chunk < 1 || shard % chunk != 0)
    refuse("group {}: shards of {} elements are not a multiple of its chunk {}", view.groups.size(),
           shard, chunk);
}

/// The dim along which ranks of tp divide a group's parameters, if they do.
std::optional<Int> tp_dim_of(const PlanView& view, const Json& json) {
  for (const Int dim : {0, 1})
    if (json.value("shard", Json()) == Json{{{"axis", "tp"}, {"dim", dim}, {"kind", "shard"}}} &&
        view.dense.contains("tp"))
      return dim;
  return std::nullopt;
}

/// Whether a group's parameters are expert-parallel: by their roles, where the mesh has ranks for
/// it. They are cut along their first dim. Either all parameters of a group are, or none.
bool has_expert_parameters(const PlanView& view, const Json& json) {
  static const Names roles{"experts_down", "experts_down_bias", "experts_gate_up",
                           "experts_gate_up_bias"};
  const Json shard = json.value("shard", Json::array());
  const bool of_experts = !shard.empty() && !tp_dim_of(view, json);
  const Json wanted = {{{"axis", "ep"}, {"dim", 0}, {"kind", "shard"}}};
  bool right = !of_experts || shard == wanted;
  for (const Json& entry : json.at("parameters"))
    right = right && of_experts == (view.expert_grid.contains("ep") &&
                                    roles.contains(entry.at("role").get<std::string>()));
  if (!right)
    refuse("group {}: divides other parameters than those of experts over ep", view.groups.size());
  return of_experts;
}

void read_group(PlanView& view, const Json& json) {
  const Json& unit = view.json.at("units")[view.at("units", json, "unit")];
  Group group{unit.at("position"), json.at("elements"), json.value("requires_grad", false),
              has_expert_parameters(view, json), several(view, json.value("cut", Axes{}))};
  group.optimizer = json.value("optimizer", "");
  group.fp8 = json.value("fp8", false);
  group.tp_dim = tp_dim_of(view, json);
  // Ranks that differ on any axis but tp have other tokens. Ranks with the same parameters sum over
  // it; only experts differ between ranks, along ep.
  for (const auto& [axis, ranks] : group.of_experts ? view.expert_grid : view.dense)
    if (axis != "ep" && axis != "tp") group.reduce[axis] = 1;
  const Axes reduce = several(view, json.value("reduce", Axes{}));
  const Names cuts(group.cut.begin(), group.cut.end());
  const Names sums(reduce.begin(), reduce.end());
  if (cuts.size() != group.cut.size() || sums.size() != reduce.size() ||
      group.elements % parts_of(view, group, std::ssize(group.cut)) != 0 ||
      reduce.size() != group.reduce.size() ||
      !std::ranges::all_of(reduce, [&](const auto& axis) { return group.reduce.contains(axis); }))
    refuse("group {}: is sharded unevenly, or summed over other axes", view.groups.size());
  for (const Json& entry : json.at("parameters")) {
    Parameter made{entry.at("role"), entry.at("offset"), 1, entry.at("shape")};
    for (const Int dim : made.shape) made.end = times(made.end, dim);
    made.end = plus(made.begin, made.end);
    if (made.end > group.elements || made.begin == made.end ||
        !group.parameters.emplace(made.begin, made).second)
      refuse("group {}: parameter {} is not inside", view.groups.size(), entry.at("name").dump());
  }
  check_optimizer(view, group, unit.at("kind"));
  check_cuts(view, group, json);
  Int end = 0;  // of the parameter before
  for (const auto& [begin, parameter] : group.parameters)
    if (begin < std::exchange(end, parameter.end))
      refuse("group {}: parameters overlap at element {}", view.groups.size(), begin);
  view.groups.push_back(std::move(group));
}

constexpr Int kBlock = 256;  ///< elements that share a scale

/// The dtype and block size that the configuration requires of a buffer of this kind.
Kept form_of(const Json& config, const Home& home, bool persistent, const Group& group) {
  if (home.kind == "cast_parameter") return {group.fp8 ? "fp8_e4m3" : ""};
  if (home.kind == "parameter") return {config.at(group.fp8 ? "main_dtype" : "param_dtype")};
  if (home.kind == "main_parameter") return {config.at("main_dtype")};
  if (home.kind == "gradient") return {config.at(persistent ? "grad_dtype" : "reduce_dtype")};
  const auto kept = kept_states(config, group.optimizer);
  const auto found = kept.find(home.name);
  return found == kept.end() ? Kept{} : found->second;
}

/// Slices of groups, consecutively, or one whole group on each rank: then all groups have the same
/// layout.
Home home_of_directions(const PlanView& view, const Json& json, Home home, const Axes& cut) {
  const Json& holds = json.at("holds");
  const Json& weights = view.json.at("config").at("param_dtype");
  home.distributed_over = holds.value("dealt", "");
  if (home.distributed_over.empty())
    std::ranges::sort(home.groups, {}, &std::pair<Index, Int>::second);
  const auto wrong = [&] {
    refuse("buffer {}: does not hold update directions as it states", json.at("name").dump());
  };
  if (json.value("persistent", false) || home.groups.empty() ||
      (!home.distributed_over.empty() && !cut.empty()) ||
      json.at("dtype") != (weights == "fp16" ? Json("bf16") : weights))
    wrong();
  const Group& first = view.groups.at(home.groups[0].first);
  const Int ranks = home.distributed_over.empty() ? parts_of(view, first, home.cuts)
                                                  : view.ranks_on(home.distributed_over);
  const Int slice = times(first.elements, size_of(json.at("dtype"))) /
                    (home.distributed_over.empty() ? parts_of(view, first, home.cuts) : 1);
  Names seen;
  Int place = 0;
  for (const auto& [g, offset] : home.groups) {
    const Group& group = view.groups.at(g);
    bool alike = group.elements == first.elements && group.cut == first.cut &&
                 group.parameters.size() == first.parameters.size();
    for (const auto& [begin, parameter] : group.parameters)
      alike = alike && first.parameters.contains(begin) &&
              first.parameters.at(begin).role == parameter.role &&
              first.parameters.at(begin).shape == parameter.shape;
    if (!alike || group.optimizer != "muon" || !seen.insert(std::to_string(g)).second ||
        cut.size() > group.cut.size() || !std::equal(cut.begin(), cut.end(), group.cut.begin()) ||
        offset != (home.distributed_over.empty() ? times(place++, slice) : 0))
      wrong();
  }
  if (std::ssize(home.groups) > ranks ||
      json.at("size") != (home.distributed_over.empty() ? times(ranks, slice) : slice))
    wrong();
  return home;
}

Home home_of(const PlanView& view, const Json& json) {
  Home home;
  if (!json.contains("holds")) return home;
  const Json& holds = json.at("holds");
  home.kind = holds.at("kind");
  home.name = holds.value("port", holds.value("state", ""));
  if (home.kind == "port") return home;
  const Axes cut = axes_of(view, holds.value("placement", Json::array()));
  home.cuts = std::ssize(cut);
  const bool persistent = json.value("persistent", false);
  const bool gathered = holds_weights(home) && !persistent;
  const bool casts = home.kind == "cast_parameter";
  const char* kept = holds_weights(home)       ? "weight"
                     : home.kind == "gradient" ? "gradient"
                                               : "state";
  Int end = 0;  // of the group before
  for (const Json& held : holds.at("groups"))
    home.groups.emplace_back(view.at("groups", held, "group"), held.at("offset"));
  if (home.kind == "direction") return home_of_directions(view, json, home, cut);
  home.unsummed_over = holds.value("dealt", "");
  std::ranges::sort(home.groups, {}, &std::pair<Index, Int>::second);
  for (const auto& [g, offset] : home.groups) {
    const Group& group = view.groups.at(g);
    const Kept form = form_of(view.json.at("config"), home, persistent, group);
    home.block = form.block;
    const Json& stated = view.json.at("groups")[g];
    const bool is_slice = cut.size() <= group.cut.size() &&
                          std::equal(cut.begin(), cut.end(), group.cut.begin()) &&
                          (!persistent || (casts && cut.empty()) ||
                           cut == axes_of(view, stated.value(kept, Json::array())));
    if (!is_slice || offset < end || (home.kind != "parameter" && !group.trains) ||
        json.at("dtype") != form.dtype ||
        group.elements / parts_of(view, group, home.cuts) % home.block != 0)
      refuse("buffer {}: does not hold the shard that it states", json.at("name").dump());
    const Int ranks = home.unsummed_over.empty() ? 1 : view.ranks_on(home.unsummed_over);
    const Int elements = times(ranks, group.elements / parts_of(view, group, home.cuts));
    if (!home.unsummed_over.empty() && (home.kind != "gradient" || persistent || cut.empty() ||
                                        cut.back() != home.unsummed_over || home.groups.size() > 1))
      refuse("buffer {}: does not hold each rank's contribution as it states",
             json.at("name").dump());
    end = plus(offset, times(elements / home.block, size_of(json.at("dtype"))));
  }
  // Gathered weights may be aligned to more than they have.
  if (end > json.at("size") || (end != json.at("size") && !gathered) || home.groups.empty() ||
      (home.groups.size() > 1 && !holds_weights(home)))
    refuse("buffer {}: does not hold the shard that it states", json.at("name").dump());
  return home;
}

}  // namespace

std::map<std::string, Kept> kept_states(const Json& config, const std::string& optimizer) {
  Names names;
  if (optimizer == "adamw") names = {"exp_avg", "exp_avg_sq"};
  if (optimizer == "lion") names = {"exp_avg"};
  if (optimizer == "muon") names = {"momentum_buffer"};
  if (names.empty() && optimizer != "sgd")
    refuse("config: this checker does not know the optimizer");
  const std::string full = config.at("param_dtype") == "fp64" ? "fp64" : "fp32";
  const std::string as = config.value("state_dtype", "full");
  std::map<std::string, Kept> kept;
  for (const std::string& name : names) {
    kept[name] = {as == "bf16" ? "bf16" : as == "blockwise8" ? "uint8" : full};
    if (as == "blockwise8") kept[name + "_scale"] = {"fp32", kBlock};
  }
  return kept;
}

void read_places(PlanView& view) {
  for (const Json& json : view.json.at("groups")) read_group(view, json);
  std::set<std::tuple<std::string, std::string, Index>> kept;
  for (const Json& json : view.json.at("buffers")) {
    const Home& home = view.homes.emplace_back(home_of(view, json));
    if (!json.value("persistent", false)) continue;
    for (const auto& [group, at] : home.groups)
      if (!kept.emplace(home.kind, home.name, group).second)
        refuse("buffer {}: holds the same state as another buffer", json.at("name").dump());
  }
}

Int parts_of(const PlanView& view, const Group& group, Int kind) {
  Int parts = 1;
  for (const auto& axis : group.cut)
    if (kind-- > 0) parts = times(parts, view.mesh.at(axis));
  return parts;
}

Spot locate(const PlanView& view, const Operand& operand) {
  const Home& home = view.homes[operand.buffer];
  if (home.groups.empty() || !operand.dense ||
      view.json.at("buffers")[operand.buffer].at("dtype") != Json(operand.dtype))
    return {};
  auto [g, start] = home.groups[0];
  for (const auto& [other, at] : home.groups)
    if (at <= operand.offset && at >= start) std::tie(g, start) = std::pair(other, at);
  const Group& group = view.groups[g];
  const Int size = size_of(operand.dtype);
  const Int byte = operand.offset - start;
  const Int end = times(byte / size + operand.elements, home.block);
  if (!home.unsummed_over.empty()) {  // of all ranks, or of none
    const Int all =
        times(view.ranks_on(home.unsummed_over), group.elements / parts_of(view, group, home.cuts));
    const bool whole = byte == 0 && end == all && operand.rank_strides.empty();
    return whole ? Spot{g, home.cuts, 0, group.elements} : Spot{};
  }
  PerAxis strides;
  for (Int kind = home.cuts; kind <= std::ssize(group.cut); ++kind) {
    const Int elements = group.elements / parts_of(view, group, kind);
    if (home.block > 1 && kind > home.cuts) break;  // scales lie where they are kept
    if (kind > home.cuts) strides[group.cut[static_cast<std::size_t>(kind - 1)]] = elements * size;
    if (byte == 0 && end == elements && operand.rank_strides == strides)
      return {g, kind, 0, group.elements};
  }
  const bool inside =
      home.block == 1 && home.cuts == 0 && operand.rank_strides.empty() && end <= group.elements;
  return inside && byte % size == 0 ? Spot{g, 0, byte / size, end} : Spot{};
}

void check_group(const PlanView& view, const Op& op) {
  if (!op.json->contains("group")) {
    if (op.does == "update" || op.does == "momentum")
      refuse("{}: is an update, but states no group", op.place());
    return;
  }
  const Index stated = view.at("groups", *op.json, "group");
  for (const Operand& operand : op.operands)
    if (const Spot spot = locate(view, operand); spot.group != kNone && spot.group != stated)
      refuse("{}: operand '{}' is of parameter group {}; expected {}, which the op states",
             op.place(), operand.role, spot.group, stated);
}

void check_unit(const PlanView& view, const Op& op) {
  if (op.kind != "kernel" || kMovers.contains(op.does) || !op.json->contains("unit")) return;
  const Json& stated = view.json.at("units")[view.at("units", *op.json, "unit")];
  for (const Operand& operand : op.operands)
    if (const Spot spot = locate(view, operand);
        spot.group != kNone && stated.at("position") != view.groups[spot.group].unit)
      refuse("{}: operand '{}' belongs to another unit than the op states", op.place(),
             operand.role);
}

void check_gradient_memory(const PlanView& view, const Op& op) {
  static const Names others{"accumulate",   "cast",      "momentum", "newton_schulz",
                            "norm_partial", "sum_ranks", "update",   "zero_padding"};
  if (op.kind != "kernel" || others.contains(op.does)) return;
  for (const Operand& operand : op.operands)
    if (view.homes[operand.buffer].kind == "gradient" && operand.role != "weight_grad")
      refuse("{}: '{}' is in memory for gradients", op.place(), operand.role);
}

namespace {

/// Whether each rank's part is where a gather or a scatter has it in the whole: neighbours differ
/// on the communicator's last axis.
bool is_own_part(const PlanView& view, const Op& op, const Operand& part, const Operand& whole) {
  PerAxis strides;
  Int step = times(part.elements, size_of(part.dtype));
  // Members are counted as ranks are, whatever order a communicator has its axes in.
  const Names axes = view.communicator_of(op).at("axes");
  for (const std::string& axis : std::views::reverse(view.order)) {
    if (!axes.contains(axis)) continue;
    strides[axis] = step;
    step = times(step, view.ranks_on(axis));
  }
  return part.dense && whole.dense && part.offset == whole.offset && whole.rank_strides.empty() &&
         part.rank_strides == strides;
}

bool is_in_place(const PlanView& view, const Op& op, const Operand& a, const Operand& b) {
  if (op.does == "all_gather") return is_own_part(view, op, a, b);
  if (op.does == "reduce_scatter") return is_own_part(view, op, b, a);
  return op.does == "all_reduce" && a.dense && b.dense && a.offset == b.offset &&
         a.elements == b.elements && a.rank_strides == b.rank_strides;
}

}  // namespace

void check_apart(const PlanView& view, const Op& op) {
  for (const Operand& a : op.operands)
    for (const Operand& b : op.operands)
      if (&a < &b && a.buffer == b.buffer && a.begin < b.end && b.begin < a.end &&
          (a.writes || b.writes) && !is_in_place(view, op, a, b))
        refuse("{}: '{}' and '{}' share bytes that it writes", op.place(), a.role, b.role);
}

}  // namespace mfsdp::checker
