#include "gpu_backend/launch/supervisor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "gpu_backend/launch/rank_process.hpp"
#include "gpu_backend/launch/secret.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp {
namespace {

constexpr int kFailed = 3;         ///< ExitCode::environment
constexpr int kInterrupted = 130;  ///< ExitCode::interrupted

/// Handlers write to it. At most one reader exists.
int signal_pipe = -1;

void tell_of_signal(int signal) {
  const int error = errno;
  const auto number = static_cast<unsigned char>(signal);
  // If the pipe is full, the reader wakes up anyway.
  static_cast<void>(::write(signal_pipe, &number, sizeof number) + 1);
  errno = error;
}

/// Turns signals into bytes to read, as long as this object lives. It uses handlers: a blocked
/// signal would go to any thread that has not blocked it, such as those that libraries start.
class SignalReader {
 public:
  static Result<std::unique_ptr<SignalReader>> create() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      return mfsdp::fail("supervisor", "pipe2: " + std::generic_category().message(errno),
                         Fault::environment);
    return std::unique_ptr<SignalReader>(
        new SignalReader(FileDescriptor(ends[0]), FileDescriptor(ends[1])));
  }
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
    signal_pipe = -1;
  }

  [[nodiscard]] int number() const { return read_.number(); }
  [[nodiscard]] std::optional<int> next() const {
    unsigned char number = 0;
    if (::read(read_.number(), &number, sizeof number) != sizeof number) return std::nullopt;
    return number;
  }

 private:
  static constexpr std::array kSignals{SIGCHLD, SIGINT, SIGTERM, SIGHUP};

  SignalReader(FileDescriptor read, FileDescriptor write)
      : read_(std::move(read)), write_(std::move(write)) {
    signal_pipe = write_.number();
    struct sigaction action{};
    action.sa_handler = tell_of_signal;
    action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &before_[i]);
      if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN)
        ::sigaction(SIGHUP, &before_[i], nullptr);  // stays ignored, as nohup requests
    }
  }

  FileDescriptor read_;
  FileDescriptor write_;
  std::array<struct sigaction, kSignals.size()> before_{};
};

