#include "reports/session/interrupt.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace mfsdp {
namespace {

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
constexpr std::int64_t kOneRequest = kNanosPerSecond;  ///< from the first signal on

// Data of the handler is lock-free, or does not change once the handler is installed.
std::atomic<bool> caught{false};
std::atomic<std::int64_t> caught_at{0};  ///< monotonic nanoseconds; 0: not yet
std::array<char, 256> text_of_stop{};
std::size_t length_of_stop = 0;
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * kNanosPerSecond + now.tv_nsec;
}

void interrupt(int signal) {
  const int error = errno;
  const std::int64_t now = monotonic_now();
  std::int64_t first = 0;
  if (caught_at.compare_exchange_strong(first, now)) {
    caught = true;
    static_cast<void>(::write(STDERR_FILENO, text_of_stop.data(), length_of_stop) + 1);
  } else if (now - first >= kOneRequest) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // comes when this returns
  }
  errno = error;
}

/// On a terminal after an end of line: a line of progress may stand there, or the shell's ^C.
void set_text(std::string_view says) {
  if (says.empty()) return;
  if (::isatty(STDERR_FILENO) != 0) text_of_stop[length_of_stop++] = '\n';
  says = says.substr(0, text_of_stop.size() - length_of_stop - 1);
  std::ranges::copy(says, text_of_stop.begin() + static_cast<std::ptrdiff_t>(length_of_stop));
  length_of_stop += says.size();
  text_of_stop[length_of_stop++] = '\n';
}

}  // namespace

const std::atomic<bool>& interrupted() { return caught; }

void catch_interrupts(std::string_view says) {
  set_text(says);
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, interrupt);
}

}  // namespace mfsdp
