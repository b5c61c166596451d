#include "core/shard/groups.hpp"

#include <map>

namespace mfsdp {
namespace {

/// Blocks repeat: layouts are made once per list of sizes.
class LayoutCache {
 public:
  LayoutCache(LayoutRule rule, std::int64_t ranks) : rule_(rule), ranks_(ranks) {}

  const FlatLayout& get(const std::vector<LayoutItem>& items) {
    std::vector<std::int64_t> key;
    for (const LayoutItem& item : items) key.insert(key.end(), {item.elements, item.row});
    auto found = layouts_.find(key);
    if (found == layouts_.end())
      found = layouts_.emplace(std::move(key), make_flat_layout(rule_, items, ranks_)).first;
    return found->second;
  }

 private:
  LayoutRule rule_;
  std::int64_t ranks_;
  std::map<std::vector<std::int64_t>, FlatLayout> layouts_;
};

bool shards(Placement placement) { return placement == Placement::shard; }

/// Part `index` of `parts` equal ones.
Interval nth_part(const Interval& whole, std::int64_t index, std::int64_t parts) {
  const std::int64_t size = whole.size() / parts;
  return {.begin = whole.begin + index * size, .end = whole.begin + (index + 1) * size};
}

}  // namespace

std::int64_t layout_ranks(const PlanConfig& config) {
  return config.outer_strategy == Strategy::optim ? config.mesh.world_size() : config.mesh.dp_shard;
}

std::vector<Group> make_groups(const Model& model, const PlanConfig& config) {
  LayoutCache layouts(config.layout, layout_ranks(config));
  std::vector<Group> groups;
  for (const Unit& unit : model.units) {
    std::int64_t full_offset = 0;
    for (const bool requires_grad : {true, false}) {
      std::vector<LayoutItem> items;
      Group group;
      group.id = GroupId(groups.size());
      group.unit = unit.id;
      group.dtype = config.param_dtype;
      group.requires_grad = requires_grad;
      for (const std::size_t p : unit.parameters) {
        const Parameter& parameter = model.parameters[p];
        if (config.is_frozen(parameter.name) == requires_grad) continue;
        items.push_back({.elements = parameter.elements(), .row = parameter.row_elements()});
        group.parameters.push_back({.name = parameter.name,
                                    .role = parameter.role,
                                    .shape = parameter.shape,
                                    .offset = 0,
                                    .decay = parameter.decay});
      }
      if (items.empty()) continue;
      const FlatLayout& layout = layouts.get(items);
      group.chunk = layout.chunk;
      group.elements = layout.elements;
      group.full_offset = full_offset;
      for (std::size_t i = 0; i < items.size(); ++i) group.parameters[i].offset = layout.offsets[i];
      full_offset =
          checked_add(full_offset, round_up(bytes_of(group.elements, group.dtype).value, 256));
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

FlatLayout layout_of(const Group& group, const PlanConfig& config) {
  FlatLayout layout{.chunk = group.chunk,
                    .elements = group.elements,
                    .ranks = layout_ranks(config),
                    .offsets = {},
                    .sizes = {}};
  for (const PlacedParameter& parameter : group.parameters) {
    layout.offsets.push_back(parameter.offset);
    layout.sizes.push_back(parameter.elements());
  }
  return layout;
}

ResidentIntervals resident_intervals(const Group& group, const PlanConfig& config,
                                     std::int64_t rank) {
  const Placements inner = placements_of(config.strategy, config.mesh.dp_shard);
  const Placements outer = placements_of(config.outer_strategy, config.mesh.dp_outer);
  const Interval all{.begin = 0, .end = group.elements};
  const Interval shard = nth_part(all, rank % config.mesh.dp_shard, config.mesh.dp_shard);
  ResidentIntervals resident{.weight = shards(inner.parameter) ? shard : all,
                             .gradient = shards(inner.gradient) ? shard : all,
                             .update = shards(inner.optimizer) ? shard : all};
  if (shards(outer.optimizer))
    resident.update = nth_part(resident.update, rank / config.mesh.dp_shard, config.mesh.dp_outer);
  return resident;
}

bool is_first_replica(const PlanConfig& config, std::int64_t rank) {
  const auto first = [](Strategy strategy, std::int64_t axis_size, std::int64_t index) {
    return shards(placements_of(strategy, axis_size).optimizer) || index == 0;
  };
  return first(config.strategy, config.mesh.dp_shard, rank % config.mesh.dp_shard) &&
         first(config.outer_strategy, config.mesh.dp_outer, rank / config.mesh.dp_shard);
}

ResidentElements resident_elements(const Group& group, const PlanConfig& config) {
  const ResidentIntervals intervals = resident_intervals(group, config, 0);
  ResidentElements resident{.model_weight = intervals.weight.size()};
  if (!group.requires_grad) return resident;
  if (config.main_dtype != config.param_dtype) resident.main_weight = intervals.update.size();
  resident.main_grad = intervals.gradient.size();
  if (config.optimizer == Optimizer::adamw)
    resident.optimizer_state = checked_mul(intervals.update.size(), 2);
  return resident;
}

ResidentBytes resident_bytes(const std::vector<Group>& groups, const PlanConfig& config) {
  ResidentBytes sum;
  for (const Group& group : groups) {
    const ResidentElements elements = resident_elements(group, config);
    sum.model_weight += bytes_of(elements.model_weight, config.param_dtype);
    sum.main_weight += bytes_of(elements.main_weight, config.main_dtype);
    sum.main_grad += bytes_of(elements.main_grad, config.grad_dtype);
    sum.optimizer_state += bytes_of(elements.optimizer_state, config.statistic_dtype());
  }
  return sum;
}

}  // namespace mfsdp
