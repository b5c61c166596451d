// The folder of the data that ships with the tools: models, GPUs.
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

/// The first place that holds a folder `models`. The places are $MFSDP_SCENARIOS (alone, if set),
/// the installation's share/mfsdp/scenarios beside the program's bin, and the source tree. The
/// error (environment) names the places.
[[nodiscard]] Result<std::filesystem::path> find_scenarios(const ScenarioPlaces& places);

/// find_scenarios for this process.
[[nodiscard]] Result<std::filesystem::path> scenarios_dir();

}  // namespace mfsdp
