// adapter_config.json: PEFT's description of the adapters in a folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

inline constexpr std::string_view kPeftConfig = "adapter_config.json";
inline constexpr std::string_view kPeftWeights = "adapter_model.safetensors";

/// The text for the adapters of the configuration, which must have some. An error if alpha has no
/// short decimal form.
[[nodiscard]] Result<std::string> peft_config_text(const PlanConfig& config);

/// Whether a folder's adapters match the configuration. Errors name the field, with this run's
/// value and its flag, or the feature that is not modelled: other kinds of adapters, ranks by
/// pattern, DoRA, rank-stabilised scales, trained biases or whole modules, chosen layers.
[[nodiscard]] Result<void> check_peft_config(const std::filesystem::path& folder,
                                             const PlanConfig& config);

}  // namespace mfsdp
