// Known mistakes in configurations and environments. Each rule has a reason and a source.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/config.hpp"
#include "verify/findings/finding.hpp"
#include "verify/traces/configuration.hpp"

namespace mfsdp::traces {

struct ConfigurationRule {
  std::string_view id;      ///< "MF731"; findings/finding.cpp has its name and severity
  std::string_view reason;  ///< why it is wrong
  std::string_view action;  ///< what to do
  std::string_view source;  ///< repository and file, or page, that states the rule
  /// The setting that breaks the rule, as text; none if the configuration obeys the rule.
  std::optional<std::string> (*broken_by)(const Configuration&);
};

/// Ascending by id: rules of the configuration, of the environment, of tensor and context
/// parallelism.
[[nodiscard]] std::span<const ConfigurationRule> configuration_rules();
[[nodiscard]] std::span<const ConfigurationRule> environment_rules();
[[nodiscard]] std::span<const ConfigurationRule> axis_rules();

/// Findings without ops, in the order of rules. Each message names the file, the setting, the
/// reason and the action.
[[nodiscard]] std::vector<Finding> check_configuration(const Configuration& configuration);
/// The same for a plan's configuration and the environment of its run.
[[nodiscard]] std::vector<Finding> check_configuration(
    const PlanConfig& config,
    const std::map<std::string, std::string, std::less<>>& environment = {});

}  // namespace mfsdp::traces
