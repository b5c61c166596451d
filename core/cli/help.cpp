#include "core/cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/cli/wrap.hpp"

// The build system states these; a file compiled by hand says that it does not know.
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

}  // namespace

std::string render_help(const HelpText& text, const std::vector<FlagGroup>& groups) {
  std::string out = fmt::format("{} - {}\n\nExamples:\n", text.tool, text.purpose);
  std::size_t widest = 0;
  for (const Example& example : text.examples) widest = std::max(widest, example.command.size());
  for (const Example& example : text.examples)
    out += fmt::format("  {:<{}}  {}\n", example.command, widest, example.meaning);
  for (const FlagGroup& group : groups) {
    out += fmt::format("\n{}:\n", group.title);
    for (const Flag& flag : group.flags)
      out += fmt::format("  {:<20} {}\n",
                         flag.value.empty() ? flag.name : flag.name + " " + flag.value, flag.help);
  }
  if (!text.lists.empty()) out += "\nLists:\n" + wrap_line("  " + text.lists, kColumns, 2) + "\n";
  out += fmt::format(
      "\nExit status: 0 good;{} 2 wrong flags or input;\n"
      "  3 the machine: disk, store, installation; 130 interrupted, what was done is kept.\n",
      text.negative.empty() ? "" : " 1 " + text.negative + ";");
  return out;
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
