// Facts of a configuration that several rules need. Private to the rules.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "verify/traces/configuration.hpp"

namespace mfsdp::traces {

/// Set by check_configuration(PlanConfig): mfsdp runs such a plan itself.
inline constexpr std::string_view kOwnPlan = "mfsdp_plan";

using Broken = std::optional<std::string>;

[[nodiscard]] inline bool is_megatron_fsdp(const Configuration& c) {
  return c.is_on("use_megatron_fsdp") || c.is_on("use_megatron_fsdp_v2");
}
/// Megatron-FSDP's second implementation: --megatron-fsdp-version 2, or --use-megatron-fsdp-v2 in
/// forks.
[[nodiscard]] inline bool is_version_2(const Configuration& c) {
  return c.is_on("use_megatron_fsdp_v2") ||
         (is_megatron_fsdp(c) && c.number("megatron_fsdp_version") == 2);
}
[[nodiscard]] inline bool is_sharded(const Configuration& c) {
  return is_megatron_fsdp(c) || c.is_on("use_torch_fsdp2") || c.is_on(kOwnPlan);
}
/// The strategy's name. fully_shard's API numbers strategies: the numbers become names.
[[nodiscard]] inline std::string strategy_of(const Configuration& c, std::string_view name) {
  const auto setting = c.find(name);
  const std::string value = setting ? setting->value : "";
  if (value == "0") return "no_shard";
  if (value == "1") return "optim";
  if (value == "2") return "optim_grads";
  return value == "3" ? "optim_grads_params" : value;
}
[[nodiscard]] inline std::string inner_strategy(const Configuration& c) {
  return strategy_of(c, "data_parallel_sharding_strategy");
}
[[nodiscard]] inline std::string outer_strategy(const Configuration& c) {
  return strategy_of(c, "outer_dp_sharding_strategy");
}

/// "ddp.nccl_ub = true"
[[nodiscard]] inline std::string shown(const Configuration& c, std::string_view name) {
  const auto setting = c.find(name);
  if (!setting) return fmt::format("no {}", name);
  return fmt::format("{} = {}", setting->place, setting->value);
}
[[nodiscard]] inline std::string shown_variable(const Configuration& c, std::string_view name) {
  return fmt::format("{}={}", name, c.variable(name));
}

}  // namespace mfsdp::traces
