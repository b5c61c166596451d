// Command lines that contain words besides flags: the runs and files of a command.
#pragma once

#include <string>
#include <vector>

#include "core/cli/flags.hpp"

namespace mfsdp {

struct WordsAndFlags {
  std::vector<std::string> words;  ///< in order
  std::vector<std::string> flags;  ///< with their values: what parse_flags takes
};

/// Separates words from flags and their values. A flag that is not in the groups stays with the
/// flags, and parse_flags reports it.
[[nodiscard]] WordsAndFlags split_words(const std::vector<FlagGroup>& groups,
                                        const std::vector<std::string>& args);

}  // namespace mfsdp
