// Random numbers without state: a pure function from a counter and a key.
#pragma once

#include <array>
#include <cstdint>

namespace mfsdp {

/// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
/// (SC 2011): ten rounds of multiplications convert each counter into four random words.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
    const auto high = [](std::uint64_t product) {
      return static_cast<std::uint32_t>(product >> 32U);
    };
    counter = {high(second) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
               high(first) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += 0x9E3779B9U;  // the golden ratio
    key[1] += 0xBB67AE85U;  // the root of 3, less 1
  }
  return counter;
}

}  // namespace mfsdp
