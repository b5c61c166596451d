#include "gpu_backend/launch/connect.hpp"

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
#include "gpu_backend/launch/handshake.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;

/// After the first fault: other ranks may still connect in this time and receive its reason.
constexpr std::chrono::seconds kVerdict{3};
tl::unexpected<Error> refuse(std::string what) {
  return fail("rendezvous", std::move(what), Fault::environment);
}

// ---- faults of the connected ranks -------------------------------------------------------------

/// "2 build ids: A on rank 0; B on ranks 1, 3". Empty if all ranks have the same value.
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

/// The first fault that keeps these ranks (rank 0's hello first) from starting; empty if there is
/// none.
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

class Door {
 public:
  Door(const FileDescriptor& listener, Hello own, const std::string& secret,
       const RendezvousSettings& settings)
      : own_(std::move(own)),
        deadline_(Clock::now() + settings.meet_deadline),
        patience_(settings.meet_deadline),
        pending_(listener, secret) {}

  Result<std::vector<Peer>> open() {
    while (!all_have_come()) {
      const auto until = std::min(deadline_, verdict_.value_or(deadline_));
      if (Clock::now() >= until) return refuse_all(verdict_ ? find_fault(hellos()) : missing());
      wait(until);
      ranks_.splice(ranks_.end(), pending_.step());
      for (ProvenRank& rank : ranks_) MFSDP_TRY(check_is_there(rank));
      if (!verdict_ && !find_fault(hellos()).empty()) verdict_ = Clock::now() + kVerdict;
    }
    const std::string fault = find_fault(hellos());
    return fault.empty() ? welcome_all() : refuse_all(fault);
  }

 private:
  [[nodiscard]] std::vector<Hello> hellos() const {
    std::vector<Hello> list{own_};
    for (const ProvenRank& rank : ranks_) list.push_back(rank.hello);
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
    return fmt::format("{} of {} did not come within {} s{}", name_ranks(missing_ranks()),
                       own_.world_size, in_seconds(patience_), pending_.turned_away());
  }

  void wait(Clock::time_point until) const {
    std::vector<pollfd> waiting;
    pending_.add_to(waiting, until);
    for (const ProvenRank& rank : ranks_) waiting.push_back({rank.peer.socket.number(), POLLIN, 0});
    static_cast<void>(::poll(waiting.data(), waiting.size(), poll_wait_until(until)));
  }

  /// A rank that disconnects ends the rendezvous.
  Result<void> check_is_there(ProvenRank& rank) {
    std::array<std::byte, kMostHelloBytes> bytes{};
    const Transfer came = receive_from(rank.peer.socket, bytes);
    rank.peer.reader.add(std::span(bytes).first(came.bytes));
    if (!came.ended) return {};
    return tl::unexpected<Error>(
        refuse_all(fmt::format("rank {} went away before all had come", rank.hello.rank)).error());
  }

  Result<std::vector<Peer>> refuse_all(std::string reason) {
    constexpr std::size_t kMost = kMostHelloBytes / 2;  // as many values as there are ranks
    if (reason.size() > kMost) reason = reason.substr(0, kMost) + " ...";
    for (const ProvenRank& rank : ranks_)
      static_cast<void>(
          send_to(rank.peer.socket, PayloadWriter().text(reason).frame(FrameKind::refused)));
    return refuse(reason);
  }

  Result<std::vector<Peer>> welcome_all() {
    std::vector<Peer> peers;
    for (ProvenRank& rank : ranks_) {
      // A few bytes on a new connection fit into its send buffer, so this does not block.
      static_cast<void>(send_to(rank.peer.socket, PayloadWriter().frame(FrameKind::welcome)));
      rank.peer.rank = rank.hello.rank;
      peers.push_back(std::move(rank.peer));
    }
    std::ranges::sort(peers, {}, &Peer::rank);
    return peers;
  }

  Hello own_;
  Clock::time_point deadline_;
  milliseconds patience_;
  std::optional<Clock::time_point> verdict_;  ///< when the fault that was found is sent
  PendingConnections pending_;
  std::list<ProvenRank> ranks_;
};

}  // namespace

Result<std::vector<Peer>> accept_ranks(const FileDescriptor& listener, const Hello& own,
                                       const std::string& secret,
                                       const RendezvousSettings& settings) {
  return Door(listener, own, secret, settings).open();
}

// ---- other ranks -------------------------------------------------------------------------------

Result<Peer> connect_to_rank_0(const MeetingPoint& meeting, const Hello& own,
                               const std::string& secret, const RendezvousSettings& settings) {
  const Clock::time_point deadline = Clock::now() + settings.meet_deadline;
  // Rank 0 started its own timeout at another time and knows which ranks are missing: let it end
  // first.
  const Clock::time_point last = deadline + settings.meet_deadline + kVerdict;
  MFSDP_LET(peer, prove_to_rank_0(meeting, own, secret, deadline, last));
  MFSDP_LET(heard, hear(peer, last));
  if (heard.ended) return refuse("rank 0 went away before all had come");
  if (!heard.frame)
    return refuse(fmt::format("rank 0 at {} port {} is silent", meeting.address, meeting.port));
  const Frame& frame = *heard.frame;
  if (frame.kind == FrameKind::welcome) return std::move(peer);
  return refuse(printable(PayloadReader(frame.payload).text().value_or("refused")));
}

}  // namespace mfsdp
