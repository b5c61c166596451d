// From what the user asked for to the configuration of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/model/model.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// Nodes that hold `gpus`: one when they are fewer than `gpus_per_node`, which must divide them
/// otherwise. `flag` names the source of the number in the error.
[[nodiscard]] Result<std::int64_t> count_nodes(std::int64_t gpus, std::int64_t gpus_per_node,
                                               std::string_view flag);

/// Tokens of a sequence: --seq-len, else the default or the model's longest, whichever is less.
[[nodiscard]] std::int64_t seq_len_of(const CommonOptions& options, const ModelShape& model);

/// Sequences of one step on all GPUs, where --global-batch says so in sequences or in tokens.
/// Error: the tokens are no whole number of sequences of `seq_len` tokens.
[[nodiscard]] Result<std::optional<std::int64_t>> global_batch_of(const CommonOptions& options,
                                                                  std::int64_t seq_len);

/// Fills in the defaults that need the model and checks every field; errors name the flag,
/// independent ones all at once.
/// Equal meanings give equal configurations: frozen names are sorted, full:<all blocks> is full,
/// one group has no outer strategy.
[[nodiscard]] Result<PlanConfig> make_plan_config(const CommonOptions& options,
                                                  const ModelShape& model);

}  // namespace mfsdp
