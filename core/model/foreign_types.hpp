// Model types that no family here computes: why not, by what a config.json has and by what is known
// of their classes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp {

/// What the class of a model_type has though its config.json does not say so: "layer norms, and
/// attention beside the MLP". By the whole name alone: models of one beginning differ. None where
/// nothing is known.
[[nodiscard]] std::optional<std::string_view> what_class_has(std::string_view model_type);

/// What a config.json of another model_type has that is not modelled: "rotary_dim 32 (RoPE of a
/// part of each head)". One for each kind; those that no family here has before the others.
[[nodiscard]] std::vector<std::string> foreign_reasons(const nlohmann::json& config);

/// "rotary_dim 32", "vision_config {...}".
[[nodiscard]] std::string field_with_value(std::string_view name, const nlohmann::json& value);

}  // namespace mfsdp
