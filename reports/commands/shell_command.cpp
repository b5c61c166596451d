#include "reports/commands/shell_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "core/base/file_descriptor.hpp"
#include "core/cli/format.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to programs

namespace mfsdp {
namespace {

using ShellClock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{256} << 20U;
constexpr auto kPatience = std::chrono::seconds(2);
constexpr int kTickMs = 50;     // between two looks for an interrupt
constexpr int kLastTickMs = 1;  // while the output has ended and the shell has not

tl::unexpected<Error> shell_fault(int error) {
  return fail("/bin/sh", std::string("cannot be started: ") + std::strerror(error),
              Fault::environment);
}

/// Starts the shell with its output going to `output`.
Result<pid_t> start_shell(const std::string& command, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  // A group of its own, so that all of it can be ended; and signals as a fresh program has them.
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::array<std::string, 3> words{"sh", "-c", command};
  std::array<char*, 4> argv{words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return shell_fault(error);
  return child;
}

/// Ends what the shell has started, when the program is interrupted and at the latest when it
/// leaves.
class ShellGroup {
 public:
  explicit ShellGroup(pid_t group) : group_(group) {}
  ~ShellGroup() {
    if (group_ <= 0) return;
    ::kill(-group_, SIGKILL);
    ::waitpid(group_, nullptr, 0);
  }
  ShellGroup(const ShellGroup&) = delete;
  ShellGroup& operator=(const ShellGroup&) = delete;

  /// Asks once; kills when patience is over.
  void stop() {
    const auto now = ShellClock::now();
    if (!asked_) {
      asked_ = true;
      asked_at_ = now;
      ::kill(-group_, SIGTERM);
    } else if (now - asked_at_ > kPatience) {
      ::kill(-group_, SIGKILL);
    }
  }

  [[nodiscard]] bool was_asked() const { return asked_; }

  /// The exit status once the shell has ended.
  [[nodiscard]] std::optional<int> ended() {
    int status = 0;
    if (::waitpid(group_, &status, WNOHANG) != group_) return std::nullopt;
    if (asked_) ::kill(-group_, SIGKILL);  // what has outlived the shell
    group_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t group_;
  bool asked_ = false;
  ShellClock::time_point asked_at_;
};

/// Reads what is there. False at the end of the output.
bool read_some(int descriptor, std::string& output) {
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count > 0) output.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

Result<ShellOutcome> run_shell(const std::string& command, const std::atomic<bool>& interrupted) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return shell_fault(errno);
  const FileDescriptor from(ends[0]);
  FileDescriptor into(ends[1]);
  const auto begin = ShellClock::now();
  MFSDP_LET(child, start_shell(command, ends[1]));
  ShellGroup group(child);
  into.close();  // the shell has the only other one
  ShellOutcome outcome;
  bool open = true;
  for (;;) {
    if (interrupted) group.stop();
    pollfd waiting{.fd = open ? ends[0] : -1, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, open ? kTickMs : kLastTickMs) > 0)
      open = read_some(ends[0], outcome.output);
    if (outcome.output.size() > kMostOutput)
      return fail(in_quotes(command), "wrote more than 256 MiB to standard output");
    if (open && !group.was_asked()) continue;
    if (const auto status = group.ended()) {
      outcome.status = *status;
      break;
    }
  }
  outcome.stopped = group.was_asked();
  outcome.wall = Nanos(
      std::chrono::duration_cast<std::chrono::nanoseconds>(ShellClock::now() - begin).count());
  return outcome;
}

}  // namespace mfsdp
