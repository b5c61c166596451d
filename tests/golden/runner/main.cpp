// golden_runner TRANSCRIPT --path FOLDERS --source ROOT --build ROOT
// Exit code 0 when the commands print what the transcript says, else 1 with the difference.
// MFSDP_UPDATE_GOLDEN=1 rewrites the transcript instead.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/golden/runner.hpp"

int main(int count, char** arguments) {
  mfsdp::golden::Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const bool has_value = i + 1 < count;
    if (argument == "--path" && has_value) {
      settings.tool_path = arguments[++i];
    } else if (argument == "--source" && has_value) {
      settings.source = arguments[++i];
    } else if (argument == "--build" && has_value) {
      settings.build = arguments[++i];
    } else if (!argument.starts_with('-') && settings.transcript.empty()) {
      settings.transcript = argument;
    } else {
      std::cerr << "golden_runner: unexpected " << argument << '\n';
      return 2;
    }
  }
  if (settings.transcript.empty() || settings.tool_path.empty()) {
    std::cerr << "golden_runner TRANSCRIPT --path FOLDERS [--source ROOT] [--build ROOT]\n";
    return 2;
  }
  const char* update = std::getenv("MFSDP_UPDATE_GOLDEN");
  settings.update = update != nullptr && std::string_view(update) == "1";
  const mfsdp::golden::Outcome outcome = mfsdp::golden::run(settings);
  std::cout << outcome.report;
  return outcome.passed ? 0 : 1;
}
