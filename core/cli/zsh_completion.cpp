// Completion for zsh: one specification for each flag, as _arguments takes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cli/manual.hpp"
#include "core/cli/shell_text.hpp"

namespace mfsdp {
namespace {

std::string in_zsh_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// The action of _arguments for a value. A blank: completion offers nothing.
std::string action_of(const FlagValues& values) {
  const std::string names = fmt::format("{}", fmt::join(values.names, " "));
  const std::string paths = values.paths == PathKind::folder ? "_files -/" : "_files";
  if (values.paths == PathKind::none) return names.empty() ? " " : "(" + names + ")";
  return names.empty() ? paths : fmt::format("{{compadd -- {}; {}}}", names, paths);
}

std::string specification(const Flag& flag) {
  std::string text = flag.repeatable ? "*" : "";
  // With "=": the value may be the next word or follow that sign.
  text += flag.name + (flag.value.empty() ? "" : "=");
  text += "[" + escaped(flag.help, "[]\\") + "]";
  if (flag.value.empty()) return in_zsh_quotes(text);
  return in_zsh_quotes(text + (flag.takes_several ? ":*--*:" : ":") + escaped(flag.value, ":") +
                       ":" + action_of(flag.values));
}

/// The call of _arguments, with one line for each flag.
std::string arguments(const Manual& manual, const std::string& indent, const std::string& more) {
  std::string out = indent + "_arguments";
  for (const FlagGroup& group : manual.groups)
    for (const Flag& flag : group.flags)
      out += fmt::format(" \\\n{}  {}", indent, specification(flag));
  if (!more.empty()) out += fmt::format(" \\\n{}  {}", indent, more);
  return out + "\n";
}

std::string words_specification(const Manual& command) {
  if (command.words.empty()) return "";
  return in_zsh_quotes("*:" + escaped(command.words, ":[]") + ":" + action_of(command.word_values));
}

std::string body(const Manual& manual) {
  if (manual.commands.empty()) return arguments(manual, "  ", "");
  std::string out = "  local state line\n  local -A opt_args\n  local -a commands=(\n";
  for (const Manual& command : manual.commands)
    out +=
        fmt::format("    {}\n", in_zsh_quotes(command.name + ":" + escaped(command.summary, ":")));
  out += "  )\n";
  out += arguments(manual, "  ", "'1:command:->command' '*::word:->word'");
  out += "  if [[ $state == command ]]; then\n    _describe command commands\n    return\n  fi\n";
  out += "  case $line[1] in\n";
  for (const Manual& command : manual.commands)
    out += fmt::format("    {})\n{}      ;;\n", command.name,
                       arguments(command, "      ", words_specification(command)));
  return out + "  esac\n";
}

}  // namespace

std::string render_zsh_completion(const Manual& manual) {
  const std::string& tool = manual.text.tool;
  // zsh autoloads the file _TOOL as the body of a function of that name, which replaces itself on
  // its first call. If it is sourced, the file registers the function.
  return fmt::format(
      "#compdef {0}\n# zsh completion of {0}, written by {0} --help-format zsh\n"
      "_{0}() {{\n{1}}}\n\n"
      "if [[ $funcstack[1] == _{0} ]]; then\n  _{0} \"$@\"\nelse\n  compdef _{0} {0}\nfi\n",
      tool, body(manual));
}

}  // namespace mfsdp
