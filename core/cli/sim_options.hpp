// The flags of mfsdp-sim: the common ones and its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/help.hpp"

namespace mfsdp {

/// A longer answer to one question, printed after the usual text.
enum class Explain { memory, layout, critical_path };

template <>
struct Names<Explain> {
  static constexpr std::array<std::string_view, 3> values{"memory", "layout", "critical-path"};
};

struct SimOptions {
  CommonOptions common;
  bool list_models = false;
  bool list_gpus = false;
  bool require_fit = false;
  std::optional<Explain> explain;
  std::optional<std::string> budget;      ///< TOML file of limits
  std::optional<std::string> budget_out;  ///< where to write the run's own values as limits
};

/// All flag groups of mfsdp-sim, bound to `options`.
[[nodiscard]] std::vector<FlagGroup> sim_flags(SimOptions& options);

/// Reads the arguments (without the program's name) and checks them against each other.
[[nodiscard]] Result<SimOptions> parse_sim_options(const std::vector<std::string>& args);

/// What --help says around the flags.
[[nodiscard]] HelpText sim_help();

}  // namespace mfsdp
