// The checksum of TensorBoard's event files: CRC-32C (Castagnoli), and how TFRecord masks it.
#pragma once

#include <cstdint>
#include <string_view>

namespace mfsdp {

/// RFC 3720, appendix B.4: of 32 zero bytes it is 0x8a9136aa.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// Rotated and shifted, so that a checksum may be part of what is summed
/// (tensorflow/core/lib/hash/crc32c.h).
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace mfsdp
