#include "sim/engines/flat_parameter.hpp"

#include <algorithm>
#include <utility>

#include "core/base/quantity.hpp"

namespace mfsdp {

FlatParameter flat_parameter(std::vector<Weight> weights, std::int64_t ranks) {
  constexpr std::int64_t kAlignment = 8;  // elements of bf16 in 16 bytes
  FlatParameter flat{.weights = std::move(weights), .begins = {}, .elements = 0, .ranks = ranks};
  for (const Weight& weight : flat.weights) {
    flat.begins.push_back(round_up(flat.elements, kAlignment));
    flat.elements = flat.begins.back() + weight.elements();
  }
  flat.elements = round_up(flat.elements, ranks);
  return flat;
}

std::int64_t FlatParameter::padding() const {
  std::int64_t used = 0;
  for (const Weight& weight : weights) used += weight.elements();
  return elements - used;
}

std::int64_t FlatParameter::owned(std::size_t weight) const {
  const std::int64_t end = std::min(begins[weight] + weights[weight].elements(), shard());
  return std::max<std::int64_t>(end - begins[weight], 0);
}

}  // namespace mfsdp
