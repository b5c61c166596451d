// Amounts as people write them: "48 GiB", "820 ms", "15T".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace mfsdp {

struct UnitWord {
  std::string_view word;
  std::int64_t size = 1;
};

inline constexpr std::array<UnitWord, 9> kByteWords{{{"B", 1},
                                                     {"kB", 1'000},
                                                     {"MB", 1'000'000},
                                                     {"GB", 1'000'000'000},
                                                     {"TB", 1'000'000'000'000},
                                                     {"KiB", std::int64_t{1} << 10},
                                                     {"MiB", std::int64_t{1} << 20},
                                                     {"GiB", std::int64_t{1} << 30},
                                                     {"TiB", std::int64_t{1} << 40}}};
/// In nanoseconds.
inline constexpr std::array<UnitWord, 4> kTimeWords{
    {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
/// Thousands, millions, billions (10^9) and trillions (10^12), as tokens are counted.
inline constexpr std::array<UnitWord, 4> kCountWords{
    {{"K", 1'000}, {"M", 1'000'000}, {"B", 1'000'000'000}, {"T", 1'000'000'000'000}}};

/// Lengths of sequences are powers of two: 8k is 8,192 tokens.
inline constexpr std::array<UnitWord, 4> kLengthWords{
    {{"k", 1 << 10}, {"K", 1 << 10}, {"m", 1 << 20}, {"M", 1 << 20}}};

/// A count as people write it: "15T", "300b", "1e12", "1.5e9", "1000000". Suffixes are those of
/// kCountWords, in either case. None unless the value is a whole number from 0 to 2^63 - 1.
[[nodiscard]] std::optional<std::int64_t> parse_count(std::string_view text);

/// "1.5 GiB" -> 1610612736: a decimal without a sign, at most one blank, one of the words. None
/// unless the value is a whole number below 2^63.
[[nodiscard]] std::optional<std::int64_t> parse_amount(std::string_view text,
                                                       std::span<const UnitWord> words);
/// The same rounded up to a whole number: "79.06 GiB".
[[nodiscard]] std::optional<std::int64_t> parse_amount_up(std::string_view text,
                                                          std::span<const UnitWord> words);

}  // namespace mfsdp
