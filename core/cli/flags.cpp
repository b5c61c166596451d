#include "core/cli/flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>

#include "core/base/closest.hpp"
#include "core/cli/other_words.hpp"

namespace mfsdp {
namespace {

namespace po = boost::program_options;

// Long flags with "--name value" or "--name=value"; no abbreviations, no short forms.
constexpr int kStyle = po::command_line_style::allow_long |
                       po::command_line_style::long_allow_adjacent |
                       po::command_line_style::long_allow_next;

po::options_description describe(const std::vector<FlagGroup>& groups) {
  po::options_description description;
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) {
      const std::string name = flag.name.substr(2);
      if (flag.value.empty())
        description.add_options()(name.c_str(), "");
      else if (flag.takes_several)
        description.add_options()(name.c_str(), po::value<std::vector<std::string>>()->multitoken(),
                                  "");
      else
        description.add_options()(name.c_str(), po::value<std::string>(), "");
    }
  return description;
}

const Flag* find_flag(const std::vector<FlagGroup>& groups, const std::string& name) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      if (flag.name == name) return &flag;
  return nullptr;
}

/// Whether one flag can be a misspelling of the other: one letter differs, or a third of them.
bool resembles(std::string_view dashed, std::string_view flag) {
  constexpr std::size_t kShare = 3;
  constexpr std::size_t kDashes = 2;
  return flag.starts_with(dashed) ||
         edit_distance(dashed, flag) <= std::max<std::size_t>(1, (flag.size() - kDashes) / kShare);
}

Error unknown_flag(const std::vector<FlagGroup>& groups, std::string token) {
  token = token.substr(0, token.find('='));
  const std::string dashed =
      "--" + token.substr(std::min(token.find_first_not_of('-'), token.size()));
  const std::vector<std::string> names = flag_names(groups);
  if (!contains(names, dashed))
    if (const auto about = about_foreign_flag(dashed, names)) return {token, *about};
  // Only after "--" is a flag that exists no flag.
  if (token == dashed && contains(names, dashed))
    return {"", fmt::format("'--' before {} ends the flags: leave it out", in_quotes(token))};
  const std::string closest = closest_to(dashed, names);
  return {"", fmt::format("unknown flag {}; {}", in_quotes(token),
                          resembles(dashed, closest) ? fmt::format("did you mean '{}'?", closest)
                                                     : "--help lists all flags")};
}

Error unexpected_argument(const std::vector<FlagGroup>& groups, const std::string& token) {
  if (token.size() > 1 && token.front() == '-') return unknown_flag(groups, token);
  return {"", fmt::format("unexpected argument {}; everything is given by flags, see --help",
                          in_quotes(token))};
}

/// Boost's error about the form of the arguments, in the words of this tool.
Error syntax_error(const std::vector<FlagGroup>& groups, const po::error& error) {
  if (const auto* syntax = dynamic_cast<const po::invalid_command_line_syntax*>(&error)) {
    const std::string name = syntax->get_option_name();
    if (syntax->kind() == po::invalid_syntax::extra_parameter) return {name, "takes no value"};
    if (const Flag* flag = find_flag(groups, name))
      return {name, fmt::format("needs a value: {} {}", name, flag->value)};
  }
  return {"", error.what()};
}

/// Takes the flag `name` and its value, if it has one, out of the arguments. False if it is not
/// there.
bool remove_flag(std::vector<std::string>& args, const std::string& name) {
  const auto found = std::ranges::find_if(args, [&](const std::string& argument) {
    return argument.substr(0, argument.find('=')) == name.substr(0, name.find('='));
  });
  if (found == args.end()) return false;
  const bool adjacent = found->find('=') != std::string::npos;
  const auto next = args.erase(found);
  if (!adjacent && next != args.end() && !next->starts_with('-')) args.erase(next);
  return true;
}

/// The arguments as Boost parses them. Unknown flags and other syntax errors are added to
/// `reasons`.
std::vector<po::option> take_apart(const std::vector<FlagGroup>& groups,
                                   std::vector<std::string> args, Reasons& reasons) {
  const po::options_description description = describe(groups);
  while (true) {
    try {
      return po::command_line_parser(args).options(description).style(kStyle).run().options;
    } catch (const po::unknown_option& unknown) {
      reasons.add(unknown_flag(groups, unknown.get_option_name()));
      if (!remove_flag(args, unknown.get_option_name())) return {};
    } catch (const po::error& error) {
      Error mistake = syntax_error(groups, error);
      const std::string name = mistake.where;
      reasons.add(std::move(mistake));
      if (name.empty() || !remove_flag(args, name)) return {};
    }
  }
}

/// Applies a value. An error names the value that means the same here, if one is known.
Result<void> apply_value(const Flag& flag, const std::string& value) {
  auto outcome = flag.apply(value);
  const auto about = about_foreign_value(flag.name, value);
  if (!outcome && about) outcome.error().what += "; " + *about;
  return outcome;
}

/// Boost reads "--gpus --foo" as --gpus with the value "--foo". The user forgot the value.
bool value_is_a_flag(const po::option& option) {
  return option.original_tokens.size() >= 2 && option.original_tokens[1].starts_with("--");
}

}  // namespace

Result<std::int64_t> parse_integer(std::string_view text, std::string_view flag, Range range) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  const bool whole = code == std::errc() && stop == end;
  if (whole && value >= range.lowest && value <= range.highest) return value;
  const bool too_large = code == std::errc::result_out_of_range && stop == end;
  return fail(std::string(flag), fmt::format("{} is not {} from {} to {}", in_quotes(text),
                                             whole || too_large ? "in the range" : "a whole number",
                                             range.lowest, range.highest));
}

