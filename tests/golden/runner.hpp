// Runs one golden transcript in a temporary folder with a fixed environment.
#pragma once

#include <filesystem>
#include <string>

namespace mfsdp::golden {

struct Settings {
  std::filesystem::path transcript;
  std::string tool_path;         ///< folders of the tools, as in PATH
  std::filesystem::path source;  ///< root of the source tree, printed as [SOURCE]
  std::filesystem::path build;   ///< root of the build tree, printed as [BUILD]
  bool update = false;           ///< rewrite the transcript with what is printed now
};

struct Outcome {
  bool passed = false;
  std::string report;  ///< for people: differences and how to repeat them
};

/// Preparation that fails or a transcript that does not read is a failed outcome, never an
/// exception; the temporary folder stays after a failure, so that its command can be repeated by
/// hand.
[[nodiscard]] Outcome run(const Settings& settings);

}  // namespace mfsdp::golden
