#include "reports/commands/command.hpp"

#include <fmt/format.h>

#include "core/cli/words.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {

std::string usage_of(const WordRule& rule) {
  if (!rule.usage.empty() || rule.name.empty()) return rule.usage;
  if (rule.least == 0) return "[" + rule.name + "...]";
  std::string text;
  for (std::size_t i = 1; i < rule.least; ++i) text += rule.name + " ";
  return text + rule.name + "...";
}

Result<void> read_arguments(const std::vector<std::string>& args,
                            const std::vector<FlagGroup>& groups, const WordRule& rule,
                            const std::string& command, ReportOptions& options) {
  WordsAndFlags parts = split_words(groups, args);
  MFSDP_LET(given, parse_flags(groups, parts.flags));
  options.notes = notes_on(groups, given);
  if (options.help || options.version) return {};
  const std::size_t count = parts.words.size();
  if (rule.name.empty() && count > 0)
    return fail(command, fmt::format("unexpected argument {}; see mfsdp-report {} --help",
                                     in_quotes(parts.words.front()), command));
  if (count < rule.least)
    return fail(command,
                fmt::format("needs {} {}, found {}; see mfsdp-report {} --help",
                            rule.least == rule.most ? fmt::format("{}", rule.least)
                                                    : fmt::format("at least {}", rule.least),
                            rule.name, count, command));
  if (count > rule.most)
    return fail(command, fmt::format("takes {} {} at most, found {}: unexpected {}", rule.most,
                                     rule.name, count, in_quotes(parts.words[rule.most])));
  options.words = std::move(parts.words);
  return {};
}

bool described(const ReportOptions& options, const HelpText& help,
               const std::vector<FlagGroup>& groups, const Session& session) {
  if (!options.help && !options.version) return false;
  session.out << (options.help ? wrap_text(render_help(help, groups), session.style)
                               : render_version(session.tool));
  return true;
}

}  // namespace mfsdp
