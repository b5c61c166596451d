// The rank that wrote a file, from the file's name. PyTorch's dumps contain it nowhere else.
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

/// The rank of each file. If no name has a number, files are ranks 0, 1, ... in their order. None
/// for a file without a number if another file has one.
[[nodiscard]] std::vector<std::optional<std::int64_t>> ranks_of_files(
    std::span<const std::filesystem::path> files);

/// The error for two files, `where` and `other`, of the same rank.
[[nodiscard]] tl::unexpected<Error> fail_of_one_rank(const std::string& where, std::int64_t rank,
                                                     const std::string& other);

}  // namespace mfsdp::traces
