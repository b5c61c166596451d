#include "verify/traces/configuration.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/byte_order_mark.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/text.hpp"
#include "verify/traces/shell_words.hpp"

namespace mfsdp::traces {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

/// A leaf of a nested configuration, or a flag.
struct Entry {
  std::string path;  ///< "ddp.nccl_ub"; for a flag its spelling
  std::string value;
};

struct Parts {
  std::vector<Entry> entries;
  Variables variables;
};

bool is_flag_word(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && word[2] != '-';
}

bool is_variable_name(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

std::string_view last_name(std::string_view path) { return path.substr(path.rfind('.') + 1); }
std::string_view parent_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}

/// Maps the words for true, false and none of Python, JSON and YAML to one spelling.
std::string normal_value(std::string_view text) {
  const std::string word = lower_case(text);
  if (word == "true" || word == "yes" || word == "on") return "true";
  if (word == "false" || word == "no" || word == "off") return "false";
  if (word == "null" || word == "none" || word == "~") return "none";
  return std::string(text);
}

// ---- a command line -----------------------------------------------------------------------------

class WordReader {
 public:
  Parts read(std::string_view text) {
    take(shell_words(text));
    return std::move(parts_);
  }

 private:
  void take(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word == "unset") {
        while (i + 1 < words.size() && forget(words[i + 1])) ++i;
      } else if (word.find(" --") != std::string::npos) {
        take(shell_words(word.substr(word.find("--"))));  // OPTIONS="--x --y"
      } else if (is_flag_word(word)) {
        const bool alone =
            i + 1 == words.size() || words[i + 1].starts_with('-') || is_assignment(words[i + 1]);
        take_flag(word, alone ? nullptr : &words[i + 1]);
      } else {
        take_assignment(word);
      }
    }
  }

  /// Whether the word is an argument of `unset`: "-v" or a variable. Removes the variable.
  bool forget(const std::string& word) {
    if (word != "-v" && !is_variable_name(word)) return false;
    parts_.variables.erase(word);
    return true;
  }

  /// Expands "${X:-1}", "${X-1}" and "${X:=1}" to the value that the script gave X before, or else
  /// to the default. Does not change other values.
  std::string filled_in(const std::string& value) const {
    if (!value.starts_with("${") || !value.ends_with("}")) return value;
    const std::string inner = value.substr(2, value.size() - 3);
    const auto name_end = inner.find_first_of(":-");
    if (name_end == std::string::npos) return value;
    const std::string sign = inner.substr(name_end, inner[name_end] == ':' ? 2 : 1);
    if (sign != ":-" && sign != ":=" && sign != "-") return value;
    const auto set = parts_.variables.find(inner.substr(0, name_end));
    if (set != parts_.variables.end()) return set->second;
    const std::string otherwise = inner.substr(name_end + sign.size());
    return otherwise.find('$') == std::string::npos ? otherwise : value;
  }

  static bool is_assignment(std::string_view word) {
    const auto equals = word.find('=');
    return equals != std::string_view::npos && equals > 0 &&
           (is_variable_name(word.substr(0, equals)) ||
            word.substr(0, equals).find('.') != std::string_view::npos);
  }

  void take_flag(const std::string& word, const std::string* next) {
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      parts_.entries.push_back(
          {word.substr(0, equals), normal_value(filled_in(word.substr(equals + 1)))});
    } else {
      parts_.entries.push_back({word, next == nullptr ? "true" : normal_value(filled_in(*next))});
    }
  }

  void take_assignment(const std::string& word) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) return;
    const std::string name = word.substr(0, equals);
    if (is_variable_name(name)) {
      parts_.variables[name] = filled_in(word.substr(equals + 1));
    } else if (name.find('.') != std::string::npos) {
      // Hydra: "+" adds, "++" overrides.
      const auto start = std::min(name.find_first_not_of('+'), name.size());
      parts_.entries.push_back({name.substr(start), normal_value(word.substr(equals + 1))});
    }
  }

  Parts parts_;
};

// ---- JSON ---------------------------------------------------------------------------------------

