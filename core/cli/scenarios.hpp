// Where the data that ships with the tools lies: models, GPUs.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

/// The places where scenarios may lie, in order.
struct ScenarioPlaces {
  std::string environment;               ///< $MFSDP_SCENARIOS; empty when not set
  std::filesystem::path executable_dir;  ///< of the running program
  std::filesystem::path source_dir;      ///< of the tree that was built
};

[[nodiscard]] ScenarioPlaces scenario_places();

/// The first place that holds a folder `models`: $MFSDP_SCENARIOS (alone, when set), the
/// installation's share/mfsdp/scenarios beside the program's bin, the source tree. The error
/// (environment) names the places looked at.
[[nodiscard]] Result<std::filesystem::path> find_scenarios(const ScenarioPlaces& places);

/// find_scenarios of this process.
[[nodiscard]] Result<std::filesystem::path> scenarios_dir();

}  // namespace mfsdp
