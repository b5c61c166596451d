#include "gpu_backend/launch/greeting.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "core/base/text.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;

/// For a stranger to say who it is. No rank takes longer: it speaks as soon as it is connected.
constexpr std::chrono::seconds kStranger{10};
/// After the first thing that is wrong, for others to come and be told too.
constexpr std::chrono::seconds kVerdict{3};
/// Connections that have not said who they are; more are not accepted until some have.
constexpr std::size_t kMostStrangers = 256;

tl::unexpected<Error> refuse(std::string what) {
  return fail("rendezvous", std::move(what), Fault::environment);
}

// ---- what is wrong with those who came ---------------------------------------------------------

/// "2 build ids: A on rank 0; B on ranks 1, 3". Empty where all have one.
std::string differing(std::string_view what, const std::vector<Hello>& hellos,
                      const std::function<std::string(const Hello&)>& value_of) {
  std::map<std::string, std::vector<std::int64_t>> ranks_by_value;
  for (const Hello& hello : hellos) ranks_by_value[value_of(hello)].push_back(hello.rank);
  if (ranks_by_value.size() == 1) return {};
  std::vector<std::pair<std::vector<std::int64_t>, std::string>> groups;
  for (auto& [value, ranks] : ranks_by_value) {
    std::ranges::sort(ranks);
    groups.emplace_back(std::move(ranks), value);
  }
  std::ranges::sort(groups);
  std::string text = fmt::format("ranks differ in their {}: ", what);
  for (std::size_t i = 0; i < groups.size(); ++i)
    text +=
        fmt::format("{}{} on {}", i > 0 ? "; " : "", groups[i].second, name_ranks(groups[i].first));
  return text;
}

std::string quoted(const std::string& text) { return "\"" + printable(text) + "\""; }

/// The first thing that keeps these ranks (rank 0's hello first) from starting; empty where nothing
/// does.
std::string find_fault(const std::vector<Hello>& hellos) {
  const auto number = [](std::int64_t Hello::* field) {
    return [field](const Hello& hello) { return std::to_string(hello.*field); };
  };
  const auto text = [](std::string MeetingIdentity::* field) {
    return [field](const Hello& hello) { return quoted(hello.identity.*field); };
  };
  for (const std::string& fault : {
           differing("protocol version", hellos, number(&Hello::version)),
           differing("run id", hellos, text(&MeetingIdentity::run_id)),
           differing("world size", hellos, number(&Hello::world_size)),
           differing("build", hellos, text(&MeetingIdentity::build_id)),
           differing("plan hash", hellos, text(&MeetingIdentity::plan_hash)),
       })
    if (!fault.empty()) return fault;
  const std::int64_t world = hellos.front().world_size;
  std::map<std::int64_t, std::int64_t> count;
  for (const Hello& hello : hellos) {
    if (hello.rank < 0 || hello.rank >= world)
      return fmt::format("rank {} came: expected 0 to {}", hello.rank, world - 1);
    ++count[hello.rank];
  }
  for (const auto& [rank, times] : count)
    if (times > 1) return fmt::format("{} processes came as rank {}", times, rank);
  return {};
}

// ---- rank 0 ------------------------------------------------------------------------------------

/// Somebody who has connected.
struct Guest {
  FileDescriptor socket;
  FrameReader reader{kMostGreetingBytes};
  Clock::time_point since;
  std::optional<Hello> hello;  ///< none: a stranger so far
};

class Door {
 public:
  Door(const FileDescriptor& listener, Hello own, const RendezvousSettings& settings)
      : listener_(listener),
        own_(std::move(own)),
        deadline_(Clock::now() + settings.meet_deadline),
        patience_(settings.meet_deadline) {}

  Result<std::vector<Peer>> open() {
    while (!all_have_come()) {
      const auto until = std::min(deadline_, verdict_.value_or(deadline_));
      if (Clock::now() >= until) return refuse_all(verdict_ ? find_fault(hellos()) : missing());
      wait(until);
      accept_guests();
      for (Guest& guest : guests_) MFSDP_TRY(listen_to(guest));
      guests_.remove_if([](const Guest& guest) {
        return !guest.socket || (!guest.hello && Clock::now() - guest.since > kStranger);
      });
      if (!verdict_ && !find_fault(hellos()).empty()) verdict_ = Clock::now() + kVerdict;
    }
    const std::string fault = find_fault(hellos());
    return fault.empty() ? welcome_all() : refuse_all(fault);
  }

 private:
  [[nodiscard]] std::vector<Hello> hellos() const {
    std::vector<Hello> list{own_};
    for (const Guest& guest : guests_)
      if (guest.hello) list.push_back(*guest.hello);
    return list;
  }

  [[nodiscard]] std::vector<std::int64_t> missing_ranks() const {
    std::vector<bool> came(static_cast<std::size_t>(own_.world_size), false);
    for (const Hello& hello : hellos())
      if (hello.rank >= 0 && hello.rank < own_.world_size)
        came[static_cast<std::size_t>(hello.rank)] = true;
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 0; rank < own_.world_size; ++rank)
      if (!came[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  [[nodiscard]] bool all_have_come() const { return missing_ranks().empty(); }

  [[nodiscard]] std::string missing() const {
    return fmt::format("{} of {} did not come within {} s", name_ranks(missing_ranks()),
                       own_.world_size, in_seconds(patience_));
  }

  [[nodiscard]] std::size_t strangers() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(guests_, [](const Guest& guest) { return !guest.hello; }));
  }

