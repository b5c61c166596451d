#include <fmt/format.h>

#include <utility>

#include "core/base/text.hpp"
#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/fsdp_facts.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::size_t kQuotedSettingBytes = 200;  ///< in one message

void check(std::span<const ConfigurationRule> rules, const Configuration& configuration,
           std::vector<Finding>& findings) {
  for (const ConfigurationRule& rule : rules) {
    const auto found = rule.broken_by(configuration);
    if (!found) continue;
    findings.push_back(finding_without_ops(
        rule.id,
        fmt::format("{}: {}: {}; {}", configuration.where,
                    printable(found->substr(0, kQuotedSettingBytes)), rule.reason, rule.action)));
  }
}

}  // namespace

std::vector<Finding> check_configuration(const Configuration& configuration) {
  std::vector<Finding> findings;
  check(configuration_rules(), configuration, findings);
  check(environment_rules(), configuration, findings);
  check(axis_rules(), configuration, findings);
  return findings;
}

std::vector<Finding> check_configuration(
    const PlanConfig& config, const std::map<std::string, std::string, std::less<>>& environment) {
  if (config.mesh.world_size() == 1) return {};  // nothing is communicated
  Configuration shown{.where = "plan", .settings = {}, .environment = environment};
  const auto set = [&](std::string name, std::string_view flag, std::string_view value) {
    shown.settings.emplace(std::move(name), Setting{std::string(flag), std::string(value)});
  };
  set(std::string(kOwnPlan), "plan", "true");
  set("data_parallel_sharding_strategy", "strategy", to_string(config.strategy));
  set("outer_dp_sharding_strategy", "outer-strategy", to_string(config.outer_strategy));
  std::vector<Finding> findings = check_configuration(shown);
  if (config.prefetch == 0 && config.strategy == Strategy::optim_grads_params)
    findings.push_back(finding_without_ops(
        "MF751",
        "plan: prefetch = 0: each unit's gather begins when compute needs it, and none "
        "overlaps; use a prefetch of 1 or more"));
  const bool reduces_each_microbatch = config.strategy >= Strategy::optim_grads;
  if (config.grad_slots == 1 && reduces_each_microbatch)
    findings.push_back(finding_without_ops(
        "MF752",
        "plan: grad-slots = 1: a unit's backward waits for the reduction of the previous "
        "unit; use 2 or more"));
  return findings;
}

}  // namespace mfsdp::traces
