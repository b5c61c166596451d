// The recipes of each engine and family.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/recipe/recipe.hpp"

namespace mfsdp {
namespace {

/// One recipe for all families of our engine: their differences are in their traits.
constexpr FamilyRecipe own(Family family) {
  return {.engine = kOwnEngine,
          .family = family,
          .embedding = embedding_recipe,
          .block = block_recipe,
          .head = head_recipe};
}

constexpr std::array kRecipes{
    own(Family::llama),    own(Family::gpt2),       own(Family::olmo2),
    own(Family::mixtral),  own(Family::olmoe),      own(Family::gpt_oss),
    own(Family::deepseek), own(Family::minimax_m2), own(Family::glm4_moe)};

}  // namespace

const FamilyRecipe* find_recipe(std::string_view engine, Family family) {
  const auto found = std::ranges::find_if(kRecipes, [&](const FamilyRecipe& recipe) {
    return recipe.engine == engine && recipe.family == family;
  });
  return found == kRecipes.end() ? nullptr : &*found;
}

const FamilyRecipe& own_recipe(Family family) {
  const FamilyRecipe* recipe = find_recipe(kOwnEngine, family);
  if (recipe == nullptr) throw std::logic_error("no recipe for " + std::string(to_string(family)));
  return *recipe;
}

}  // namespace mfsdp
