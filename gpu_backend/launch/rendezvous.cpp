#include "gpu_backend/launch/rendezvous.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <utility>

#include "gpu_backend/launch/hub.hpp"
#include "gpu_backend/launch/launch_sources.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostIdentity = 256;

Result<void> check(const MeetingIdentity& identity) {
  for (const std::string* text : {&identity.run_id, &identity.plan_hash, &identity.build_id})
    if (text->size() > kMostIdentity)
      return fail("rendezvous", fmt::format("\"{}...\" is too long: expected at most {} bytes",
                                            text->substr(0, 40), kMostIdentity));
  return {};
}

Result<FileDescriptor> open_listener(const RankLaunch& launch) {
  if (!launch.supervised || !launch.supervised->listener)
    return listen_at(launch.meeting.port, launch.meeting.address == kThisHost);
  FileDescriptor inherited(*launch.supervised->listener);
  MFSDP_TRY(port_of(inherited));
  ::fcntl(inherited.number(), F_SETFD, FD_CLOEXEC);
  ::fcntl(inherited.number(), F_SETFL, O_NONBLOCK);
  return inherited;
}

Result<std::vector<Peer>> find_peers(const RankLaunch& launch, const MeetingIdentity& identity,
                                     const RendezvousSettings& settings) {
  const RankPlace& place = launch.place;
  if (place.world_size == 1) return {};
  if (!launch.secret)
    return fail("rendezvous", "this rank was given no secret to prove itself with");
  const Hello hello{
      .rank = place.rank, .world_size = place.world_size, .identity = identity, .nonce = {}};
  if (place.rank == 0) {
    MFSDP_LET(listener, open_listener(launch));
    return accept_ranks(listener, hello, *launch.secret, settings);
  }
  MFSDP_LET(peer, connect_to_rank_0(launch.meeting, hello, *launch.secret, settings));
  std::vector<Peer> peers;
  peers.push_back(std::move(peer));
  return peers;
}

}  // namespace

Error RankFailure::error() const {
  return {.where = fmt::format("rank {}", rank), .what = message, .fault = Fault::environment};
}

Result<std::unique_ptr<Rendezvous>> Rendezvous::meet(const RankLaunch& launch,
                                                     const MeetingIdentity& identity,
                                                     RendezvousSettings settings) {
  MFSDP_TRY(check(identity));
  MFSDP_LET(peers, find_peers(launch, identity, settings));
  return std::unique_ptr<Rendezvous>(
      new Rendezvous(std::make_unique<Hub>(launch.place, std::move(settings), std::move(peers))));
}

Rendezvous::Rendezvous(std::unique_ptr<Hub> hub) : hub_(std::move(hub)) {}
Rendezvous::~Rendezvous() = default;

std::int64_t Rendezvous::rank() const { return hub_->rank; }
std::int64_t Rendezvous::world_size() const { return hub_->world_size; }

Result<Rendezvous::Bytes> Rendezvous::broadcast(std::span<const std::byte> from_rank_0,
                                                const Alive& alive) {
  return hub_->call(RendezvousCall::broadcast,
                    rank() == 0 ? from_rank_0 : std::span<const std::byte>{}, alive);
}

Result<std::vector<Rendezvous::Bytes>> Rendezvous::all_gather(std::span<const std::byte> bytes,
                                                              const Alive& alive) {
  MFSDP_LET(joined, hub_->call(RendezvousCall::all_gather, bytes, alive));
  PayloadReader reader(joined);
  std::vector<Bytes> all;
  for (std::int64_t i = 0; i < world_size(); ++i) {
    auto each = reader.bytes();
    if (!each)
      return mfsdp::fail("rank 0", "sent a result of all_gather that cannot be read",
                         Fault::environment);
    all.push_back(std::move(*each));
  }
  return all;
}

Result<void> Rendezvous::barrier(const Alive& alive) {
  MFSDP_TRY(hub_->call(RendezvousCall::barrier, {}, alive));
  return {};
}

void Rendezvous::fail(std::string message) { hub_->fail(std::move(message)); }
std::optional<RankFailure> Rendezvous::failure() const { return hub_->failure(); }
void Rendezvous::request_stop() { hub_->request_stop(); }
bool Rendezvous::stop_requested() const { return hub_->stop_requested(); }
void Rendezvous::grant(TurnGrant grant) { hub_->grant(grant); }
Result<bool> Rendezvous::await_turn(std::int64_t turn, const Alive& alive) {
  return hub_->await_turn(turn, alive);
}

}  // namespace mfsdp
