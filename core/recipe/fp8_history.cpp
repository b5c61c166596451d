// Delayed scaling: a cast's scale is of earlier steps, and the cast itself keeps the largest magnitude
// that it reads for later ones (core/plan/fp8.hpp).
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "core/plan/fp8.hpp"
#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {
namespace {

constexpr std::array<std::string_view, 4> kLayers{"qkv", "attention_out", "gate_up", "down"};
constexpr std::array<std::string_view, 3> kTensors{"input", "weight", "d_output"};
static_assert(kLayers.size() * kTensors.size() == amax_history::tensors_of_block);

/// The column of "qkv.weight" among those of its block.
std::int64_t column_of(std::string_view amax) {
  const std::size_t dot = std::min(amax.find('.'), amax.size() - 1);
  const auto* const layer = std::ranges::find(kLayers, amax.substr(0, dot));
  const auto* const tensor = std::ranges::find(kTensors, amax.substr(dot + 1));
  if (layer == kLayers.end() || tensor == kTensors.end())
    throw std::logic_error("no history has " + std::string(amax));
  return (layer - kLayers.begin()) * std::ssize(kTensors) + (tensor - kTensors.begin());
}

RecipeOperand in_history(std::string role, std::string_view amax, std::int64_t row,
                         const PlanConfig& config) {
  RecipeOperand made = from(Source::global, on(std::move(role), std::string(global::amax_history)));
  made.of_block = amax_history::tensors_of_block;
  made.offset =
      row * amax_history::tensors(config) + column_of(amax) - made.of_block * config.fp8_keep_bf16;
  return made;
}

}  // namespace

RecipeOperand Builder::amax_operand(const std::string& amax) const {
  if (config.fp8 != Fp8Recipe::delayed) return amax_.at(amax);
  return in_history("amax", amax, 1, config);
}

RecipeOperand Builder::next_amax_operand(const std::string& amax) const {
  RecipeOperand made = in_history("next_amax", amax, 0, config);
  made.trains = true;
  return made;
}

}  // namespace mfsdp::recipe
