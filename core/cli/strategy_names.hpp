// What others call the strategies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/vocabulary.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// What a name asks for.
struct NamedStrategy {
  Strategy strategy = Strategy::optim_grads_params;
  /// Over groups that replicate (HSDP: no_shard) or shard further (HFSDP: optim). The name alone
  /// does not say how many groups.
  std::optional<Strategy> outer = {};
};

/// Our names, ZeRO stages, and those of PyTorch and DeepSpeed, capitals and dashes alike:
///   no_shard            0, zero0, ddp
///   optim               1, zero1
///   optim_grads         2, zero2, shard_grad_op
///   optim_grads_params  3, zero3, fsdp, full_shard
///   with outer groups   hsdp, hybrid_shard; hybrid_shard_zero2 (optim_grads); hfsdp
[[nodiscard]] std::optional<NamedStrategy> parse_strategy(std::string_view text);

/// Where the text names an engine and no strategy ("fsdp2", "deepspeed"): what to write instead,
/// with the engine and the strategy of ours that is nearest. Empty where it names none.
[[nodiscard]] std::string engine_meant(std::string_view text);

/// "ZeRO-3"; for no_shard "DDP".
[[nodiscard]] std::string_view field_name(Strategy strategy);

/// For people: "optim_grads_params (ZeRO-3), HSDP 8 x 4".
[[nodiscard]] std::string strategy_text(const PlanConfig& config);

}  // namespace mfsdp
