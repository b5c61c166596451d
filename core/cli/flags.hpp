// Flags as data: what a tool accepts, how each value is checked, and the one parser for them all.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/base/vocabulary.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {

/// Whether a value is a path, and of which kind.
enum class PathKind { none, file, folder };

/// The permitted values of a flag, for manuals and completion.
struct FlagValues {
  std::vector<std::string> names = {};  ///< of an enumeration
  PathKind paths = PathKind::none;
  std::string catalogue = {};  ///< folder of the scenarios whose entries are names: "models"
};

struct Flag {
  std::string name;   ///< with its dashes: "--gpus"
  std::string value;  ///< what --help calls the value: "N"; empty for a switch, which takes none
  std::string help;
  /// Stores the value (empty for a switch). The error states why the value is not permitted.
  std::function<Result<void>(const std::string&)> apply;
  bool repeatable = false;
  bool shapes_plan = false;    ///< contradicts --plan, which has decided it already
  bool takes_several = false;  ///< values up to the next flag, each applied on its own
  FlagValues values = {};
};

struct FlagGroup {
  std::string title;
  std::vector<Flag> flags;
};

/// Whole numbers that a flag takes, both ends included.
struct Range {
  std::int64_t lowest = 0;
  std::int64_t highest = std::numeric_limits<std::int64_t>::max();
};

/// The permitted values of flags that take ranks and seeds.
inline constexpr Range kRankRange{.lowest = 0, .highest = 1'048'575};
inline constexpr Range kSeeds{.lowest = 0};

/// Reads a whole number; the error names `flag` and the range.
[[nodiscard]] Result<std::int64_t> parse_integer(std::string_view text, std::string_view flag,
                                                 Range range);

/// Real numbers that a flag takes.
struct RealRange {
  double lowest = 0;
  double highest = 0;
  bool with_lowest = true;  ///< the ends themselves
  bool with_highest = true;
};

/// Reads a decimal number, with an exponent or without; the error names `flag` and the range.
[[nodiscard]] Result<double> parse_real(std::string_view text, std::string_view flag,
                                        RealRange range);

/// The parts between separators, empty ones too: "a,,b" has three.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// Text that is not empty and is UTF-8 (it ends up in JSON and in the store).
[[nodiscard]] Result<std::string> parse_text(const std::string& text, std::string_view flag);

/// A file's name: not empty, any bytes.
[[nodiscard]] Result<std::string> parse_path(const std::string& text, std::string_view flag);

/// An enumeration's value by its name in letters of any case.
template <class Enum>
[[nodiscard]] std::optional<Enum> parse_in_any_case(std::string_view text) {
  const auto value = parse<Enum>(text);
  return value ? value : parse<Enum>(lower_case(text));
}

/// The same; the error lists the names.
template <class Enum>
[[nodiscard]] Result<Enum> parse_choice(std::string_view text, std::string_view flag) {
  if (const auto value = parse_in_any_case<Enum>(text)) return *value;
  return fail(std::string(flag), in_quotes(text) + " is not one of " + name_list<Enum>());
}

/// All names of an enumeration, in order.
template <class Enum>
[[nodiscard]] std::vector<std::string> names_of() {
  return {Names<Enum>::values.begin(), Names<Enum>::values.end()};
}

// Makers of flags. Each binds the variable that it sets, which must outlive the parsing.

/// `read(text, name)` returns the value, or an error that states why it is not permitted.
[[nodiscard]] Flag bound_flag(const std::string& name, std::string value, std::string help,
                              auto& target, auto read) {
  const auto apply = [name, &target, read](const std::string& text) -> Result<void> {
    MFSDP_SET(target, read(text, name));
    return {};
  };
  return {.name = name, .value = std::move(value), .help = std::move(help), .apply = apply};
}

[[nodiscard]] Flag integer_flag(std::string name, std::string help, std::int64_t& target,
                                Range range);
[[nodiscard]] Flag integer_flag(std::string name, std::string help,
                                std::optional<std::int64_t>& target, Range range);
[[nodiscard]] Flag real_flag(std::string name, std::string help, double& target, RealRange range);
[[nodiscard]] Flag real_flag(std::string name, std::string help, std::optional<double>& target,
                             RealRange range);
[[nodiscard]] Flag text_flag(std::string name, std::string value, std::string help,
                             std::string& target);
[[nodiscard]] Flag path_flag(std::string name, std::string help,
                             std::optional<std::string>& target);
[[nodiscard]] Flag folder_flag(std::string name, std::string help,
                               std::optional<std::string>& target);
/// A path, or one of the names.
[[nodiscard]] Flag path_or_name_flag(std::string name, std::string value, std::string help,
                                     std::optional<std::string>& target,
                                     std::vector<std::string> names = {});
[[nodiscard]] Flag switch_flag(std::string name, std::string help, bool& target);

/// Target: the enumeration, or an optional of it if the flag has no default.
template <class Enum, class Target>
[[nodiscard]] Flag choice_flag_of(std::string name, std::string value, std::string help,
                                  Target& target) {
  Flag flag = bound_flag(name, std::move(value), std::move(help), target, parse_choice<Enum>);
  flag.values.names = names_of<Enum>();
  return flag;
}

template <class Enum>
[[nodiscard]] Flag choice_flag(std::string name, std::string value, std::string help,
                               Enum& target) {
  return choice_flag_of<Enum>(std::move(name), std::move(value), std::move(help), target);
}

template <class Enum>
[[nodiscard]] Flag choice_flag(std::string name, std::string value, std::string help,
                               std::optional<Enum>& target) {
  return choice_flag_of<Enum>(std::move(name), std::move(value), std::move(help), target);
}

/// Applies the arguments (without the program's name) in order. If a flag is given repeatedly and
/// is not repeatable, only the last one is applied. "-h" is "--help". Returns the names of the
/// given flags, with repetitions. An error lists all of these that occur:
/// - an unknown or abbreviated flag: the error names the flag that means the same, else the closest
///   in spelling, or states that it is not modelled;
/// - a missing or unexpected value, or a positional argument;
/// - a value that its flag rejects.
[[nodiscard]] Result<std::vector<std::string>> parse_flags(const std::vector<FlagGroup>& groups,
                                                           const std::vector<std::string>& args);

/// Notes for stderr about flags that parse_flags returned: the ones that were given repeatedly.
[[nodiscard]] std::vector<std::string> notes_on(const std::vector<FlagGroup>& groups,
                                                const std::vector<std::string>& given);

/// Names of all flags, in order.
[[nodiscard]] std::vector<std::string> flag_names(const std::vector<FlagGroup>& groups);

[[nodiscard]] bool contains(std::span<const std::string> names, std::string_view name);

}  // namespace mfsdp
