// Environment variables read as numbers, with errors that name them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

/// The variable's text; none where it is not set.
[[nodiscard]] std::optional<std::string> find_variable(const Environment& environment,
                                                       std::string_view name);

/// The first of the names that is set; none if none is.
[[nodiscard]] std::optional<std::string_view> first_set(const Environment& environment,
                                                        std::span<const std::string_view> names);

/// "environment, NAME: expected ..., got ...".
[[nodiscard]] tl::unexpected<Error> refuse_variable(std::string_view name, std::string_view text,
                                                    std::string_view expected);

/// "environment, NAME: is not set, but OTHER is: expected ...".
[[nodiscard]] tl::unexpected<Error> refuse_missing(std::string_view name, std::string_view other,
                                                   std::string_view expected);

/// A decimal number and nothing else; none if the text is something else or outside least..most.
[[nodiscard]] std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least,
                                                       std::int64_t most);

/// A variable that is required because `other` is set.
[[nodiscard]] Result<std::int64_t> read_number(const Environment& environment,
                                               std::string_view name, std::string_view other,
                                               std::int64_t least, std::int64_t most);

}  // namespace mfsdp
