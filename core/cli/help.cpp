#include "core/cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/cli/wrap.hpp"

// The build system defines these. A file that is compiled by hand prints "unknown".
#ifndef MFSDP_VERSION
#define MFSDP_VERSION "unknown"
#endif
#ifndef MFSDP_COMMIT
#define MFSDP_COMMIT "unknown"
#endif
#ifndef MFSDP_COMPILER
#define MFSDP_COMPILER "unknown"
#endif
#ifndef MFSDP_CUDA_VERSIONS
#define MFSDP_CUDA_VERSIONS "built without CUDA, NCCL and cuDNN"
#endif

namespace mfsdp {
namespace {

constexpr std::size_t kColumns = 100;

/// Two lines: what success means for this tool, and its other exit codes.
std::string exit_status_text(const HelpText& text) {
  std::string out = "\nExit status: ";
  for (const auto& [status, meaning] : exit_statuses(text)) {
    if (status != 0) out += status == 3 ? ";\n  " : "; ";
    out += fmt::format("{} {}", status, meaning);
  }
  return out + ".\n";
}

}  // namespace

std::vector<HelpTerm> files_of_tools(bool with_store) {
  std::vector<HelpTerm> files{
      {"../share/mfsdp/scenarios",
       "seen from the folder of the program: models, GPUs, clusters and measurements that have "
       "names. "
       "Where it is missing, the folder of the source tree that the program was built from."}};
  if (with_store)
    files.insert(files.begin(), {"mfsdp.sqlite", "the store of results, in the current folder."});
  return files;
}

std::vector<ExitStatus> exit_statuses(const HelpText& text) {
  std::vector<ExitStatus> all{{0, "good"}};
  if (!text.negative.empty()) all.push_back({1, text.negative});
  all.push_back({2, "wrong flags or input"});
  all.push_back({3, "the machine: disk, store, installation"});
  all.push_back({130, "interrupted, what was done is kept"});
  return all;
}

std::string render_help(const Manual& manual) {
  const HelpText& text = manual.text;
  std::string out = fmt::format("{} - {}\n\nExamples:\n", text.tool, text.purpose);
  std::size_t widest = 0;
  for (const Example& example : text.examples) widest = std::max(widest, example.command.size());
  for (const Example& example : text.examples)
    out += fmt::format("  {:<{}}  {}\n", example.command, widest, example.meaning);
  if (!manual.commands.empty())
    out += fmt::format("\nCommands ({} COMMAND --help shows the flags of each):\n", text.tool);
  for (const Manual& command : manual.commands)
    out += fmt::format("  {:<10} {}\n", command.name, command.summary);
  for (const FlagGroup& group : manual.groups) {
    out += fmt::format("\n{}:\n", group.title);
    for (const Flag& flag : group.flags)
      out += fmt::format("  {:<20} {}\n",
                         flag.value.empty() ? flag.name : flag.name + " " + flag.value, flag.help);
  }
  if (!text.lists.empty()) out += "\nLists:\n" + wrap_line("  " + text.lists, kColumns, 2) + "\n";
  if (!text.details.empty()) out += "\n" + wrap_line(text.details, kColumns, 0) + "\n";
  return out + exit_status_text(text);
}

std::string render_help(const HelpText& text, const std::vector<FlagGroup>& groups) {
  return render_help(Manual{.text = text, .groups = groups});
}

std::string_view version() { return MFSDP_VERSION; }

std::string build_commit() {
  const std::string commit = MFSDP_COMMIT;
  return commit == "unknown" ? "" : commit;
}

std::string_view build_compiler() { return MFSDP_COMPILER; }

std::string_view build_gpu_libraries() { return MFSDP_CUDA_VERSIONS; }

std::string render_version(std::string_view tool) {
  return fmt::format("{} {}\ncommit:   {}\ncompiler: {}\nGPU:      {}\n", tool, MFSDP_VERSION,
                     MFSDP_COMMIT, MFSDP_COMPILER, MFSDP_CUDA_VERSIONS);
}

}  // namespace mfsdp
