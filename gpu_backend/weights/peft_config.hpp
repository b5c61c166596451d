// adapter_config.json: how PEFT says which adapters a folder has.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

inline constexpr std::string_view kPeftConfig = "adapter_config.json";
inline constexpr std::string_view kPeftWeights = "adapter_model.safetensors";

/// The text for the configuration's adapters, which it has. An error where alpha has no short
/// decimal form.
[[nodiscard]] Result<std::string> peft_config_text(const PlanConfig& config);

/// Whether a folder's adapters are those of the configuration. Errors name the field, with what
/// this run has and the flag that says so, or what is not modelled: other kinds of adapters, ranks
/// by pattern, DoRA, rank-stabilised scales, trained biases or whole modules, chosen layers.
[[nodiscard]] Result<void> check_peft_config(const std::filesystem::path& folder,
                                             const PlanConfig& config);

}  // namespace mfsdp
