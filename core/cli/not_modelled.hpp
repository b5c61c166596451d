// Flags of other tools that ask for what is not modelled.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// What is to be said to whoever asks for `flag` ("--tp", "--tensor_parallel_size"), which the tool
/// does not have: that it is not modelled, or what to ask instead. None for other words.
[[nodiscard]] std::optional<std::string> about_foreign_flag(std::string_view flag);

}  // namespace mfsdp
