// Texts of --help, manuals and --version.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cli/flags.hpp"

namespace mfsdp {

/// Forms of a tool's manual.
enum class HelpFormat { text, man, bash, zsh, fish, json };

constexpr auto value_names(HelpFormat) {
  return name_array("text", "man", "bash", "zsh", "fish", "json");
}

struct Example {
  std::string command;
  std::string meaning;
};

/// A name and its meaning.
struct HelpTerm {
  std::string name;
  std::string meaning;
};

struct HelpText {
  std::string tool;     ///< "mfsdp-sim"; of a command with its name: "mfsdp-report list"
  std::string purpose;  ///< one sentence
  std::vector<Example> examples;
  std::string negative = {};         ///< what exit status 1 means; empty: there is none
  std::string lists = {};            ///< which flags take lists; empty: none
  std::string details = {};          ///< a paragraph after commands and flags; empty: none
  std::string description = {};      ///< what a manual adds to the purpose, a line a paragraph
  std::vector<HelpTerm> files = {};  ///< that a manual names
};

/// Files that the tools share, for HelpText::files: the scenarios, and the store if the tool has
/// it.
[[nodiscard]] std::vector<HelpTerm> files_of_tools(bool with_store);

/// The complete manual of a tool, or of one of its commands. --help, the manual page, completion
/// and JSON are made from it.
struct Manual {
  HelpText text;
  std::vector<FlagGroup> groups;
  std::string words = {};             ///< arguments without flags, in the usage line: "RUN..."
  FlagValues word_values = {};        ///< of the first of them
  std::string name = {};              ///< of a command: "list"
  std::string summary = {};           ///< of a command: its line in the list of commands
  std::vector<Manual> commands = {};  ///< the first argument names one
};

/// The manual of flags that are bound to default options. Parsing is not possible: the flags have
/// no `apply`.
template <class Options>
[[nodiscard]] Manual manual_of(HelpText text, std::vector<FlagGroup> (*flags)(Options&)) {
  Options unused;
  Manual manual{.text = std::move(text), .groups = flags(unused)};
  for (FlagGroup& group : manual.groups)
    for (Flag& flag : group.flags) flag.apply = nullptr;
  return manual;
}

struct ExitStatus {
  int status = 0;
  std::string meaning;
};

/// In ascending order; 1 only if the text gives it a meaning.
[[nodiscard]] std::vector<ExitStatus> exit_statuses(const HelpText& text);

/// Purpose, examples, commands, the flags by group, which of them take lists, exit codes; at most
/// 100 columns.
[[nodiscard]] std::string render_help(const Manual& manual);
[[nodiscard]] std::string render_help(const HelpText& text, const std::vector<FlagGroup>& groups);

/// The version alone: "0.1.0".
[[nodiscard]] std::string_view version();

/// The commit of this build as git names it, with "-dirty" if files had changed. Empty if unknown.
[[nodiscard]] std::string build_commit();

/// The compiler of this build: "GNU 12.2.0".
[[nodiscard]] std::string_view build_compiler();

/// "CUDA 13.0, NCCL 2.27, cuDNN 9.13", or that the build has none of them.
[[nodiscard]] std::string_view build_gpu_libraries();

/// Version, commit, compiler, and the versions of CUDA, NCCL and cuDNN in the build.
[[nodiscard]] std::string render_version(std::string_view tool);

}  // namespace mfsdp
