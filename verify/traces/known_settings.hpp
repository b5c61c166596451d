// Which settings of a configuration the rules look at: what they find says nothing of a file in
// which they know no setting.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/traces/configuration.hpp"

namespace mfsdp::traces {

/// What a configuration's settings are to the rules: names, sorted, each once.
struct SettingsSeen {
  std::vector<std::string> looked_at;    ///< by some rule; variables as well
  std::vector<std::string> passed_over;  ///< by all; variables that no rule knows are not counted
  /// Whether one of the former is a setting of the trainers that the rules know: others have an
  /// optimizer or an fp16 too.
  bool is_known_trainer = false;
};

/// Of the configurations of one file.
[[nodiscard]] SettingsSeen settings_seen(std::span<const Configuration> configurations);

/// "settings looked at: a, b; passed over: c, d and 5 more".
[[nodiscard]] std::string settings_words(const SettingsSeen& seen);

/// What a file looks like in which no setting is known, with the sign of it: "a configuration of
/// DeepSpeed (it has zero_optimization)". JSON by its keys, other text by what its lines begin
/// with. None for others.
[[nodiscard]] std::optional<std::string> configuration_of_others(std::string_view text);

}  // namespace mfsdp::traces
