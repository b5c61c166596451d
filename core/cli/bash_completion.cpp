// Completion for bash: one function for each tool.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/cli/manual.hpp"

namespace mfsdp {
namespace {

/// "_mfsdp_sim"
std::string function_of(std::string_view tool) {
  std::string name = "_" + std::string(tool);
  std::ranges::replace(name, '-', '_');
  return name;
}

/// "--a|--b", the pattern of a case: the flags that the rule chooses. Empty if it chooses none.
std::string pattern_of(const std::vector<FlagGroup>& groups, auto rule) {
  std::string pattern;
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      if (rule(flag)) pattern += (pattern.empty() ? "" : "|") + flag.name;
  return pattern;
}

/// The values that completion offers, as assignments in bash.
std::string offers(const FlagValues& values) {
  std::string out;
  if (!values.names.empty()) out += fmt::format(" names='{}'", fmt::join(values.names, " "));
  if (values.paths == PathKind::file) out += " paths=-f";
  if (values.paths == PathKind::folder) out += " paths=-d";
  return out;
}

/// A flag takes values up to the next flag. {0}: the indentation, {1}: the flags with several
/// values.
constexpr std::string_view kSeveral = R"({0}local latest='' i
{0}for ((i = COMP_CWORD - 1; i > 0; --i)); do
{0}  [[ ${{COMP_WORDS[i]}} == --* ]] && latest=${{COMP_WORDS[i]}} && break
{0}done
{0}case $latest in {1}) before=$latest ;; esac
)";

/// The lines that set `flags`, `names` and `paths` by the flag before the word.
std::string value_cases(const Manual& manual, const std::string& indent) {
  const auto& groups = manual.groups;
  std::string out = fmt::format("{}flags='{}'\n", indent, fmt::join(flag_names(groups), " "));
  const std::string several =
      pattern_of(groups, [](const Flag& flag) { return flag.takes_several; });
  if (!several.empty()) out += fmt::format(kSeveral, indent, several);
  out += indent + "case $before in\n";
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      if (const std::string offered = offers(flag.values); !offered.empty())
        out += fmt::format("{}  {}){} ;;\n", indent, flag.name, offered);
  const std::string others = pattern_of(
      groups, [](const Flag& flag) { return !flag.value.empty() && offers(flag.values).empty(); });
  if (!others.empty()) out += fmt::format("{}  {}) ;;\n", indent, others);
  std::string words = offers(manual.word_values);
  if (words.empty()) words = " names=$flags";
  return out + fmt::format("{}  *){} ;;\n{}esac\n", indent, words, indent);
}

/// The cases of each command, chosen by the first argument.
std::string command_cases(const Manual& manual) {
  Manual alone = manual;
  for (const Manual& command : manual.commands) alone.word_values.names.push_back(command.name);
  std::string out =
      "  local command=''\n  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n  case $command in\n";
  out += "    ''|-*)\n" + value_cases(alone, "      ") + "      ;;\n";
  for (const Manual& command : manual.commands)
    out += fmt::format("    {})\n{}      ;;\n", command.name, value_cases(command, "      "));
  return out + "  esac\n";
}

/// Finds the word and the flag before it. bash splits "--flag=value" into three words.
constexpr std::string_view kBegin =
    R"(  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local flags='' names='' paths=''
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";

constexpr std::string_view kEnd = R"(  [[ $word == -* ]] && names=$flags paths=''
  mapfile -t COMPREPLY < <(compgen -W "$names" -- "$word")
  if [[ -n $paths ]]; then
    local found
    mapfile -t found < <(compgen "$paths" -- "$word")
    COMPREPLY+=("${found[@]}")
    compopt -o filenames 2>/dev/null
  fi
}
)";

}  // namespace

std::string render_bash_completion(const Manual& manual) {
  const std::string& tool = manual.text.tool;
  const std::string function = function_of(tool);
  return fmt::format(
      "# bash completion of {}, written by {} --help-format bash\n{}() {{\n{}{}{}complete -F {} "
      "{}\n",
      tool, tool, function, kBegin,
      manual.commands.empty() ? value_cases(manual, "  ") : command_cases(manual), kEnd, function,
      tool);
}

}  // namespace mfsdp
