// Unicode's normal form C: composed characters, in one order.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// `text` is UTF-8, and may hold any character. Text of ASCII alone is returned as it is.
/// Errors: no memory.
[[nodiscard]] Result<std::string> normal_form_c(std::string_view text);

}  // namespace mfsdp
