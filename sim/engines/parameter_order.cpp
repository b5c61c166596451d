#include "sim/engines/parameter_order.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace mfsdp {
namespace {

constexpr std::array<std::string_view, 7> kReadyInBlock{"down", "gate_up",  "norm2", "out",
                                                        "qkv",  "qkv_bias", "norm1"};

/// Appends the weight of that name, if there is one.
void append(std::vector<ParameterPlace>& order, std::size_t unit,
            const std::vector<Weight>& weights, std::string_view name) {
  const auto found = std::ranges::find(weights, name, &Weight::name);
  if (found != weights.end())
    order.push_back({.unit = unit, .weight = static_cast<std::size_t>(found - weights.begin())});
}

}  // namespace

std::vector<ParameterPlace> module_order(const ModelShape& model) {
  const std::size_t in_block = block_weights(model).size();
  const std::size_t in_root = root_weights(model).size();
  std::vector<ParameterPlace> order{{.unit = 0, .weight = 0}};
  for (std::size_t unit = 1; unit <= static_cast<std::size_t>(model.layers); ++unit)
    for (std::size_t i = 0; i < in_block; ++i) order.push_back({.unit = unit, .weight = i});
  for (std::size_t i = 1; i < in_root; ++i) order.push_back({.unit = 0, .weight = i});
  return order;
}

std::vector<ParameterPlace> ready_order(const ModelShape& model) {
  const std::vector<Weight> block = block_weights(model);
  const std::vector<Weight> root = root_weights(model);
  std::vector<ParameterPlace> order;
  append(order, 0, root, "head");
  append(order, 0, root, "norm");
  for (auto unit = static_cast<std::size_t>(model.layers); unit > 0; --unit)
    for (const std::string_view name : kReadyInBlock) append(order, unit, block, name);
  append(order, 0, root, "embedding");
  return order;
}

Weight weight_at(const ModelShape& model, ParameterPlace place) {
  return place.unit == 0 ? root_weights(model)[place.weight] : block_weights(model)[place.weight];
}

}  // namespace mfsdp
