#include "core/formats/crc32c.hpp"

#include <array>

namespace mfsdp {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? kReversedPolynomial : 0U);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~0U;
  for (const char c : bytes)
    sum = kTable.at((sum ^ static_cast<unsigned char>(c)) & 0xffU) ^ (sum >> 8U);
  return ~sum;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t sum = crc32c(bytes);
  return ((sum >> 15U) | (sum << 17U)) + 0xa282ead8U;
}

}  // namespace mfsdp
