// Names that other tools use for the strategies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/vocabulary.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// The strategy that a name selects.
struct NamedStrategy {
  Strategy strategy = Strategy::optim_grads_params;
  /// Over groups that replicate (HSDP: no_shard) or shard further (HFSDP: optim). The name does not
  /// give the number of groups.
  std::optional<Strategy> outer = {};
};

/// The names of this project, ZeRO stages, and the names of PyTorch and DeepSpeed. Case and dashes
/// do not matter:
///   no_shard            0, zero0, ddp
///   optim               1, zero1
///   optim_grads         2, zero2, shard_grad_op
///   optim_grads_params  3, zero3, fsdp, full_shard
///   with outer groups   hsdp, hybrid_shard; hybrid_shard_zero2 (optim_grads); hfsdp
[[nodiscard]] std::optional<NamedStrategy> parse_strategy(std::string_view text);

/// If the text names an engine instead of a strategy ("fsdp2", "deepspeed"): the text to write
/// instead, with the engine and its nearest strategy. Empty if it names none.
[[nodiscard]] std::string engine_meant(std::string_view text);

/// "ZeRO-3"; for no_shard "DDP".
[[nodiscard]] std::string_view field_name(Strategy strategy);

/// For people: "optim_grads_params (ZeRO-3), HSDP 8 x 4".
[[nodiscard]] std::string strategy_text(const PlanConfig& config);

}  // namespace mfsdp
