// The manual page of a tool: troff with the macros of man(7).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/cli/manual.hpp"

namespace mfsdp {
namespace {

constexpr std::array<std::string_view, 4> kTools{"mfsdp-exec", "mfsdp-report", "mfsdp-sim",
                                                 "mfsdp-verify"};

/// The environment variables that every tool reads.
const std::array<HelpTerm, 3> kEnvironment{
    {{"MFSDP_SCENARIOS", "a folder that takes the place of share/mfsdp/scenarios."},
     {"COLUMNS", "the width of text on a terminal."},
     {"NO_COLOR", "where it is not empty, text has no colours."}}};

/// Text that troff prints unchanged. A dash becomes a minus, which can be searched and copied.
std::string in_troff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\n')
      out += "\n.PP\n";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + in_troff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + in_troff(text) + "\\fR"; }

/// "Predicts memory." -> "predicts memory"
std::string as_phrase(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

/// A term with its meaning, indented.
std::string entry(const std::string& term, std::string_view meaning) {
  return fmt::format(".TP\n{}\n{}\n", term, in_troff(meaning));
}

/// The names that the help leaves out.
std::string names_text(const Flag& flag) {
  const auto is_said = [&](const std::string& name) {
    return flag.help.find(name) != std::string::npos;
  };
  const std::vector<std::string>& names = flag.values.names;
  const bool said = std::ranges::all_of(names, is_said) || !flag.values.catalogue.empty();
  if (said || names.empty()) return "";
  return fmt::format("; {}: {}", italic(flag.value),
                     in_troff(fmt::format("{}", fmt::join(names, ", "))));
}

std::string flag_entry(const Flag& flag) {
  const std::string value = flag.value.empty() ? "" : " " + italic(flag.value);
  return fmt::format(".TP\n{}{}\n{}{}{}\n", bold(flag.name), value, in_troff(flag.help),
                     names_text(flag), flag.repeatable ? "; may be repeated" : "");
}

std::string flags_of(const FlagGroup& group) {
  std::string out;
  for (const Flag& flag : group.flags) out += flag_entry(flag);
  return out;
}

std::string options_section(const Manual& manual) {
  std::string out = ".SH OPTIONS\n";
  for (const FlagGroup& group : manual.groups)
    out += fmt::format(".SS {}\n{}", in_troff(group.title), flags_of(group));
  if (!manual.text.lists.empty()) out += ".SS Lists\n" + in_troff(manual.text.lists) + "\n";
  return out;
}

std::string examples_of(const HelpText& text) {
  std::string out;
  for (const Example& example : text.examples)
    out += fmt::format(".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", in_troff(example.meaning),
                       in_troff(example.command));
  return out;
}

std::string statuses_of(const HelpText& text) {
  std::string out;
  for (const auto& [status, meaning] : exit_statuses(text))
    out += entry(bold(fmt::format("{}", status)), meaning + ".");
  return out;
}

/// A command with its flags. If an earlier command has the same group of flags, a reference
/// replaces it. `earlier`: maps the text of each group to the command that has it.
std::string command_section(const Manual& command, std::map<std::string, std::string>& earlier) {
  std::string out = fmt::format(".SS {}{}\n{}\n", in_troff(command.name),
                                command.words.empty() ? "" : " " + italic(command.words),
                                in_troff(command.text.purpose));
  for (const FlagGroup& group : command.groups) {
    const std::string flags = flags_of(group);
    const auto [found, is_new] = earlier.try_emplace(group.title + flags, command.name);
    out += fmt::format(".PP\n{}", italic(group.title));
    out += is_new ? ":\n" + flags : fmt::format(": as of {}.\n", bold(found->second));
  }
  if (!command.text.negative.empty())
    out += fmt::format(".PP\nExit status 1: {}.\n", in_troff(command.text.negative));
  return out + examples_of(command.text);
}

std::string commands_section(const Manual& manual) {
  if (manual.commands.empty()) return "";
  std::string out = ".SH COMMANDS\n";
  std::map<std::string, std::string> earlier;
  for (const Manual& command : manual.commands) out += command_section(command, earlier);
  return out;
}

std::string synopsis(const Manual& manual) {
  const std::string tool = bold(manual.text.tool);
  if (manual.commands.empty())
    return fmt::format(".SH SYNOPSIS\n{} [{} [{}]] ...\n", tool, italic("--flag"), italic("value"));
  return fmt::format(".SH SYNOPSIS\n{0} {1} [{2} ...] [{3} [{4}]] ...\n.br\n{0} {5} | {6}\n", tool,
                     italic("command"), italic("word"), italic("--flag"), italic("value"),
                     bold("--help"), bold("--version"));
}

std::string see_also(std::string_view tool) {
  std::string out;
  for (const std::string_view other : kTools)
    if (other != tool) out += fmt::format("{}{}(1)", out.empty() ? "" : ",\n", bold(other));
  return ".SH SEE ALSO\n" + out + "\n";
}

std::string entries(std::string_view title, std::span<const HelpTerm> terms) {
  std::string out = fmt::format(".SH {}\n", title);
  for (const auto& [name, meaning] : terms) out += entry(bold(name), meaning);
  return out;
}

std::string upper_case(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

}  // namespace

std::string render_man_page(const Manual& manual) {
  const HelpText& text = manual.text;
  std::string out = fmt::format(".TH \"{}\" 1 \"\" \"mfsdp {}\" \"User commands\"\n.nh\n.ad l\n",
                                in_troff(upper_case(text.tool)), version());
  out +=
      fmt::format(".SH NAME\n{} \\- {}\n", in_troff(text.tool), in_troff(as_phrase(text.purpose)));
  out += synopsis(manual);
  out += fmt::format(".SH DESCRIPTION\n{}\n", in_troff(text.description));
  if (!text.details.empty()) out += fmt::format(".PP\n{}\n", in_troff(text.details));
  out += commands_section(manual) + options_section(manual);
  out += ".SH EXIT STATUS\n" + statuses_of(text);
  out += entries("ENVIRONMENT", kEnvironment) + entries("FILES", text.files);
  out += ".SH EXAMPLES\n" + examples_of(text);
  return out + see_also(text.tool);
}

}  // namespace mfsdp
