// A command whose standard output is a terminal of some width.
#pragma once

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>

namespace mfsdp::test {

/// The output of `/bin/sh -c command` on a terminal of `columns`, without carriage returns. Colours
/// are off and bars are of "#".
inline std::string run_in_terminal(const std::string& command, unsigned short columns) {
  const std::string line =
      "exec 2>/dev/null; export NO_COLOR=1 TERM=xterm LC_ALL=C; unset COLUMNS; " + command;
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("no pseudo-terminal");
  if (child == 0) {
    execl("/bin/sh", "/bin/sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  std::string out;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t count = read(terminal, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // Linux reports EIO when the other side is closed
    out.append(piece.data(), static_cast<std::size_t>(count));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  std::erase(out, '\r');
  return out;
}

}  // namespace mfsdp::test