  void wait(Clock::time_point until) const {
    std::vector<pollfd> waiting;
    if (strangers() < kMostStrangers) waiting.push_back({listener_.number(), POLLIN, 0});
    for (const Guest& guest : guests_) {
      waiting.push_back({guest.socket.number(), POLLIN, 0});
      if (!guest.hello) until = std::min(until, guest.since + kStranger);
    }
    static_cast<void>(::poll(waiting.data(), waiting.size(), poll_wait_until(until)));
  }

  void accept_guests() {
    while (strangers() < kMostStrangers) {
      FileDescriptor socket = accept_from(listener_);
      if (!socket) return;
      Guest& guest = guests_.emplace_back();
      guest.socket = std::move(socket);
      guest.since = Clock::now();
    }
  }

  /// Whoever is no rank is dropped; a rank that goes away ends the meeting.
  Result<void> listen_to(Guest& guest) {
    std::array<std::byte, kMostGreetingBytes> bytes{};
    const Transfer came = receive_from(guest.socket, bytes);
    guest.reader.add(std::span(bytes).first(came.bytes));
    if (guest.hello) {
      if (!came.ended) return {};
      return tl::unexpected<Error>(
          refuse_all(fmt::format("rank {} went away before all had come", guest.hello->rank))
              .error());
    }
    auto frame = guest.reader.next();
    if (frame && *frame && (**frame).kind == FrameKind::hello)
      guest.hello = decode_hello((**frame).payload);
    const bool waits = frame && !*frame && !came.ended;
    if (!guest.hello && !waits) guest.socket.close();
    return {};
  }

  Result<std::vector<Peer>> refuse_all(std::string reason) {
    constexpr std::size_t kMost = kMostGreetingBytes / 2;  // as many values as there are ranks
    if (reason.size() > kMost) reason = reason.substr(0, kMost) + " ...";
    for (const Guest& guest : guests_)
      if (guest.hello)
        static_cast<void>(
            send_to(guest.socket, PayloadWriter().text(reason).frame(FrameKind::refused)));
    return refuse(reason);
  }

  Result<std::vector<Peer>> welcome_all() {
    std::vector<Peer> peers;
    for (Guest& guest : guests_) {
      if (!guest.hello) continue;
      // A few bytes on a connection that is new: they fit.
      static_cast<void>(send_to(guest.socket, PayloadWriter().frame(FrameKind::welcome)));
      peers.push_back({.rank = guest.hello->rank,
                       .socket = std::move(guest.socket),
                       .reader = std::move(guest.reader)});
    }
    std::ranges::sort(peers, {}, &Peer::rank);
    return peers;
  }

  const FileDescriptor& listener_;
  Hello own_;
  Clock::time_point deadline_;
  milliseconds patience_;
  std::optional<Clock::time_point> verdict_;  ///< when something is wrong: when it is said
  std::list<Guest> guests_;
};

}  // namespace

Result<std::vector<Peer>> greet_ranks(const FileDescriptor& listener, const Hello& own,
                                      const RendezvousSettings& settings) {
  return Door(listener, own, settings).open();
}

// ---- other ranks -------------------------------------------------------------------------------

Result<Peer> call_rank_0(const MeetingPoint& meeting, const Hello& own,
                         const RendezvousSettings& settings) {
  const Clock::time_point deadline = Clock::now() + settings.meet_deadline;
  MFSDP_LET(socket, connect_to(meeting, deadline));
  Peer peer;
  peer.socket = std::move(socket);
  static_cast<void>(send_to(peer.socket, encode(own)));
  // Rank 0 has begun to wait at another time, and knows more about who is missing.
  const Clock::time_point last = deadline + settings.meet_deadline + kVerdict;
  std::array<std::byte, kMostGreetingBytes> bytes{};
  while (Clock::now() < last) {
    pollfd waiting{.fd = peer.socket.number(), .events = POLLIN, .revents = 0};
    static_cast<void>(::poll(&waiting, 1, poll_wait_until(last)));
    const Transfer came = receive_from(peer.socket, bytes);
    peer.reader.add(std::span(bytes).first(came.bytes));
    auto frame = peer.reader.next();
    if (!frame)
      return refuse(fmt::format("what answers at {} port {} is no rank 0 of mfsdp", meeting.address,
                                meeting.port));
    if (*frame && (**frame).kind == FrameKind::welcome) return peer;
    if (*frame && (**frame).kind == FrameKind::refused)
      return refuse(printable(PayloadReader((**frame).payload).text().value_or("refused")));
    if (came.ended) return refuse("rank 0 went away before all had come");
  }
  return refuse(fmt::format("rank 0 at {} port {} says nothing", meeting.address, meeting.port));
}

}  // namespace mfsdp
