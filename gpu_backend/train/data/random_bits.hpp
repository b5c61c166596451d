// Numbers that look random and are a function of their place: no state, equal on every machine.
#pragma once

#include <cstdint>

namespace mfsdp {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that mixes well.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

}  // namespace mfsdp
