// Which rank wrote a file, by its name: PyTorch's dumps say it nowhere else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp::traces {

/// The number after the last "rank" ("nccl_trace_rank_12"), else the last number of the name
/// without its extension; none without a number.
[[nodiscard]] std::optional<std::int64_t> rank_in_name(std::string_view name);

/// Of each file; where no name has a number, files are ranks 0, 1, ... in their order. None for a
/// file without a number among others that have one.
[[nodiscard]] std::vector<std::optional<std::int64_t>> ranks_of_files(
    std::span<const std::filesystem::path> files);

/// That `where` and `other` are of one rank.
[[nodiscard]] tl::unexpected<Error> fail_of_one_rank(const std::string& where, std::int64_t rank,
                                                     const std::string& other);

}  // namespace mfsdp::traces