Result<double> parse_real(std::string_view text, std::string_view flag, RealRange range) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  const bool number = code == std::errc() && stop == end && std::isfinite(value);
  const bool above = range.with_lowest ? value >= range.lowest : value > range.lowest;
  const bool below = range.with_highest ? value <= range.highest : value < range.highest;
  if (number && above && below) return value;
  return fail(std::string(flag),
              fmt::format("{} is not a number {} {} {} {}", in_quotes(text),
                          range.with_lowest ? "of at least" : "above", range.lowest,
                          range.with_highest ? "and at most" : "and below", range.highest));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::string> parse_text(const std::string& text, std::string_view flag) {
  if (text.empty()) return fail(std::string(flag), "the value is empty");
  if (!is_utf8(text)) return fail(std::string(flag), in_quotes(text) + " is not UTF-8");
  return text;
}

Result<std::string> parse_path(const std::string& text, std::string_view flag) {
  if (text.empty()) return fail(std::string(flag), "the value is empty; a file is expected");
  return text;
}

namespace {

/// A whole number for a variable of either type.
Flag whole(std::string name, std::string help, auto& target, Range range) {
  return bound_flag(name, "N", std::move(help), target,
                    [range](const std::string& text, const std::string& flag) {
                      return parse_integer(text, flag, range);
                    });
}

Flag real(std::string name, std::string help, auto& target, RealRange range) {
  return bound_flag(name, "X", std::move(help), target,
                    [range](const std::string& text, const std::string& flag) {
                      return parse_real(text, flag, range);
                    });
}

}  // namespace

Flag integer_flag(std::string name, std::string help, std::int64_t& target, Range range) {
  return whole(std::move(name), std::move(help), target, range);
}

Flag integer_flag(std::string name, std::string help, std::optional<std::int64_t>& target,
                  Range range) {
  return whole(std::move(name), std::move(help), target, range);
}

Flag real_flag(std::string name, std::string help, double& target, RealRange range) {
  return real(std::move(name), std::move(help), target, range);
}

Flag real_flag(std::string name, std::string help, std::optional<double>& target, RealRange range) {
  return real(std::move(name), std::move(help), target, range);
}

Flag text_flag(std::string name, std::string value, std::string help, std::string& target) {
  return bound_flag(name, std::move(value), std::move(help), target, parse_text);
}

Flag path_flag(std::string name, std::string help, std::optional<std::string>& target) {
  Flag flag = bound_flag(name, "FILE", std::move(help), target, parse_path);
  flag.values.paths = PathKind::file;
  return flag;
}

Flag folder_flag(std::string name, std::string help, std::optional<std::string>& target) {
  Flag flag = bound_flag(name, "DIR", std::move(help), target, parse_path);
  flag.values.paths = PathKind::folder;
  return flag;
}

Flag path_or_name_flag(std::string name, std::string value, std::string help,
                       std::optional<std::string>& target, std::vector<std::string> names) {
  Flag flag = bound_flag(name, std::move(value), std::move(help), target, parse_path);
  flag.values = {.names = std::move(names), .paths = PathKind::file};
  return flag;
}

Flag switch_flag(std::string name, std::string help, bool& target) {
  const auto apply = [&target](const std::string&) -> Result<void> {
    target = true;
    return {};
  };
  return {.name = std::move(name), .value = "", .help = std::move(help), .apply = apply};
}

Result<std::vector<std::string>> parse_flags(const std::vector<FlagGroup>& groups,
                                             const std::vector<std::string>& args) {
  Reasons reasons;
  std::optional<Error> unexpected;  // where nothing else is wrong: else it may follow from that
  std::vector<std::string> given;
  std::vector<const Flag*> flags;                // of each name given
  std::vector<std::vector<std::string>> values;  // of each name given
  for (const po::option& option : take_apart(groups, args, reasons)) {
    const bool asks_help = option.position_key >= 0 && option.original_tokens.front() == "-h";
    if (option.position_key >= 0 && !asks_help) {
      if (!unexpected) unexpected = unexpected_argument(groups, option.original_tokens.front());
      continue;
    }
    const std::string name = asks_help ? "--help" : "--" + option.string_key;
    const Flag* flag = find_flag(groups, name);
    if (!flag) {
      reasons.add(unknown_flag(groups, name));
      continue;
    }
    if (value_is_a_flag(option) || (option.value.empty() && !flag->value.empty())) {
      reasons.add({name, fmt::format("needs a value: {} {}", name, flag->value)});
      continue;
    }
    given.push_back(name);
    flags.push_back(flag);
    values.push_back(flag->value.empty() ? std::vector<std::string>{""} : option.value);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const bool overridden =
        !flags[i]->repeatable && contains(std::span(given).subspan(i + 1), given[i]);
    if (overridden) continue;
    for (const std::string& value : values[i]) reasons.add(apply_value(*flags[i], value));
  }
  if (unexpected && reasons.empty()) reasons.add(*unexpected);
  MFSDP_TRY(reasons.verdict());
  return given;
}

std::vector<std::string> notes_on(const std::vector<FlagGroup>& groups,
                                  const std::vector<std::string>& given) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto before = std::span(given).first(i);
    const auto after = std::span(given).subspan(i + 1);
    const Flag* flag = find_flag(groups, given[i]);
    const bool takes_one = flag && !flag->repeatable && !flag->value.empty();
    if (takes_one && !contains(before, given[i]) && contains(after, given[i]))
      notes.push_back(fmt::format("{} is given {} times; the last one counts", given[i],
                                  std::ranges::count(given, given[i])));
  }
  return notes;
}

std::vector<std::string> flag_names(const std::vector<FlagGroup>& groups) {
  std::vector<std::string> names;
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) names.push_back(flag.name);
  return names;
}

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace mfsdp
