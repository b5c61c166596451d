// Arguments of which some are no flags: the runs and files that a command is about.
#pragma once

#include <string>
#include <vector>

#include "core/cli/flags.hpp"

namespace mfsdp {

struct WordsAndFlags {
  std::vector<std::string> words;  ///< in order
  std::vector<std::string> flags;  ///< with their values: what parse_flags takes
};

/// Tells words from flags and the values of flags. A flag that the groups lack stays with the
/// flags, where parse_flags says so.
[[nodiscard]] WordsAndFlags split_words(const std::vector<FlagGroup>& groups,
                                        const std::vector<std::string>& args);

}  // namespace mfsdp
