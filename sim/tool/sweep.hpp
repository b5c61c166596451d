// Comma lists: one command line that stands for many.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A flag that was given several values.
struct FlagList {
  std::string flag;
  std::vector<std::string> values;
};

struct SweptArguments {
  std::vector<FlagList> lists;         ///< in the order in which they were given
  std::vector<std::string> arguments;  ///< with the first value of each list
};

inline constexpr std::size_t kMostCombinations = 20'000;

/// The flags of mfsdp-sim that take lists.
[[nodiscard]] const std::vector<std::string>& swept_flags();

/// Splits the comma lists of those flags; a value that names an existing file is no list. Errors:
/// an empty or repeated value, more than kMostCombinations. parse_flags() judges all else.
[[nodiscard]] Result<SweptArguments> split_lists(const std::vector<std::string>& args);

}  // namespace mfsdp
