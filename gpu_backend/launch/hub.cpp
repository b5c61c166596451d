#include "gpu_backend/launch/hub.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

namespace mfsdp {
namespace {

/// Maximum bytes of all ranks' inputs to one collective together.
constexpr std::size_t kMostResultBytes = std::size_t{1} << 30;

Rendezvous::Bytes join(const std::vector<std::optional<Rendezvous::Bytes>>& given) {
  Rendezvous::Bytes joined;
  for (const auto& bytes : given) {
    const auto length = static_cast<std::uint64_t>(bytes->size());
    for (std::size_t i = 0; i < sizeof length; ++i)
      joined.push_back(static_cast<std::byte>(length >> (8 * i)));
    joined.insert(joined.end(), bytes->begin(), bytes->end());
  }
  return joined;
}

}  // namespace

Rendezvous::Hub::Hub(const RankPlace& place, RendezvousSettings settings, std::vector<Peer> peers)
    : rank(place.rank),
      world_size(place.world_size),
      settings_(std::move(settings)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_beat_(Clock::now()) {
  round_.given.resize(static_cast<std::size_t>(world_size));
  const std::size_t frames = rank == 0 ? kMostRendezvousBytes : kMostResultBytes;
  for (Peer& peer : peers) {
    peer.reader.allow(frames + kMostHelloBytes);
    Link& link = links_.emplace_back();
    link.peer = std::move(peer);
    link.heard = Clock::now();
  }
  thread_ = std::thread([this] { keep(); });
}

Rendezvous::Hub::~Hub() {
  {
    const std::scoped_lock lock(mutex_);
    leaves_ = true;
  }
  wake();
  thread_.join();
}

void Rendezvous::Hub::wake() const {
  static_cast<void>(::eventfd_write(wake_.number(), 1));  // fails if the counter is full; then the
                                                          // thread is awake
}

void Rendezvous::Hub::send_all(SharedBytes frame) {
  orders_.push_back(std::move(frame));
  wake();
}

// ---- collectives -------------------------------------------------------------------------------

/// Waits until `done`. Ends earlier with the failure, or with the error of `alive`, which then is
/// the failure.
Result<void> Rendezvous::Hub::wait_until(Lock& lock, const auto& done, const Alive& alive) {
  constexpr std::chrono::milliseconds kLook{100};
  while (true) {
    if (failure_) return tl::unexpected<Error>(failure_->error());
    if (done()) return {};
    if (rank != 0 && !left_.empty()) {
      set_failure({.rank = 0, .message = "has left the rendezvous"});
      continue;
    }
    if (!alive) {
      changed_.wait(lock);
      continue;
    }
    if (changed_.wait_for(lock, kLook) == std::cv_status::no_timeout) continue;
    lock.unlock();
    auto outcome = alive();
    lock.lock();
    if (outcome) continue;
    if (!failure_) set_failure({.rank = rank, .message = outcome.error().message()});
    return outcome;
  }
}

Result<Rendezvous::Bytes> Rendezvous::Hub::call(RendezvousCall kind,
                                                std::span<const std::byte> given,
                                                const Alive& alive) {
  Lock lock(mutex_);
  if (!failure_ && given.size() > kMostRendezvousBytes)
    set_failure({.rank = rank,
                 .message = fmt::format("{} bytes for one {}: expected at most {}", given.size(),
                                        to_string(kind), kMostRendezvousBytes)});
  if (failure_) return tl::unexpected<Error>(failure_->error());
  const std::int64_t number = calls_++;
  result_.reset();
  if (rank == 0) {
    give(0, number, kind, Bytes(given.begin(), given.end()));
  } else {
    send_all(std::make_shared<const Bytes>(PayloadWriter()
                                               .number(number)
                                               .number(static_cast<std::int64_t>(kind))
                                               .bytes(given)
                                               .frame(FrameKind::give)));
  }
  MFSDP_TRY(wait_until(lock, [&] { return result_.has_value(); }, alive));
  return std::move(*result_);
}

/// On rank 0, with the lock held: one rank's input of the round.
void Rendezvous::Hub::give(std::int64_t from, std::int64_t number, RendezvousCall kind,
                           Bytes bytes) {
  if (failure_) return;
  const auto own = static_cast<std::size_t>(from);
  if (!round_.kind) {
    round_.kind = kind;
    round_.first = from;
    round_.deadline = Clock::now() + settings_.call_deadline;
    wake();  // the thread has one more deadline
  }
  if (number != rounds_ || kind != *round_.kind || round_.given[own]) {
    set_failure({.rank = from,
                 .message = fmt::format("calls {} as its collective {}, where rank {} calls {} as "
                                        "its collective {}",
                                        to_string(kind), number, round_.first,
                                        to_string(*round_.kind), rounds_)});
    return;
  }
  round_.given[own] = std::move(bytes);
  if (++round_.count == round_.given.size()) finish_round();
}

void Rendezvous::Hub::finish_round() {
  std::size_t sum = 0;
  for (const auto& bytes : round_.given) sum += bytes->size() + sizeof(std::uint64_t);
  if (sum > kMostResultBytes) {
    set_failure({.rank = 0,
                 .message = fmt::format("{} bytes of all ranks for one {}: expected at most {}",
                                        sum, to_string(*round_.kind), kMostResultBytes)});
    return;
  }
  Bytes result;
  if (round_.kind == RendezvousCall::broadcast) result = std::move(*round_.given[0]);
  if (round_.kind == RendezvousCall::all_gather) result = join(round_.given);
  if (!links_.empty())
    send_all(std::make_shared<const Bytes>(
        PayloadWriter().number(rounds_).bytes(result).frame(FrameKind::result)));
  result_ = std::move(result);
  ++rounds_;
  round_ = {};
  round_.given.resize(static_cast<std::size_t>(world_size));
  changed_.notify_all();
}

std::vector<std::int64_t> Rendezvous::Hub::missing_in_round() const {
  std::vector<std::int64_t> ranks;
  for (std::size_t i = 0; i < round_.given.size(); ++i)
    if (!round_.given[i]) ranks.push_back(static_cast<std::int64_t>(i));
  return ranks;
}

// ---- failures ----------------------------------------------------------------------------------

/// With the lock held. Rank 0 informs all ranks, another rank informs rank 0.
void Rendezvous::Hub::set_failure(RankFailure failure) {
  if (failure_) return;
  send_all(std::make_shared<const Bytes>(encode(failure)));
  failure_ = std::move(failure);
  changed_.notify_all();
}

void Rendezvous::Hub::fail(std::string message) {
  constexpr std::size_t kMost = kMostHelloBytes;
  if (message.size() > kMost) message.resize(kMost);
  const std::scoped_lock lock(mutex_);
  set_failure({.rank = rank, .message = std::move(message)});
}

std::optional<RankFailure> Rendezvous::Hub::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

// ---- grants ------------------------------------------------------------------------------------

void Rendezvous::Hub::request_stop() {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(stop_requested_, true) || rank == 0) return;
  send_all(std::make_shared<const Bytes>(PayloadWriter().frame(FrameKind::stop)));
}

bool Rendezvous::Hub::stop_requested() const {
  const std::scoped_lock lock(mutex_);
  return stop_requested_;
}

void Rendezvous::Hub::grant(TurnGrant grant) {
  const std::scoped_lock lock(mutex_);
  grant.turns = std::max(grant.turns, grant_.turns);
  if (grant_.last || grant == grant_) return;
  grant_ = grant;
  send_all(std::make_shared<const Bytes>(
      PayloadWriter().number(grant.turns).number(grant.last ? 1 : 0).frame(FrameKind::grant)));
  changed_.notify_all();
}

Result<bool> Rendezvous::Hub::await_turn(std::int64_t turn, const Alive& alive) {
  Lock lock(mutex_);
  MFSDP_TRY(wait_until(lock, [&] { return turn < grant_.turns || grant_.last; }, alive));
  return turn < grant_.turns;
}

}  // namespace mfsdp
