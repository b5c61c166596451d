#include "core/cli/scenarios.hpp"

#include <cstdlib>
#include <system_error>

#ifndef MFSDP_SOURCE_SCENARIOS
#define MFSDP_SOURCE_SCENARIOS ""
#endif

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

bool holds_models(const fs::path& place) {
  std::error_code ignored;
  return !place.empty() && fs::is_directory(place / "models", ignored);
}

}  // namespace

ScenarioPlaces scenario_places() {
  const char* environment = std::getenv("MFSDP_SCENARIOS");
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  return {.environment = environment ? environment : "",
          .executable_dir = error ? fs::path() : executable.parent_path(),
          .source_dir = MFSDP_SOURCE_SCENARIOS};
}

Result<fs::path> find_scenarios(const ScenarioPlaces& places) {
  if (!places.environment.empty()) {
    if (holds_models(places.environment)) return fs::path(places.environment);
    return fail("MFSDP_SCENARIOS", places.environment + " holds no folder 'models'",
                Fault::environment);
  }
  const fs::path installed =
      places.executable_dir.empty()
          ? fs::path()
          : (places.executable_dir / "../share/mfsdp/scenarios").lexically_normal();
  std::string looked_at;
  for (const fs::path& place : {installed, places.source_dir}) {
    if (holds_models(place)) return place;
    if (place.empty()) continue;
    looked_at += (looked_at.empty() ? "" : " and ") + place.string();
  }
  return fail("scenarios", "not found in " + looked_at + "; set MFSDP_SCENARIOS to their folder",
              Fault::environment);
}

Result<fs::path> scenarios_dir() { return find_scenarios(scenario_places()); }

}  // namespace mfsdp
