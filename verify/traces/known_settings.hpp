// The settings of a configuration that the rules check. If the rules know no setting of a file, an
// empty list of findings means nothing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/traces/configuration.hpp"

namespace mfsdp::traces {

/// Names of a configuration's settings, sorted, each once.
struct SettingsSeen {
  std::vector<std::string> looked_at;    ///< checked by some rule; includes variables
  std::vector<std::string> passed_over;  ///< checked by none; variables are not listed
  /// Whether some checked setting belongs to a trainer that the rules know. Settings such as
  /// optimizer and fp16 do not count: other trainers have them too.
  bool is_known_trainer = false;
};

/// The settings of all configurations of one file.
[[nodiscard]] SettingsSeen settings_seen(std::span<const Configuration> configurations);

/// "settings looked at: a, b; ignored: c, d and 5 more".
[[nodiscard]] std::string settings_words(const SettingsSeen& seen);

/// The likely kind of a file without a known setting, and the evidence: "a configuration of
/// DeepSpeed (it has zero_optimization)". JSON is recognised by its keys, other text by the begins
/// of its lines. None if it is not recognised.
[[nodiscard]] std::optional<std::string> configuration_of_others(std::string_view text);

}  // namespace mfsdp::traces
