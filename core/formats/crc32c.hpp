// The checksum of TensorBoard's event files: CRC-32C (Castagnoli), and the mask of TFRecord.
#pragma once

#include <cstdint>
#include <string_view>

namespace mfsdp {

/// RFC 3720, appendix B.4: for 32 zero bytes it is 0x8a9136aa.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// Rotates and shifts a checksum, so that data which contains checksums can be summed itself
/// (tensorflow/core/lib/hash/crc32c.h).
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace mfsdp
