// Parsers of SLURM's compact lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// The first host of a list such as "gpu[007-009,12],login1": gpu007. None if the text is no list.
[[nodiscard]] std::optional<std::string> first_slurm_host(std::string_view hosts);

/// Tasks on node `node` (from 0) of "4(x2),3", which is 4, 4, 3. None if the text is no list or has
/// no such node.
[[nodiscard]] std::optional<std::int64_t> slurm_tasks_on(std::string_view tasks_per_node,
                                                         std::int64_t node);

}  // namespace mfsdp
