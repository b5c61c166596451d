// Turns the user's options into the configuration of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/model/model.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// Number of nodes for `gpus`: one if they are fewer than `gpus_per_node`, which must divide them
/// otherwise. `flag` is the flag that the error names.
[[nodiscard]] Result<std::int64_t> count_nodes(std::int64_t gpus, std::int64_t gpus_per_node,
                                               std::string_view flag);

/// Tokens of a sequence: --seq-len, else the smaller of the default and the model's maximum.
[[nodiscard]] std::int64_t seq_len_of(const CommonOptions& options, const ModelShape& model);

/// Sequences of one step on all GPUs by --global-batch, which counts sequences or tokens. Error:
/// the tokens are not a whole number of sequences of `seq_len` tokens.
[[nodiscard]] Result<std::optional<std::int64_t>> global_batch_of(const CommonOptions& options,
                                                                  std::int64_t seq_len);

/// Fills in the defaults that depend on the model and checks every field. Errors name the flag; all
/// independent errors are reported at once.
/// Equal meanings give equal configurations: frozen names are sorted, full:<all blocks> is full,
/// one group has no outer strategy.
[[nodiscard]] Result<PlanConfig> make_plan_config(const CommonOptions& options,
                                                  const ModelShape& model);

}  // namespace mfsdp
