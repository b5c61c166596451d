// Completion for fish: one line for each flag.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cli/manual.hpp"
#include "core/cli/shell_text.hpp"

namespace mfsdp {
namespace {

std::string in_fish_quotes(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

/// -r: the flag needs a value; -f: no files; -F: files, although the tool takes none by default.
std::string value_options(const FlagValues& values) {
  std::string out;
  if (values.paths == PathKind::file) out += " -F";
  if (values.paths == PathKind::none) out += " -f";
  std::string offered = fmt::format("{}", fmt::join(values.names, " "));
  if (values.paths == PathKind::folder)
    out += fmt::format(" -f -a {}", in_fish_quotes(offered + " (__fish_complete_directories)"));
  else if (!offered.empty())
    out += " -a " + in_fish_quotes(offered);
  return out;
}

/// `condition`: when the lines apply, as an option of `complete`; empty: always.
std::string lines_of(const Manual& manual, const std::string& tool, const std::string& condition) {
  std::string out;
  for (const FlagGroup& group : manual.groups)
    for (const Flag& flag : group.flags)
      out += fmt::format("complete -c {}{} -l {}{} -d {}\n", tool, condition, flag.name.substr(2),
                         flag.value.empty() ? "" : " -r" + value_options(flag.values),
                         in_fish_quotes(flag.help));
  const FlagValues& words = manual.word_values;
  if (words.paths != PathKind::none || !words.names.empty())
    out += fmt::format("complete -c {}{}{}\n", tool, condition, value_options(words));
  return out;
}

}  // namespace

std::string render_fish_completion(const Manual& manual) {
  const std::string& tool = manual.text.tool;
  std::string out = fmt::format(
      "# fish completion of {0}, written by {0} --help-format fish\ncomplete -c {0} -f\n", tool);
  const std::string first = manual.commands.empty() ? "" : " -n __fish_use_subcommand";
  out += lines_of(manual, tool, first);
  for (const Manual& command : manual.commands) {
    out += fmt::format("complete -c {}{} -a {} -d {}\n", tool, first, command.name,
                       in_fish_quotes(command.summary));
    out +=
        lines_of(command, tool, fmt::format(" -n '__fish_seen_subcommand_from {}'", command.name));
  }
  return out;
}

}  // namespace mfsdp
