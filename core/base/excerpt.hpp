// Input as an error quotes it.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

/// printable() of the first 80 bytes, with "..." where there are more.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace mfsdp
