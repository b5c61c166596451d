// Event files of TensorBoard with any tags, as PyTorch's SummaryWriter.add_scalar() writes them.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/crc32c.hpp"

namespace mfsdp::test {

struct Scalar {
  std::string tag;
  std::uint8_t step = 0;  ///< below 128, so that a varint of it is one byte
  float value = 0;
};

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
  return bytes;
}

/// A field of bytes of a protocol buffer; they are fewer than 128.
inline std::string short_field(char key, const std::string& bytes) {
  return std::string(1, key) + static_cast<char>(bytes.size()) + bytes;
}

/// A record of TFRecord: length, its checksum, data, its checksum.
inline std::string event_record(const std::string& data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + data + little_endian(masked_crc32c(data));
}

/// Keys: 0x09 wall_time, 0x10 step, 0x2a summary of an event; 0x0a value of a summary; 0x0a tag and
/// 0x15 simple_value of that.
inline std::string event_file(const std::vector<Scalar>& scalars) {
  const std::string wall_time =
      std::string(1, '\x09') + little_endian(std::bit_cast<std::uint64_t>(1.79e9));
  std::string bytes = event_record(wall_time + short_field('\x1a', "brain.Event:2"));
  for (const Scalar& scalar : scalars) {
    const std::string value = short_field('\x0a', scalar.tag) + '\x15' +
                              little_endian(std::bit_cast<std::uint32_t>(scalar.value));
    bytes += event_record(wall_time + '\x10' + static_cast<char>(scalar.step) +
                          short_field('\x2a', short_field('\x0a', value)));
  }
  return bytes;
}

}  // namespace mfsdp::test
