#include "verify/mutation/run_apart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/file_descriptor.hpp"

namespace mfsdp {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  std::size_t index = 0;
  pid_t process = 0;
  FileDescriptor pipe;
  Clock::time_point deadline;
  std::string told;
};

void write_all(int pipe, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(pipe, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

class Apart {
 public:
  using Work = std::function<void(std::size_t, const std::function<void(std::string_view)>&)>;
  using Done = std::function<bool(std::size_t, ApartEnd)>;

  Apart(const ApartSettings& settings, const Work& work, const Done& done)
      : settings_(settings), work_(work), done_(done) {}
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
  ~Apart() {
    for (Child& child : children_) {
      ::kill(child.process, SIGKILL);
      ::waitpid(child.process, nullptr, 0);
    }
  }

  Result<void> run(std::size_t count) {
    std::size_t next = 0;
    while (next < count || !children_.empty()) {
      while (next < count && children_.size() < settings_.at_once) MFSDP_TRY(start(next++));
      if (!take_ends()) return {};
    }
    return {};
  }

 private:
  Result<void> start(std::size_t index) {
    const auto refuse = [](const char* what) {
      return fail(what, std::strerror(errno), Fault::environment);
    };
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("pipe");
    FileDescriptor reads(ends[0]);
    FileDescriptor writes(ends[1]);
    const pid_t process = ::fork();
    if (process < 0) return refuse("fork");
    if (process == 0) {
      reads.close();
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      work_(index, [&](std::string_view text) { write_all(writes.number(), text); });
      ::_exit(0);  // what the parent still has to end is none of the child's
    }
    children_.push_back({.index = index,
                         .process = process,
                         .pipe = std::move(reads),
                         .deadline = Clock::now() + settings_.limit,
                         .told = {}});
    return {};
  }

  /// Waits for output or the end of a child; false once `done` returned false.
  bool take_ends() {
    constexpr int kPatience = 100;  // milliseconds
    std::vector<pollfd> pipes;
    for (const Child& child : children_)
      pipes.push_back({.fd = child.pipe.number(), .events = POLLIN, .revents = 0});
    ::poll(pipes.data(), pipes.size(), kPatience);
    for (std::size_t i = children_.size(); i-- > 0;) {
      Child& child = children_[i];
      const bool late = Clock::now() > child.deadline;
      if (!late && (pipes[i].revents == 0 || read(child))) continue;
      if (!end(i, late)) return false;
    }
    return true;
  }

  /// Reads a child's output; false at its end.
  static bool read(Child& child) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(child.pipe.number(), bytes.data(), bytes.size());
    if (count > 0) child.told.append(bytes.data(), static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && errno == EINTR);
  }

  bool end(std::size_t i, bool late) {
    Child child = std::move(children_[i]);
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    if (late) ::kill(child.process, SIGKILL);
    int status = 0;
    while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
    }
    const int signal = !late && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return done_(child.index, {.told = std::move(child.told), .signal = signal, .late = late});
  }

  const ApartSettings& settings_;
  const Work& work_;
  const Done& done_;
  std::vector<Child> children_;
};

}  // namespace

Result<void> run_apart(
    std::size_t count, const ApartSettings& settings,
    const std::function<void(std::size_t, const std::function<void(std::string_view)>&)>& work,
    const std::function<bool(std::size_t, ApartEnd)>& done) {
  return Apart(settings, work, done).run(count);
}

}  // namespace mfsdp
