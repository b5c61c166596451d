// Text functions for the completions of all shells.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

/// The text with a backslash before each of `special`.
[[nodiscard]] std::string escaped(std::string_view text, std::string_view special);

}  // namespace mfsdp
