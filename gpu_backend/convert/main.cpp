// mfsdp-convert: reads flags and hands them to the action that they ask for (convert/tool).
#include <iostream>
#include <string>
#include <vector>

#include "gpu_backend/convert/tool/convert_actions.hpp"
#include "gpu_backend/convert/tool/convert_options.hpp"
#include "reports/session/run_main.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-convert";

Result<ExitCode> run_tool(const std::vector<std::string>& args) {
  MFSDP_LET(options, parse_convert_options(args));
  CommonOptions asked;
  asked.help = options.help;
  asked.help_format = options.help_format;
  asked.version = options.version;
  if (const auto text = self_description(asked, kTool, convert_manual)) {
    std::cout << *text;
    return ExitCode::good;
  }
  for (const std::string& note : options.notes) report_note(std::cerr, note, kTool);
  return run_convert(options,
                     {.out = std::cout, .err = std::cerr, .style = style_of(describe_stdout())});
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return run_main(kTool, arguments, std::cout, std::cerr, [&] { return run_tool(arguments); });
}
