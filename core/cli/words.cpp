#include "core/cli/words.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

const Flag* flag_of(const std::vector<FlagGroup>& groups, const std::string& name) {
  for (const FlagGroup& group : groups) {
    const auto found = std::ranges::find(group.flags, name, &Flag::name);
    if (found != group.flags.end()) return &*found;
  }
  return nullptr;
}

bool looks_like_a_flag(const std::string& argument) {
  return argument.size() > 1 && argument.front() == '-';
}

}  // namespace

WordsAndFlags split_words(const std::vector<FlagGroup>& groups,
                          const std::vector<std::string>& args) {
  WordsAndFlags parts;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!looks_like_a_flag(args[i])) {
      parts.words.push_back(args[i]);
      continue;
    }
    parts.flags.push_back(args[i]);
    const Flag* flag = flag_of(groups, args[i]);  // "--name=value" is none of them
    if (flag == nullptr || flag->value.empty()) continue;
    while (i + 1 < args.size() && !args[i + 1].starts_with("--")) {
      parts.flags.push_back(args[++i]);
      if (!flag->takes_several) break;
    }
  }
  return parts;
}

}  // namespace mfsdp