std::string text_of(const nlohmann::json& value) {
  if (value.is_string()) return normal_value(value.get_ref<const std::string&>());
  if (value.is_null()) return "none";
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void take_json(const nlohmann::json& node, const std::string& path, Parts& parts) {
  static constexpr std::array variables{"env", "env_vars", "environment"};
  const bool names_variables =
      std::ranges::find(variables, last_name(path)) != variables.end() && node.is_object();
  if (!node.is_object()) {
    parts.entries.push_back({path, text_of(node)});
    return;
  }
  for (const auto& [key, value] : node.items()) {
    if (names_variables && is_variable_name(key) && !value.is_structured()) {
      // The value that a process would see: 1, not "true".
      parts.variables[key] = value.is_string() ? value.get<std::string>() : value.dump();
    } else {
      take_json(value, path.empty() ? key : path + "." + key, parts);
    }
  }
}

// ---- both ---------------------------------------------------------------------------------------

/// Some flags of Megatron-LM have other names than the settings that they set.
struct Alias {
  std::string_view flag;
  std::string_view name;
};
constexpr std::array kAliases{
    Alias{"use_nccl_ub", "nccl_ub"},
    Alias{"use_custom_fsdp", "use_megatron_fsdp"},  // its former name
    Alias{"zero_dp_strategy", "data_parallel_sharding_strategy"},
    Alias{"ddp_num_buckets", "num_buckets"},
    Alias{"ddp_bucket_size", "bucket_size"},
};

/// If a flag is repeated, the last one counts.
void forget_flags(Configuration& configuration, const std::string& name) {
  const auto [begin, end] = configuration.settings.equal_range(name);
  for (auto row = begin; row != end;)
    row = is_flag_word(row->second.place) ? configuration.settings.erase(row) : std::next(row);
}

/// "--no-gradient-accumulation-fusion" -> {"gradient_accumulation_fusion", false}
void add_setting(Configuration& configuration, const Entry& entry) {
  std::string name(last_name(entry.path));
  std::string value = entry.value;
  if (is_flag_word(entry.path)) {
    name = entry.path.substr(2);
    std::ranges::replace(name, '-', '_');
    if (name.starts_with("no_") && value == "true") {
      name.erase(0, 3);
      value = "false";
    }
  }
  const auto* alias = std::ranges::find(kAliases, name, &Alias::flag);
  if (alias != kAliases.end()) name = alias->name;
  if (is_flag_word(entry.path)) forget_flags(configuration, name);
  configuration.settings.emplace(std::move(name), Setting{entry.path, std::move(value)});
}

/// The objects of verl that configure a role; none if the file is one configuration.
std::set<std::string, std::less<>> scopes_of(const std::vector<Entry>& entries) {
  std::set<std::string, std::less<>> scopes;
  for (const Entry& entry : entries) {
    const std::string_view parent = parent_of(entry.path);
    const std::string_view part = last_name(parent);
    if (last_name(entry.path) == "use_megatron_fsdp" && !parent.empty() && part != "dist" &&
        part != "ddp" && !is_flag_word(entry.path))
      scopes.emplace(parent);
  }
  return scopes;
}

std::vector<Configuration> configurations_of(const Parts& parts, const std::string& where) {
  const auto scopes = scopes_of(parts.entries);
  std::vector<Configuration> list;
  const auto add = [&](const std::string& scope) {
    Configuration configuration{.where = scope.empty() ? where : where + ": " + printable(scope),
                                .environment = parts.variables};
    for (const Entry& entry : parts.entries)
      if (scope.empty() || entry.path.starts_with(scope + ".")) add_setting(configuration, entry);
    list.push_back(std::move(configuration));
  };
  for (const std::string& scope : scopes) add(scope);
  if (scopes.empty()) add("");
  return list;
}

}  // namespace

bool Configuration::is_on(std::string_view name) const {
  const auto [begin, end] = settings.equal_range(name);
  return std::any_of(begin, end, [](const auto& row) {
    const std::string& value = row.second.value;
    return value != "false" && value != "none" && value != "0" && !value.empty();
  });
}

bool Configuration::is_off(std::string_view name) const {
  const auto [begin, end] = settings.equal_range(name);
  return std::any_of(begin, end, [](const auto& row) { return row.second.value == "false"; });
}

std::optional<Setting> Configuration::find(std::string_view name) const {
  const auto [begin, end] = settings.equal_range(name);
  const auto found = std::find_if(begin, end, [](const auto& row) {
    return row.second.value != "none" && row.second.value.find('$') == std::string::npos;
  });
  if (found == end) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> Configuration::number(std::string_view name) const {
  const auto setting = find(name);
  if (!setting) return std::nullopt;
  std::int64_t value = 0;
  const char* end = setting->value.data() + setting->value.size();
  const auto [stop, error] = std::from_chars(setting->value.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string_view Configuration::variable(std::string_view name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

bool Configuration::is_flag(std::string_view name) const {
  const auto [begin, end] = settings.equal_range(name);
  return std::any_of(begin, end, [](const auto& row) { return is_flag_word(row.second.place); });
}

Result<std::vector<Configuration>> read_configurations(std::string_view text,
                                                       const std::string& where) {
  text = without_byte_order_mark(text);
  const auto start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos)
    return fail(where, "expected a configuration as JSON or as flags, got nothing");
  Parts parts;
  if (text[start] == '{') {
    MFSDP_LET(json, parse_python_json(text, where));
    take_json(json, "", parts);
  } else {
    if (!is_utf8(text)) return fail(where, "expected text, got bytes that are not UTF-8");
    parts = WordReader().read(text);
  }
  if (parts.entries.empty() && parts.variables.empty())
    return fail(where, "expected flags (--use-megatron-fsdp), settings (a.b=c) or variables (A=1)");
  return configurations_of(parts, where);
}

}  // namespace mfsdp::traces