class Supervisor {
 public:
  Supervisor(const SupervisorSettings& settings, const SignalReader& signals)
      : settings_(settings), signals_(signals) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    for (RankProcess& rank : ranks_)
      if (rank.process != 0) ::kill(-rank.process, SIGKILL);
    while (is_any_left()) static_cast<void>(take_ends());
  }

  Result<void> start(RankLaunch launch) {
    const FileDescriptor none;
    FileDescriptor listener;
    MFSDP_TRY(settle_secret(settings_.environment, settings_.insecure, launch));
    const std::vector<RankPlace> places = places_to_start(launch);
    if (launch.starts_ranks) MFSDP_TRY(complete(launch, listener));
    for (const RankPlace& place : places) {
      launch.place = place;
      const bool is_prefixed = places.size() > 1 && place.rank != 0;
      MFSDP_LET(rank,
                start_rank(launch, place.rank == 0 ? listener : none, is_prefixed, settings_));
      ranks_.push_back(std::move(rank));
    }
    return {};
  }

  int watch() {
    while (is_any_left()) {
      wait();
      while (const auto signal = signals_.next())
        if (*signal != SIGCHLD) pass_on(*signal);
      read_all();
      const auto ends = take_ends();
      read_all();  // signals that were written until the end
      judge(ends);
      look_at_clock();
    }
    if (!failure_) return was_interrupted_ ? kInterrupted : 0;
    if (!failure_->line.empty())
      *settings_.err << "supervisor: " << printable(failure_->line) << '\n' << std::flush;
    return failure_->code;
  }

 private:
  using Clock = RankProcess::Clock;
  using End = std::pair<RankProcess*, RankEnd>;

  /// Causes of a run's end, likelier ones last. Code 3 is also that of a rank that is notified of
  /// another's failure. `loss`: a signal, or a missed deadline.
  enum class Cause { complaint, code, loss };
  struct Failure {
    Cause cause = Cause::complaint;
    int code = 0;
    std::string line;  ///< empty if the rank has printed the reason itself
  };

  /// If this process starts all ranks, they connect at a port that no other process can have, with
  /// a run id that no other process knows.
  static Result<void> complete(RankLaunch& launch, FileDescriptor& listener) {
    if (launch.meeting.port != 0) return {};  // other hosts may have ranks too
    if (launch.run_id.empty()) {
      std::random_device random;
      launch.run_id =
          fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    }
    if (launch.place.world_size == 1) return {};
    MFSDP_LET(made, listen_at(0, true));
    MFSDP_LET(port, port_of(made));
    listener = std::move(made);
    launch.meeting.port = port;
    return {};
  }

  [[nodiscard]] bool is_any_left() const {
    return std::ranges::any_of(ranks_, [](const RankProcess& rank) { return rank.process != 0; });
  }

  void wait() const {
    std::vector<pollfd> waiting{{signals_.number(), POLLIN, 0}};
    std::optional<Clock::time_point> until = next_blow_;
    for (const RankProcess& rank : ranks_) {
      for (const FileDescriptor* file : {&rank.out.pipe, &rank.err.pipe, &rank.watchdog})
        waiting.push_back({file->number(), POLLIN, 0});  // poll ignores negative numbers
      if (rank.deadline) until = std::min(until.value_or(*rank.deadline), *rank.deadline);
    }
    static_cast<void>(::poll(waiting.data(), waiting.size(), until ? poll_wait_until(*until) : -1));
  }

  void read_all() {
    for (RankProcess& rank : ranks_) {
      rank.out.forward(*settings_.err);
      rank.err.forward(*settings_.err);
      rank.read_watchdog();
    }
  }

  void send(int signal, bool group) {
    for (const RankProcess& rank : ranks_)
      if (rank.process != 0) ::kill(group ? -rank.process : rank.process, signal);
  }

  void pass_on(int signal) {
    if (passed_on_.empty() && !settings_.stopping.empty())
      *settings_.err << settings_.stopping << '\n' << std::flush;
    passed_on_.insert(signal);
    send(signal, false);
  }

  [[nodiscard]] std::vector<End> take_ends() {
    std::vector<End> ends;
    for (RankProcess& rank : ranks_)
      if (rank.process != 0)
        if (const auto end = reap(rank)) ends.emplace_back(&rank, *end);
    return ends;
  }

  void judge(const std::vector<End>& ends) {
    for (const auto& [rank, end] : ends) {
      if (ended_.contains(rank->place.rank))
        continue;  // this process ended it and has reported
                   // why
      if (end.code == kInterrupted || passed_on_.contains(end.signal)) {
        was_interrupted_ = true;
      } else if (end.signal != 0) {
        fail(Cause::loss, kFailed,
             fmt::format("rank {} was ended by signal {} ({})", rank->place.rank, end.signal,
                         ::strsignal(end.signal)));
      } else if (end.code != 0) {
        // The rank has printed the reason.
        fail(end.code == kFailed ? Cause::complaint : Cause::code, end.code, {});
      }
    }
  }

  /// After the first failure all other ranks must end. Ranks that report the death of another may
  /// end before the system reports that death. Therefore a better cause replaces a worse one, until
  /// this process sends signals itself.
  void fail(Cause cause, int code, std::string line) {
    if (!failure_) next_blow_ = Clock::now() + settings_.own_end;
    if (termed_ || (failure_ && failure_->cause >= cause)) return;
    failure_ = Failure{.cause = cause, .code = code, .line = std::move(line)};
  }

  void look_at_clock() {
    const Clock::time_point now = Clock::now();
    for (RankProcess& rank : ranks_) {
      if (rank.process == 0 || !rank.deadline || now < *rank.deadline) continue;
      rank.deadline.reset();
      fail(rank.is_ending ? Cause::complaint : Cause::loss, kFailed,
           fmt::format("rank {} {} within {} s, and was ended", rank.place.rank,
                       rank.is_ending ? "did not end" : "gave no sign of life",
                       in_seconds(rank.patience)));
      // SIGKILL at once: the other ranks are notified when its connections close.
      ended_.insert(rank.place.rank);
      ::kill(-rank.process, SIGKILL);
    }
    if (!next_blow_ || now < *next_blow_) return;
    send(termed_ ? SIGKILL : SIGTERM, termed_);
    next_blow_ = now + settings_.term_end;
    termed_ = true;
  }

  const SupervisorSettings& settings_;
  const SignalReader& signals_;
  std::vector<RankProcess> ranks_;
  std::set<int> passed_on_;       ///< signals
  std::set<std::int64_t> ended_;  ///< ranks that missed a deadline
  bool was_interrupted_ = false;
  bool termed_ = false;                         ///< SIGTERM was sent: SIGKILL follows
  std::optional<Failure> failure_;              ///< of the first failure
  std::optional<Clock::time_point> next_blow_;  ///< time of the next signal after a failure:
                                                ///< SIGTERM, then SIGKILL
};

}  // namespace

Result<int> supervise(const RankLaunch& launch, const SupervisorSettings& settings) {
  assert(settings.err != nullptr);
  MFSDP_LET(signals, SignalReader::create());
  Supervisor supervisor(settings, *signals);
  MFSDP_TRY(supervisor.start(launch));
  return supervisor.watch();
}

}  // namespace mfsdp
