#include "gpu_backend/launch/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>

#include <csignal>

namespace mfsdp {
namespace {

/// If the pipe is full, the supervisor has unread reports of this rank, so this one may be lost.
void report(const FileDescriptor& pipe, WatchdogReport::Kind kind,
            std::chrono::milliseconds patience) {
  if (!pipe) return;
  const WatchdogReport report{.kind = kind, .patience = patience.count()};
  [[maybe_unused]] const ssize_t written = ::write(pipe.number(), &report, sizeof report);
}

}  // namespace

Result<Watchdog> Watchdog::attach(const Supervision& supervision) {
  FileDescriptor pipe(supervision.watchdog);
  if (::fcntl(pipe.number(), F_SETFD, FD_CLOEXEC) != 0)
    return fail("environment, MFSDP_WATCHDOG_FD",
                fmt::format("{} is no open file, as a supervisor passes it on", pipe.number()));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The supervisor may have died before that call, and this process has a new parent.
  if (::getppid() != supervision.supervisor)
    return fail("supervisor",
                fmt::format("process {} is not the parent of this one: it has ended",
                            supervision.supervisor),
                Fault::environment);
  return Watchdog(std::move(pipe));
}

void Watchdog::feed(std::chrono::milliseconds patience) const {
  report(pipe_, WatchdogReport::Kind::feed, patience);
}

void Watchdog::end_within(std::chrono::milliseconds patience) const {
  report(pipe_, WatchdogReport::Kind::end_within, patience);
}

}  // namespace mfsdp
