// How an error quotes what it was given.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

/// printable(), of the first 80 bytes and with "..." where there are more: errors never repeat more
/// than a line of their input.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace mfsdp
