#include "sim/tool/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/base/quantity.hpp"
#include "core/cli/flags.hpp"
#include "core/cli/format.hpp"
#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

/// A list and its position among the arguments.
struct PlacedList {
  std::size_t argument = 0;
  std::string prefix;  ///< "--gpus=" where flag and value are one argument
  FlagList list;
};

Result<std::vector<std::string>> values_of(const std::string& text, const std::string& flag) {
  std::vector<std::string> values;
  for (const std::string& value : split(text, ',')) {
    if (value.empty())
      return fail(flag, in_quotes(text) + " has an empty value; expected a list like 8,16,32");
    if (contains(values, value))
      return fail(flag, in_quotes(text) + " lists " + in_quotes(value) + " twice");
    values.push_back(value);
  }
  return values;
}

bool is_list(const std::string& value) {
  std::error_code ignored;
  return value.find(',') != std::string::npos && !std::filesystem::exists(value, ignored);
}

std::string flag_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

bool is_given_again(const std::vector<std::string>& args, std::size_t i) {
  return std::any_of(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, args.end(),
                     [&](const std::string& other) { return flag_of(other) == flag_of(args[i]); });
}

/// The list that begins with argument i, if one does.
Result<std::optional<PlacedList>> list_at(const std::vector<std::string>& args, std::size_t i) {
  const std::string flag = flag_of(args[i]);
  if (!contains(swept_flags(), flag)) return std::nullopt;
  const bool joined = flag.size() < args[i].size();
  if (!joined && i + 1 == args.size()) return std::nullopt;
  const std::string value = joined ? args[i].substr(flag.size() + 1) : args[i + 1];
  if (!is_list(value)) return std::nullopt;
  MFSDP_LET(values, values_of(value, flag));
  return PlacedList{.argument = joined ? i : i + 1,
                    .prefix = joined ? flag + "=" : "",
                    .list = {.flag = flag, .values = std::move(values)}};
}

}  // namespace

const std::vector<std::string>& swept_flags() {
  static const std::vector<std::string> flags = [] {
    std::vector<std::string> all{"--model",        "--gpus",        "--gpu",    "--cluster",
                                 "--network-gbps", "--power-limit", "--tables", "--engine",
                                 "--cp",           "--tp",          "--pp"};
    for (const ConfigField& field : kConfigFields)
      if (field.takes_list) all.emplace_back(field.flag);
    return all;
  }();
  return flags;
}

Result<SweptArguments> split_lists(const std::vector<std::string>& args) {
  SweptArguments swept{.lists = {}, .arguments = args};
  std::size_t count = 1;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (is_given_again(args, i)) continue;  // the last one counts
    MFSDP_LET(list, list_at(args, i));
    if (!list) continue;
    count *= list->list.values.size();
    if (count > kMostCombinations)
      return fail(list->list.flag, fmt::format("the lists make more than {} combinations",
                                               format_count(std::int64_t{kMostCombinations})));
    swept.arguments[list->argument] = list->prefix + list->list.values.front();
    swept.lists.push_back(std::move(list->list));
  }
  return swept;
}

}  // namespace mfsdp
