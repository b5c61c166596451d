// Reasons why a model type is not modelled: fields of its config.json, and known parts of its
// class.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp {

/// Parts of a model_type's class that its config.json does not mention: "layer norms, and attention
/// in parallel with the MLP". Found by the full name only, as names with one prefix differ. None
/// where nothing is known.
[[nodiscard]] std::optional<std::string_view> what_class_has(std::string_view model_type);

/// Fields in a config.json of another model_type that are not modelled: "rotary_dim 32 (RoPE of a
/// part of each head)". One per kind; those that no family here has come first.
[[nodiscard]] std::vector<std::string> foreign_reasons(const nlohmann::json& config);

/// "rotary_dim 32", "vision_config {...}".
[[nodiscard]] std::string field_with_value(std::string_view name, const nlohmann::json& value);

}  // namespace mfsdp
