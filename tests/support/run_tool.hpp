// The built tools as processes.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace mfsdp::test {

inline const std::filesystem::path kBuild = MFSDP_BINARY_DIR;
inline const std::filesystem::path kSim = kBuild / "sim" / "mfsdp-sim";
inline const std::filesystem::path kExec = kBuild / "gpu_backend" / "mfsdp-exec";
inline const std::filesystem::path kVerify = kBuild / "verify" / "mfsdp-verify";
inline const std::filesystem::path kReport = kBuild / "reports" / "mfsdp-report";

struct ToolRun {
  int status = 0;
  std::string out;  ///< standard output; standard error where the arguments redirect it
};

/// A line for the shell.
inline ToolRun run_shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  ToolRun run;
  std::array<char, 4096> piece{};
  while (const std::size_t count = fread(piece.data(), 1, piece.size(), pipe))
    run.out.append(piece.data(), count);
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return run;
}

/// `arguments` as a shell takes them.
inline ToolRun run_sim(const std::string& arguments) {
  return run_shell(fmt::format("'{}' {}", kSim.string(), arguments));
}
inline ToolRun run_exec(const std::string& arguments) {
  return run_shell(fmt::format("'{}' {}", kExec.string(), arguments));
}
inline ToolRun run_verify(const std::string& arguments) {
  return run_shell(fmt::format("'{}' {}", kVerify.string(), arguments));
}
inline ToolRun run_report(const std::string& arguments) {
  return run_shell(fmt::format("'{}' {}", kReport.string(), arguments));
}

}  // namespace mfsdp::test
