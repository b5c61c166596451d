// The alphabet of byte-level BPE: each byte is one printable character (GPT-2).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// The character of a byte, as UTF-8: printable bytes of Latin-1 represent themselves, the other 68
/// are U+0100 to U+0143 in the order of their values. A space becomes U+0120.
[[nodiscard]] std::string byte_character(unsigned char byte);

/// The bytes of a vocabulary's token; none if a character represents no byte.
[[nodiscard]] std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace mfsdp
