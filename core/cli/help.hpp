// What --help and --version print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cli/flags.hpp"

namespace mfsdp {

struct Example {
  std::string command;
  std::string meaning;
};

struct HelpText {
  std::string tool;
  std::string purpose;
  std::vector<Example> examples;
  std::string negative = {};  ///< what exit status 1 means; empty: there is none
  std::string lists = {};     ///< which flags take lists; empty: none
};

/// Purpose, examples, the flags by group, which of them take lists, exit codes; at most 100
/// columns.
[[nodiscard]] std::string render_help(const HelpText& text, const std::vector<FlagGroup>& groups);

/// The version alone: "0.1.0".
[[nodiscard]] std::string_view version();

/// The commit of this build as git names it, "-dirty" where files had changed; empty where the
/// build did not know it.
[[nodiscard]] std::string build_commit();

/// What compiled this build: "GNU 12.2.0".
[[nodiscard]] std::string_view build_compiler();

/// "CUDA 13.0, NCCL 2.27, cuDNN 9.13" or that it has none.
[[nodiscard]] std::string_view build_gpu_libraries();

/// Version, commit, compiler, and which of CUDA, NCCL and cuDNN the build has.
[[nodiscard]] std::string render_version(std::string_view tool);

}  // namespace mfsdp
