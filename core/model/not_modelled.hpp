// Models that people ask for by name and that no recipe computes. Of a config.json its fields say
// what it has (foreign_types.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// What a family has that the recipe has not, for messages: "mixtures of experts". `name`: a
/// model's name as people write it, with or without its organisation. None for families that are
/// modelled and for names that nothing is known of.
[[nodiscard]] std::optional<std::string_view> what_is_not_modelled(std::string_view name);

/// "mixtral is not modelled: it has a mixture of experts (docs/reference/limits.md)"
[[nodiscard]] std::string not_modelled_text(std::string_view name, std::string_view what);

}  // namespace mfsdp
