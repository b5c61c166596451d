// Names that TOML takes as keys without quotes: roles of classes of ranks, which budgets have as
// tables.
#pragma once

#include <algorithm>
#include <string_view>

namespace mfsdp {

/// One or more ASCII letters, digits, '_' and '-'.
[[nodiscard]] constexpr bool is_bare_key(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

}  // namespace mfsdp
