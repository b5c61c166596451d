#include "core/cli/options_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/base/toml_fields.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kOptions = "--options";

/// One flag of the file.
struct FileFlag {
  GivenFlag flag;
  std::string place;  ///< "FILE:LINE"
};

/// The flag's name, or the name of the flag that means the same.
std::string_view meant_by(std::string_view flag) {
  return flag == "--world-size" ? "--gpus" : flag;
}

std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

/// The value of the last --options.
Result<std::optional<std::string>> options_path(const std::vector<std::string>& arguments) {
  std::optional<std::string> path;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (name_of(arguments[i]) != kOptions) continue;
    if (arguments[i].size() > kOptions.size())
      path = arguments[i].substr(kOptions.size() + 1);
    else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
      path = arguments[i + 1];
    else
      return fail(std::string(kOptions), "needs a value: --options FILE");
  }
  return path;
}

Result<GivenFlag> flag_of(const TomlEntry& entry, const std::string& place) {
  GivenFlag flag{.name = "--" + entry.key, .value = {}};
  std::ranges::replace(flag.name, '_', '-');
  if (flag.name == kOptions) return fail(place, "options belongs on the command line");
  if (const auto* text = std::get_if<std::string>(&entry.value))
    flag.value = *text;
  else if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    flag.value = fmt::format("{}", *integer);
  else if (const auto* real = std::get_if<double>(&entry.value))
    flag.value = fmt::format("{}", *real);
  else if (std::get_if<bool>(&entry.value) == nullptr)
    return fail(place, fmt::format("{} must be text in quotes, a number, true or false",
                                   printable(entry.key)));
  return flag;
}

/// The error names all keys that cannot be flags.
Result<std::vector<FileFlag>> read_options_file(const std::string& path) {
  MFSDP_LET(text, read_file(path, "a TOML file of flags", kMostTomlBytes));
  MFSDP_LET(fields, TomlFields::parse(text, path));
  std::vector<FileFlag> flags;
  Reasons reasons;
  for (const TomlEntry& entry : fields.entries()) {
    const std::string place = fmt::format("{}:{}", path, entry.line);
    auto flag = flag_of(entry, place);
    if (!reasons.add(flag)) continue;
    const auto same = std::ranges::find(
        flags, flag->name, [](const FileFlag& other) -> const auto& { return other.flag.name; });
    if (same != flags.end()) {
      reasons.add(fail(place, fmt::format("{} is there twice: {} has it too", printable(entry.key),
                                          same->place)));
      continue;
    }
    const auto* given = std::get_if<bool>(&entry.value);
    if (given == nullptr || *given) flags.push_back({.flag = std::move(*flag), .place = place});
  }
  MFSDP_TRY(reasons.verdict());
  return flags;
}

/// The error about a flag of the file, with the line of the flag.
Error at_line_of(Error error, const std::vector<FileFlag>& flags) {
  for (const auto& [flag, place] : flags) {
    const bool unknown =
        error.where.empty() && error.what.find(in_quotes(flag.name)) != std::string::npos;
    if (error.where != flag.name && !unknown) continue;
    error.where = error.where.empty() ? place : fmt::format("{}: {}", place, error.where);
    break;
  }
  for (Error& other : error.also) other = at_line_of(std::move(other), flags);
  return error;
}

}  // namespace

Result<ExitCode> with_options_file(
    const std::vector<std::string>& arguments,
    const std::function<Result<ExitCode>(const std::vector<std::string>&)>& work) {
  MFSDP_LET(path, options_path(arguments));
  if (!path) return work(arguments);
  MFSDP_LET(flags, read_options_file(*path));
  std::erase_if(flags, [&](const FileFlag& one) {
    return std::ranges::any_of(arguments, [&](const std::string& argument) {
      return meant_by(name_of(argument)) == meant_by(one.flag.name);
    });
  });
  std::vector<std::string> all;
  for (const auto& [flag, place] : flags)
    all.push_back(flag.value.empty() ? flag.name : flag.name + "=" + flag.value);
  all.insert(all.end(), arguments.begin(), arguments.end());
  auto outcome = work(all);
  if (!outcome) outcome.error() = at_line_of(std::move(outcome.error()), flags);
  return outcome;
}

std::string render_options_file(const std::vector<std::string>& comments,
                                const std::vector<GivenFlag>& flags) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string text;
  for (const std::string& comment : comments) text += "# " + comment + "\n";
  for (const auto& [name, value] : flags) {
    // Integers as TOML writes them; JSON strings are valid TOML strings.
    const bool whole = std::ranges::all_of(value, is_digit) && value.size() < 19 &&
                       (value == "0" || !value.starts_with('0'));
    const std::string quoted = nlohmann::json(value).dump(-1, ' ', true);
    const std::string& shown = value.empty() ? "true" : whole ? value : quoted;
    text += fmt::format("{} = {}\n", name.substr(2), shown);
  }
  return text;
}

}  // namespace mfsdp
