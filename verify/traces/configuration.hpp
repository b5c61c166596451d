// A training run's configuration as other trainers write it: Megatron-LM's command line, a nested
// configuration of Megatron-Bridge or verl as JSON, or overrides ("ddp.nccl_ub=true").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp::traces {

struct Setting {
  std::string place;  ///< "--use-nccl-ub", "ddp.nccl_ub"
  std::string value;  ///< "true", "false", "none", a number or text

  friend bool operator==(const Setting&, const Setting&) = default;
};

/// The settings of one configuration, by their last name in snake_case ("nccl_ub").
struct Configuration {
  std::string where;  ///< file; also the object in it if the file has several configurations
  std::multimap<std::string, Setting, std::less<>> settings = {};
  std::map<std::string, std::string, std::less<>> environment;  ///< empty: not known

  /// Whether any place sets it to a value other than false, none, 0 or the empty text.
  [[nodiscard]] bool is_on(std::string_view name) const;
  /// Whether any place sets it to false.
  [[nodiscard]] bool is_off(std::string_view name) const;
  /// The first value that is not none. A value with a shell variable ("$TP") counts as unknown.
  [[nodiscard]] std::optional<Setting> find(std::string_view name) const;
  /// The value as an integer; none if it is missing or no integer.
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name) const;
  /// The variable's value; "" if it is not set.
  [[nodiscard]] std::string_view variable(std::string_view name) const;
  /// Whether the setting came from a command line's flag, where Megatron-LM's defaults hold.
  [[nodiscard]] bool is_flag(std::string_view name) const;
};

/// Reads text that begins with "{" as JSON, other text as a shell's words: flags ("--x", "--x v",
/// "--x=v", "--no-x"), overrides with a dot ("a.b=v", "+a.b=v"), variables ("export A=v", "A=v");
/// quotes, comments and continued lines as in a shell. If a flag is repeated, the last one counts.
/// `unset A` removes a variable. "${A:-1}" is the value that the script gave A, or else 1; nothing
/// else is expanded. In JSON, objects named env, env_vars or environment hold variables. Each role
/// of verl is a configuration: every object that holds "use_megatron_fsdp", except "dist" and
/// "ddp", which belong to their parent. Errors name file and place.
[[nodiscard]] Result<std::vector<Configuration>> read_configurations(std::string_view text,
                                                                     const std::string& where);

}  // namespace mfsdp::traces
