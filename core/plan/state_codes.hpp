// How `blockwise8` keeps a state: a byte for each element, times the block's largest magnitude.
//
// The codes are those of dynamic tree quantisation by Dettmers et al. (8-bit Optimizers via
// Block-wise Quantization, arXiv 2110.02861, section 2.2; create_dynamic_map in bitsandbytes).
// There are seven decades, from 10^-6 to 1, each with twice as many codes as the one below. Decade
// i from 0 to 6 has n codes, evenly spread over [10^(i-7), 10^(i-6)]:
//
//   n = 2^i for states with a sign, 2^(i+1) for others;  0 <= j < n
//   value(i, j) = 10^(i-6) (0.1 + 0.9 (j + 1/2) / n) = (2n + 18j + 9) / (20 n 10^(6-i))
//               = (2n + 18j + 9) / (w 5^(7-i))       with w = 256 for signed ones, else 512
//
// Numerator and denominator are integers that are exact in fp32, so a value is one division, which
// every machine rounds equally. The code of (i, j) is n + j; 0 is the code of 0. One more code
// means 1, the block's largest: 128 for signed states, whose codes from 129 on are the negative
// values of the codes 128 below, and 1 for the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/plan/optimizer_spec.hpp"

namespace mfsdp {

/// The power of two in the denominator of a decade's value, besides 5^(7-i).
template <bool is_signed>
inline constexpr int kCodeScale = is_signed ? 256 : 512;
/// Codes of the highest decade.
template <bool is_signed>
inline constexpr int kCodesOfHighest = is_signed ? 64 : 128;
/// The code of 1; for signed states this bit is the sign.
template <bool is_signed>
inline constexpr int kCodeOfOne = is_signed ? 128 : 1;

/// The value of a code, in units of its block's scale: from -1 or 0 to 1.
template <bool is_signed>
[[nodiscard]] MFSDP_ON_DEVICE_TOO constexpr float value_of_code(std::uint8_t code) {
  if (code == kCodeOfOne<is_signed>) return 1;
  const int magnitude = is_signed ? code & 0x7f : code;
  if (magnitude == 0) return 0;
  int codes = kCodesOfHighest<is_signed>;
  int fives = 5;
  for (; codes > magnitude; codes /= 2) fives *= 5;
  const int j = magnitude - codes;
  const float value = static_cast<float>(2 * codes + 18 * j + 9) /
                      static_cast<float>(kCodeScale<is_signed> * fives);
  return is_signed && code > kCodeOfOne<is_signed> ? -value : value;
}

/// The code with the nearest value, the larger magnitude in a tie; for `value` from -1 (0 without
/// sign) to 1. Without sign, values above 0 do not get the code of 0: a second moment of 0 would
/// make the step arbitrarily large. NaN: 0.
template <bool is_signed>
[[nodiscard]] MFSDP_ON_DEVICE_TOO constexpr std::uint8_t code_of_value(float value) {
  const float magnitude = value < 0 ? -value : value;
  if (!(magnitude > 0)) return 0;
  const bool negative = is_signed && value < 0;
  constexpr int kHighest = kCodesOfHighest<is_signed>;
  constexpr int kLowest = is_signed ? 1 : 2;
  // Half-way between the highest decade's last value, 1 - 9 / (20 n), and 1.
  if (!negative &&
      magnitude * static_cast<float>(40 * kHighest) >= static_cast<float>(40 * kHighest - 9))
    return static_cast<std::uint8_t>(kCodeOfOne<is_signed>);
  int codes = kHighest;
  int scale = kCodeScale<is_signed> * 5;
  // Half-way between a decade's first value and the last one below: (5n + 9) / (5/2 scale).
  while (codes > kLowest &&
         magnitude * static_cast<float>(5 * scale) < static_cast<float>(2 * (5 * codes + 9))) {
    codes /= 2;
    scale *= 5;
  }
  if (is_signed && codes == kLowest &&
      magnitude * static_cast<float>(2 * scale) < static_cast<float>(2 * codes + 9))
    return 0;  // below half of the lowest value
  // Times the scale, values are 18 apart, and the halves between them whole numbers.
  const int scaled = static_cast<int>(magnitude * static_cast<float>(scale));
  int j = scaled > 2 * codes ? (scaled - 2 * codes) / 18 : 0;
  if (j >= codes) j = codes - 1;
  return static_cast<std::uint8_t>(codes + j + (negative ? kCodeOfOne<is_signed> : 0));
}

/// value_of_code of every code.
template <bool is_signed>
[[nodiscard]] constexpr std::array<float, 256> values_of_codes() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code)
    values[static_cast<std::size_t>(code)] =
        value_of_code<is_signed>(static_cast<std::uint8_t>(code));
  return values;
}

}  // namespace mfsdp
