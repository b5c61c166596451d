// Columns of integers as short text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mfsdp {

/// Each number in base64 digits of five bits, lowest first, the sixth set where more follow; the
/// sign is the lowest bit of the first. Small numbers take one character. The page's
/// unpack() (page/base.js) reads it. Exact below 2^53, as numbers of JavaScript are.
[[nodiscard]] std::string pack(std::span<const std::int64_t> numbers);

/// The same of the differences between neighbours, the first from 0.
[[nodiscard]] std::string pack_differences(std::span<const std::int64_t> numbers);

}  // namespace mfsdp
