// What goes wrong with configurations and environments, each rule with its reason and its source.
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
  std::string_view id;      ///< "MF731"; its name and severity stand in findings/finding.cpp
  std::string_view reason;  ///< why it is wrong
  std::string_view action;  ///< what to do
  std::string_view source;  ///< repository and file, or page, where it is read
  /// What the configuration has that breaks the rule; none where it keeps it.
  std::optional<std::string> (*broken_by)(const Configuration&);
};

/// Ascending by id: rules of the configuration, rules of the environment.
[[nodiscard]] std::span<const ConfigurationRule> configuration_rules();
[[nodiscard]] std::span<const ConfigurationRule> environment_rules();

/// Findings without ops, by rule; each message names file, setting, reason and what to do.
[[nodiscard]] std::vector<Finding> check_configuration(const Configuration& configuration);
/// The same for a plan's configuration, and for the environment that it is to run in.
[[nodiscard]] std::vector<Finding> check_configuration(
    const PlanConfig& config,
    const std::map<std::string, std::string, std::less<>>& environment = {});

}  // namespace mfsdp::traces
