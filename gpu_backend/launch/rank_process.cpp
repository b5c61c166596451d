#include "gpu_backend/launch/rank_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ostream>
#include <system_error>
#include <utility>
#include <vector>

#include "gpu_backend/launch/watchdog.hpp"

namespace mfsdp {
namespace {

/// A longer line is forwarded in pieces of this size.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;
constexpr std::chrono::milliseconds kMostPatience = std::chrono::days(365);

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Error failed_start(std::int64_t rank, int error) {
  return {.where = fmt::format("rank {}", rank),
          .what = "does not start: " + std::generic_category().message(error),
          .fault = Fault::environment};
}

/// The supervisor's end does not block; a rank's writes block, as on any pipe.
Result<Pipe> make_pipe(std::int64_t rank) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return tl::unexpected<Error>(failed_start(rank, errno));
  Pipe pipe{.read = FileDescriptor(ends[0]), .write = FileDescriptor(ends[1])};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

/// posix_spawn's attributes and file actions of a child, freed on destruction.
struct SpawnSettings {
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }

  /// Gives the child this file as descriptor `number`. The same number keeps it open after exec.
  void give(const FileDescriptor& file, int number) {
    ::posix_spawn_file_actions_adddup2(&files, file.number(), number);
  }
  void give(const FileDescriptor& file) { give(file, file.number()); }

  /// Default signals, in a new process group.
  void set_signals() {
    sigset_t all;
    sigset_t none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }

  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
};

/// argv-style pointers: valid as long as `texts`.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

void PrefixedLines::add(std::span<const char> text, std::ostream& out) {
  for (const char c : text) {
    line_ += c;
    if (c == '\n' || line_.size() >= kLongestLine) finish(out);
  }
}

void PrefixedLines::finish(std::ostream& out) {
  if (line_.empty()) return;
  if (line_.back() != '\n') line_ += '\n';
  // Flush at once: rank 0 writes to the same destination.
  out << prefix_ + std::exchange(line_, {}) << std::flush;
}

void RankOutput::forward(std::ostream& out) {
  std::array<char, 4096> text{};
  while (pipe) {
    const ssize_t count = ::read(pipe.number(), text.data(), text.size());
    if (count < 0) return;  // no more bytes for now
    if (count == 0) {
      lines.finish(out);
      pipe.close();
    }
    lines.add(std::span(text).first(static_cast<std::size_t>(count)), out);
  }
}

void RankProcess::read_watchdog() {
  WatchdogReport report;
  while (watchdog) {
    const ssize_t count = ::read(watchdog.number(), &report, sizeof report);
    if (count == 0) watchdog.close();  // the process has ended, or is about to end
    if (count != sizeof report) return;
    const bool ends = report.kind == WatchdogReport::Kind::end_within;
    if (is_ending && !ends) continue;
    const Clock::time_point now = Clock::now();
    const auto promised = std::clamp(std::chrono::milliseconds(report.patience),
                                     std::chrono::milliseconds(0), kMostPatience);
    // A rank that has announced its end cannot postpone it.
    if (is_ending && deadline && *deadline <= now + promised) continue;
    is_ending = ends;
    patience = promised;
    deadline.reset();
    if (ends || promised.count() > 0) deadline = now + promised;
  }
}

Result<RankProcess> start_rank(RankLaunch launch, const FileDescriptor& listener, bool prefixed,
                               const SupervisorSettings& settings) {
  RankProcess rank;
  rank.place = launch.place;
  const std::int64_t number = rank.place.rank;
  SpawnSettings spawn;
  spawn.set_signals();
  ::posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

  MFSDP_LET(watchdog, make_pipe(number));
  ::fcntl(watchdog.write.number(), F_SETFL, O_NONBLOCK);
  spawn.give(watchdog.write);
  rank.watchdog = std::move(watchdog.read);
  launch.starts_ranks = false;
  launch.supervised = Supervision{
      .supervisor = ::getpid(), .watchdog = watchdog.write.number(), .listener = std::nullopt};
  if (listener) {
    spawn.give(listener);
    launch.supervised->listener = listener.number();
  }
  std::vector<FileDescriptor> child_ends;
  if (prefixed) {
    const std::string prefix = fmt::format("[rank {}] ", number);
    for (auto [output, file] :
         {std::pair(&rank.out, STDOUT_FILENO), std::pair(&rank.err, STDERR_FILENO)}) {
      MFSDP_LET(pipe, make_pipe(number));
      spawn.give(pipe.write, file);
      output->pipe = std::move(pipe.read);
      output->lines = PrefixedLines(prefix);
      child_ends.push_back(std::move(pipe.write));
    }
  }
  std::vector<std::string> arguments = settings.arguments;
  std::vector<std::string> environment;
  for (const auto& [name, value] : supervised_environment(settings.environment, launch))
    environment.push_back(name + "=" + value);
  const int error =
      ::posix_spawn(&rank.process, settings.program.c_str(), &spawn.files, &spawn.attributes,
                    pointers_to(arguments).data(), pointers_to(environment).data());
  if (error != 0) return tl::unexpected<Error>(failed_start(number, error));
  rank.patience = settings.start_deadline;
  rank.deadline = RankProcess::Clock::now() + settings.start_deadline;
  return rank;
}

std::optional<RankEnd> reap(RankProcess& rank) {
  siginfo_t info{};
  // Not reaped yet, so no other process can have this process id.
  if (::waitid(P_PID, static_cast<id_t>(rank.process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != rank.process)
    return std::nullopt;
  ::kill(-rank.process, SIGKILL);
  int status = 0;
  ::waitpid(rank.process, &status, 0);
  rank.process = 0;
  rank.deadline.reset();
  if (WIFSIGNALED(status)) return RankEnd{.code = 0, .signal = WTERMSIG(status)};
  return RankEnd{.code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace mfsdp
