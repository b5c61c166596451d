// The built mfsdp-sim as a process.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace mfsdp::test {

inline const std::filesystem::path kSim =
    std::filesystem::path(MFSDP_BINARY_DIR) / "sim" / "mfsdp-sim";

struct ToolRun {
  int status = 0;
  std::string out;  ///< standard output; standard error where the arguments redirect it
};

/// `arguments` as a shell takes them.
inline ToolRun run_sim(const std::string& arguments) {
  const std::string command = fmt::format("'{}' {}", kSim.string(), arguments);
  FILE* pipe = popen(command.c_str(), "r");
  ToolRun run;
  std::array<char, 4096> piece{};
  while (const std::size_t count = fread(piece.data(), 1, piece.size(), pipe))
    run.out.append(piece.data(), count);
  const int status = pclose(pipe);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return run;
}

}  // namespace mfsdp::test
