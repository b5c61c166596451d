// Unicode's normal form C: composed characters, in one order.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// `text` is UTF-8 with any characters. ASCII text is returned unchanged. Errors: no memory.
[[nodiscard]] Result<std::string> normal_form_c(std::string_view text);

}  // namespace mfsdp
