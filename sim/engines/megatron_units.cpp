#include "sim/engines/megatron_units.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace mfsdp {
namespace {

/// The second version pads for all ranks of the mesh, and shards over the ranks that share a copy.
FlatUnit flat_unit(UnitId unit, std::vector<Weight> weights, const Mesh& mesh, UnitOrder order) {
  FlatUnit made;
  made.unit = unit;
  made.weights = std::move(weights);
  made.placed.resize(made.weights.size());
  std::iota(made.placed.begin(), made.placed.end(), std::size_t{0});
  const auto row = [&](std::size_t i) { return made.weights[i].columns; };
  if (order == UnitOrder::longest_rows) std::ranges::stable_sort(made.placed, std::greater{}, row);
  std::vector<LayoutItem> items;
  for (const std::size_t i : made.placed)
    items.push_back({.elements = made.weights[i].elements(), .row = row(i)});
  const std::int64_t shards = mesh.size(Axis::dp_shard);
  made.layout =
      megatron_fsdp_layout(items, order == UnitOrder::modules ? mesh.world_size() : shards);
  made.layout.ranks = shards;
  made.owned.resize(made.weights.size());
  for (std::size_t item = 0; item < items.size(); ++item) {
    const Interval part = owned_interval(made.layout, item, 0);
    made.owned[made.placed[item]] = part.end - part.begin;
  }
  return made;
}

OwnedWeight owned_weight(const FlatUnit& unit, std::size_t i) {
  return {.unit = unit.unit, .name = unit.weights[i].name, .elements = unit.owned[i]};
}

}  // namespace

std::int64_t FlatUnit::padding() const {
  std::int64_t used = 0;
  for (const Weight& weight : weights) used += weight.elements();
  return layout.elements - used;
}

FlatUnits flat_units(StepBuilder& step, const PlanConfig& config, UnitOrder order) {
  const UnitId root = step.add_unit("root", UnitKind::embedding_and_head);
  FlatUnits units{.root = flat_unit(root, root_weights(config.model), config.mesh, order),
                  .blocks = {}};
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const UnitId unit = step.add_unit("layers." + std::to_string(layer), UnitKind::block);
    units.blocks.push_back(flat_unit(unit, block_weights(config.model), config.mesh, order));
    step.add_padding(units.blocks.back().padding());
  }
  step.add_padding(units.root.padding());
  return units;
}

std::vector<OwnedWeight> owned_weights(const FlatUnits& units) {
  std::vector<OwnedWeight> all{owned_weight(units.root, 0)};
  for (const FlatUnit& block : units.blocks)
    for (std::size_t i = 0; i < block.weights.size(); ++i) all.push_back(owned_weight(block, i));
  for (std::size_t i = 1; i < units.root.weights.size(); ++i)
    all.push_back(owned_weight(units.root, i));
  return all;
}

}  // namespace mfsdp
